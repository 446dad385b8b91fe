/* -- what the model consists of ------------------------------------------------------------------ */

/* Everything that changes while rows are learned. Its size is fixed; nothing is allocated. */
typedef struct {
    double total;                             /* weight of all rows learned */
    long rows;                                /* rows learned since the export: what is known fades in steps */
    double mass[EL_K];                        /* share of each component in all rows, by weight */
    double counts[EL_K];                      /* rows behind its moments */
    double fresh[EL_K];                       /* rows since its last refresh */
    double heights[EL_K];                     /* log(mass) - log|2 pi Sigma| / 2 */
    double means[EL_K][EL_D];
    double shift[EL_K][EL_D];                 /* sum of deviations from the mean since the last refresh */
    double scatter[EL_K][EL_D][EL_D];         /* lower triangle */
    double factors[EL_K][EL_D][EL_D];         /* inverse Cholesky factor of the covariance, lower triangle */
} everlearn_mixture;

/* The model as it was exported. Call this first. */
void everlearn_init(everlearn_mixture *m);

/* Log-density of a row; of its observed part where it has gaps (NAN); 0 where nothing is observed. */
double everlearn_log_density(const everlearn_mixture *m, const double x[EL_D]);

/* Probability of each component given the row. A component that was opened by a row far from all others since the
   last search and has fewer than 3 rows is not shown: it gets 0, and `predict_proba` has no column for it. */
void everlearn_responsibilities(const everlearn_mixture *m, const double x[EL_D], double out[EL_K]);

/* Probability that a row of the same law has a density as low or lower; NAN for a row with gaps. The law is that of
   the time of the export. */
double everlearn_p_value(const everlearn_mixture *m, const double x[EL_D]);

/* The row with the expectation of what is missing in its gaps, and its standard deviation (0 where observed). */
void everlearn_impute(const everlearn_mixture *m, const double x[EL_D], double filled[EL_D], double std[EL_D]);

/* Learn a row; a weight of two is two rows. Gaps are NAN. Returns the log-density that the row had before; NAN, and
   nothing is learned, where nothing is observed, a value is infinite or the weight is not positive. */
double everlearn_learn(everlearn_mixture *m, const double x[EL_D], double weight);

/* Renew all factors. Answers do not change; they become cheaper until the next row is learned, because questions
   need not renew them on the way. */
void everlearn_refresh(everlearn_mixture *m);

#ifndef EVERLEARN_DECLARATIONS

#include <math.h>
#include <string.h>

#define EL_LOG_2PI 1.8378770664093454836
#define EL_FARTHEST 1e15   /* a cell that lies more spreads from its centre counts as lying so far */
#define EL_SMALL 1e-5      /* responsibilities below this change no component */
#define EL_NEGLIGIBLE 30.0 /* a component this many nats below the best takes no part */
#define EL_FEW_ROWS 3.0    /* rows with which a component that a row opened is shown */

/* -- linear algebra ------------------------------------------------------------------------------ */

/* Cholesky factor of the leading n x n triangle in place; log-determinant, or NAN if a pivot is all rounding. */
static double el_cholesky(double A[EL_D][EL_D], int n, double rounding) {
    double log_det = 0.0;
    for (int j = 0; j < n; j++) {
        double pivot = A[j][j], start = A[j][j];
        for (int k = 0; k < j; k++) pivot -= A[j][k] * A[j][k];
        if (!(pivot > rounding * start)) return NAN;
        A[j][j] = sqrt(pivot);
        log_det += log(pivot);
        for (int i = j + 1; i < n; i++) {
            double value = A[i][j];
            for (int k = 0; k < j; k++) value -= A[i][k] * A[j][k];
            A[i][j] = value / A[j][j];
        }
    }
    return log_det;
}

/* Inverse of the lower Cholesky factor of B into out; returns log|B|. A matrix that is not definite to rounding has its
   variances inflated step by step until it is. */
static double el_invert_factor(double B[EL_D][EL_D], double out[EL_D][EL_D]) {
    double L[EL_D][EL_D];
    memcpy(L, B, sizeof L);
    double log_det = el_cholesky(L, EL_D, EL_D * 0x1p-52);
    for (double inflation = 1e-13; isnan(log_det) && inflation < 1.0; inflation *= 10.0) {
        for (int i = 0; i < EL_D; i++) B[i][i] *= 1.0 + inflation;
        memcpy(L, B, sizeof L);
        log_det = el_cholesky(L, EL_D, EL_D * 0x1p-52);
    }
    for (int j = 0; j < EL_D; j++) {
        for (int i = 0; i < j; i++) out[i][j] = 0.0;
        out[j][j] = 1.0 / L[j][j];
        for (int i = j + 1; i < EL_D; i++) {
            double value = 0.0;
            for (int k = j; k < i; k++) value -= L[i][k] * out[k][j];
            out[i][j] = value / L[i][i];
        }
    }
    return log_det;
}

/* |factor (z - mean)|^2 for a D x D triangle, or what has added up when it exceeds the limit. */
static double el_distance(const double *factor, const double mean[EL_D], const double z[EL_D], double limit) {
    double e[EL_D], total = 0.0;
    for (int i = 0; i < EL_D; i++) e[i] = z[i] - mean[i];
    for (int i = 0; i < EL_D && total <= limit; i++) {
        double y = 0.0;
        for (int j = 0; j <= i; j++) y += factor[i * EL_D + j] * e[j];
        total += y * y;
    }
    return total;
}

/* -- a component --------------------------------------------------------------------------------- */

/* Covariance over B: posterior mean of the covariance, widened for the unknown mean. */
static double el_covariance_factor(double count) {
    return (1.0 + 1.0 / fmax(count, 1.0)) / (EL_TAU + fmax(count - 1.0, 0.0));
}

/* B = tau C + S + (count + tau) ridge: the scatter with the prior that all components share. */
static void el_posterior_scatter(double count, double S[EL_D][EL_D], double B[EL_D][EL_D]) {
    for (int i = 0; i < EL_D; i++) {
        for (int j = 0; j <= i; j++)
            B[i][j] = B[j][i] = EL_DIAGONAL && j < i ? 0.0 : EL_TAU * EL_COMMON_SHAPE[i][j] + S[i][j];
        B[i][i] += (count + EL_TAU) * EL_RIDGE[i];
    }
}

/* One component with all its rows taken in. */
typedef struct {
    double count, height;
    double mean[EL_D], scatter[EL_D][EL_D], factor[EL_D][EL_D];
} el_component;

/* Component k as it is after a refresh: what came since the last one goes into mean, scatter, factor and height. */
static void el_refreshed(const everlearn_mixture *m, int k, el_component *c) {
    double B[EL_D][EL_D], shift[EL_D];
    c->count = m->counts[k] + m->fresh[k];
    memcpy(c->scatter, m->scatter[k], sizeof c->scatter);
    for (int i = 0; i < EL_D; i++) {
        shift[i] = m->shift[k][i] / c->count;
        c->mean[i] = m->means[k][i] + shift[i];
        for (int j = 0; j <= i; j++) c->scatter[i][j] -= c->count * shift[i] * shift[j];
    }
    el_posterior_scatter(c->count, c->scatter, B);
    double scale = el_covariance_factor(c->count), log_det = el_invert_factor(B, c->factor);
    for (int i = 0; i < EL_D; i++)
        for (int j = 0; j <= i; j++) c->factor[i][j] /= sqrt(scale);
    c->height = log(m->mass[k]) - 0.5 * (EL_D * (EL_LOG_2PI + log(scale)) + log_det);
}

static void el_refresh(everlearn_mixture *m, int k) {
    el_component c;
    el_refreshed(m, k, &c);
    m->counts[k] = c.count, m->fresh[k] = 0.0, m->heights[k] = c.height;
    memcpy(m->means[k], c.mean, sizeof c.mean);
    memset(m->shift[k], 0, sizeof m->shift[k]);
    memcpy(m->scatter[k], c.scatter, sizeof c.scatter);
    memcpy(m->factors[k], c.factor, sizeof c.factor);
}

/* -- rows ---------------------------------------------------------------------------------------- */

/* A row in the coordinates of the model; the number of its observed columns, and the log of their volume. */
static int el_coordinates(const double x[EL_D], double z[EL_D], double *log_volume) {
    int observed = 0;
    *log_volume = 0.0;
    for (int i = 0; i < EL_D; i++) {
        z[i] = (x[i] - EL_CENTRE[i]) * EL_INVERSE[i];
        if (isnan(z[i])) continue;
        z[i] = fmin(fmax(z[i], -EL_FARTHEST), EL_FARTHEST);
        *log_volume += EL_LOG_SCALE[i];
        observed++;
    }
    return observed;
}

/* What a Gaussian says of a row with gaps. */
typedef struct {
    double log_density, distance;         /* of the observed part */
    double filled[EL_D];                  /* the row with the conditional mean in its gaps */
    double rest[EL_D][EL_D];              /* conditional covariance of the gaps, zero elsewhere */
} el_conditional;

/* With o the observed and u the other columns, E[u | o] = mu_u + Sigma_uo Sigma_oo^-1 (z_o - mu_o). */
static void el_condition(const double z[EL_D], const double mean[EL_D], double C[EL_D][EL_D], el_conditional *out) {
    int seen[EL_D], gaps[EL_D], g = 0, h = 0;
    double L[EL_D][EL_D], T[EL_D][EL_D], y[EL_D];
    for (int i = 0; i < EL_D; i++) {
        if (isnan(z[i])) gaps[h++] = i;
        else seen[g++] = i;
    }
    for (int i = 0; i < g; i++)
        for (int j = 0; j <= i; j++) L[i][j] = C[seen[i]][seen[j]];
    double log_det = el_cholesky(L, g, 0.0), d2 = 0.0;
    for (int i = 0; i < g; i++) {
        double value = z[seen[i]] - mean[seen[i]];
        for (int k = 0; k < i; k++) value -= L[i][k] * y[k];
        y[i] = value / L[i][i];
        d2 += y[i] * y[i];
        out->filled[seen[i]] = z[seen[i]];
    }
    for (int a = 0; a < h; a++) {
        double value = mean[gaps[a]];
        for (int i = 0; i < g; i++) {
            double t = C[gaps[a]][seen[i]];
            for (int k = 0; k < i; k++) t -= L[i][k] * T[a][k];
            T[a][i] = t / L[i][i];
            value += T[a][i] * y[i];
        }
        out->filled[gaps[a]] = value;
    }
    memset(out->rest, 0, sizeof out->rest);
    for (int a = 0; a < h; a++)
        for (int b = 0; b < h; b++) {
            double value = C[gaps[a]][gaps[b]];
            for (int i = 0; i < g; i++) value -= T[a][i] * T[b][i];
            out->rest[gaps[a]][gaps[b]] = value;
        }
    out->distance = d2;
    out->log_density = -0.5 * (g * EL_LOG_2PI + log_det + d2);
}

/* Noise in each column, a multiple of its variance given the others; the variances stay as they are. */
static void el_shrink(double C[EL_D][EL_D], double noise) {
    double L[EL_D][EL_D], y[EL_D], factor[EL_D];
    if (noise == 0.0) return;
    memcpy(L, C, sizeof L);
    el_cholesky(L, EL_D, 0.0);
    for (int j = 0; j < EL_D; j++) {
        double precision = 0.0;           /* column j of the inverse factor, squared */
        for (int i = j; i < EL_D; i++) {
            y[i] = i == j ? 1.0 : 0.0;
            for (int k = j; k < i; k++) y[i] -= L[i][k] * y[k];
            y[i] /= L[i][i];
            precision += y[i] * y[i];
        }
        factor[j] = sqrt(C[j][j] / (C[j][j] + noise / precision));
    }
    for (int i = 0; i < EL_D; i++)
        for (int j = 0; j < EL_D; j++)
            if (i != j) C[i][j] *= factor[i] * factor[j];
}

/* The same for a component after a refresh, or for the broad Gaussian behind them (k = EL_K): log joint. */
static double el_condition_component(
    const everlearn_mixture *m, int k, const double z[EL_D], double noise, el_conditional *out
) {
    double C[EL_D][EL_D];
    if (k == EL_K) {
        memcpy(C, EL_BROAD_COVARIANCE, sizeof C);
        el_shrink(C, noise);
        el_condition(z, EL_BROAD_MEAN, C, out);
        return log(EL_BROAD_ROWS) + out->log_density;
    }
    el_component c;
    el_refreshed(m, k, &c);
    el_posterior_scatter(c.count, c.scatter, C);
    double scale = el_covariance_factor(c.count);
    for (int i = 0; i < EL_D; i++)
        for (int j = 0; j < EL_D; j++) C[i][j] *= scale;
    el_shrink(C, noise);
    el_condition(z, c.mean, C, out);
    return log(m->mass[k]) + out->log_density;
}

/* -- answers ------------------------------------------------------------------------------------- */

/* Log joints of a row with every component and, last, with the broad Gaussian behind them. */
static void el_log_joints(const everlearn_mixture *m, const double z[EL_D], int observed, double joint[EL_K + 1]) {
    for (int k = 0; k <= EL_K; k++) {
        if (observed < EL_D) {
            el_conditional part;
            joint[k] = el_condition_component(m, k, z, 0.0, &part);
        } else if (k == EL_K) {
            joint[k] = EL_BROAD_HEIGHT - 0.5 * el_distance(&EL_BROAD_FACTOR[0][0], EL_BROAD_MEAN, z, INFINITY);
        } else if (m->fresh[k] > 0.0) {
            el_component c;
            el_refreshed(m, k, &c);
            joint[k] = c.height - 0.5 * el_distance(&c.factor[0][0], c.mean, z, INFINITY);
        } else {
            joint[k] = m->heights[k] - 0.5 * el_distance(&m->factors[k][0][0], m->means[k], z, INFINITY);
        }
    }
}

/* log sum exp of n numbers, which become their shares. */
static double el_normalise(double *values, int n) {
    double top = -INFINITY, sum = 0.0;
    for (int k = 0; k < n; k++) top = fmax(top, values[k]);
    for (int k = 0; k < n; k++) sum += values[k] = exp(values[k] - top);
    for (int k = 0; k < n; k++) values[k] /= sum;
    return top + log(sum);
}

double everlearn_log_density(const everlearn_mixture *m, const double x[EL_D]) {
    double z[EL_D], joint[EL_K + 1], log_volume, mass = EL_BROAD_ROWS;
    int observed = el_coordinates(x, z, &log_volume);
    if (observed == 0) return 0.0;
    for (int k = 0; k < EL_K; k++) mass += m->mass[k];
    el_log_joints(m, z, observed, joint);
    return el_normalise(joint, EL_K + 1) - log(mass) - log_volume;
}

void everlearn_responsibilities(const everlearn_mixture *m, const double x[EL_D], double out[EL_K]) {
    double z[EL_D], joint[EL_K + 1], log_volume;
    el_log_joints(m, z, el_coordinates(x, z, &log_volume), joint);
    for (int k = 0; k < EL_K; k++) out[k] = k < EL_KNOWN || m->mass[k] >= EL_FEW_ROWS ? joint[k] : -INFINITY;
    el_normalise(out, EL_K);
}

void everlearn_impute(const everlearn_mixture *m, const double x[EL_D], double filled[EL_D], double std[EL_D]) {
    double z[EL_D], share[EL_K + 1], log_volume;
    double sums[EL_D] = {0.0}, mean[EL_D] = {0.0}, variance[EL_D] = {0.0};
    int observed = el_coordinates(x, z, &log_volume);
    memcpy(filled, x, EL_D * sizeof *filled);
    memset(std, 0, EL_D * sizeof *std);
    if (observed == EL_D) return;
    for (int k = 0; k <= EL_K; k++) {
        el_conditional part;
        share[k] = el_condition_component(m, k, z, EL_SHRINKAGE, &part);
    }
    el_normalise(share, EL_K + 1);
    /* Two passes over the components: the mean, and the variance about it, which thus does not cancel. */
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k <= EL_K; k++) {
            el_conditional part;
            el_condition_component(m, k, z, EL_SHRINKAGE, &part);
            for (int i = 0; i < EL_D; i++) {
                double e = part.filled[i] - mean[i];
                if (pass == 0) sums[i] += share[k] * part.filled[i];
                else variance[i] += share[k] * (part.rest[i][i] + e * e);
            }
            if (pass == 0 && k == EL_K) memcpy(mean, sums, sizeof mean);
        }
    for (int i = 0; i < EL_D; i++)
        if (isnan(z[i])) {
            filled[i] = mean[i] / EL_INVERSE[i] + EL_CENTRE[i];
            std[i] = sqrt(variance[i]) / EL_INVERSE[i];
        }
}

#ifndef EVERLEARN_NO_P_VALUE

/* P(chi2 >= 2 h) with EL_D degrees of freedom: a finite sum, since EL_D is an integer. */
static double el_chi_square_tail(double h) {
    if (!(h > 0.0)) return 1.0;
    double total = EL_D % 2 ? erfc(sqrt(h)) : 0.0;
    for (double a = EL_D % 2 ? 0.5 : 0.0; a < 0.5 * EL_D; a += 1.0) total += exp(a * log(h) - h - lgamma(a + 1.0));
    return fmin(total, 1.0);
}

double everlearn_p_value(const everlearn_mixture *m, const double x[EL_D]) {
    for (int i = 0; i < EL_D; i++)
        if (isnan(x[i])) return NAN;
    double t = everlearn_log_density(m, x);
    if (t < EL_LAW_LOG_DENSITY[EL_LAW_TAIL]) {
        double bound = 0.0;
        for (int k = 0; k < EL_LAW_PARTS; k++) bound += EL_LAW_WEIGHTS[k] * el_chi_square_tail(EL_LAW_HEIGHTS[k] - t);
        return EL_LAW_BELOW[EL_LAW_TAIL] * fmin(bound / fmax(EL_LAW_START, 1e-300), 1.0);
    }
    if (t >= EL_LAW_LOG_DENSITY[EL_LAW_ROWS - 1]) return EL_LAW_BELOW[EL_LAW_ROWS - 1];
    int low = EL_LAW_TAIL, high = EL_LAW_ROWS - 1; /* law[low] <= t < law[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (EL_LAW_LOG_DENSITY[middle] <= t) low = middle;
        else high = middle;
    }
    double slope = (EL_LAW_BELOW[high] - EL_LAW_BELOW[low]) / (EL_LAW_LOG_DENSITY[high] - EL_LAW_LOG_DENSITY[low]);
    return EL_LAW_BELOW[low] + slope * (t - EL_LAW_LOG_DENSITY[low]);
}

#endif

/* -- learning ------------------------------------------------------------------------------------ */

void everlearn_init(everlearn_mixture *m) {
    m->total = EL_TOTAL;
    m->rows = EL_ROWS;
    memcpy(m->mass, EL_MASS, sizeof m->mass);
    memcpy(m->counts, EL_COUNTS, sizeof m->counts);
    memcpy(m->fresh, EL_FRESH, sizeof m->fresh);
    memcpy(m->heights, EL_HEIGHTS, sizeof m->heights);
    memcpy(m->means, EL_MEANS, sizeof m->means);
    memcpy(m->shift, EL_SHIFT, sizeof m->shift);
    memcpy(m->scatter, EL_SCATTER, sizeof m->scatter);
    memcpy(m->factors, EL_FACTORS, sizeof m->factors);
}

void everlearn_refresh(everlearn_mixture *m) {
    for (int k = 0; k < EL_K; k++)
        if (m->fresh[k] > 0.0) el_refresh(m, k);
}

/* Multiply by a factor what the components know. */
static void el_fade(everlearn_mixture *m, double factor) {
    m->total *= factor;
    for (int k = 0; k < EL_K; k++) {
        m->mass[k] *= factor, m->counts[k] *= factor, m->fresh[k] *= factor;
        m->heights[k] += log(factor);
        for (int i = 0; i < EL_D; i++) {
            m->shift[k][i] *= factor;
            for (int j = 0; j <= i; j++) m->scatter[k][i][j] *= factor;
        }
    }
}

/* Add a row of weight r to component k; `rest` is the covariance of its gaps, if it has any. */
static void el_add(everlearn_mixture *m, int k, double r, const double z[EL_D], double (*rest)[EL_D]) {
    m->mass[k] += r, m->fresh[k] += r;
    for (int i = 0; i < EL_D; i++) {
        double e = r * (z[i] - m->means[k][i]);
        m->shift[k][i] += e;
        for (int j = 0; j <= i; j++) {
            m->scatter[k][i][j] += e * (z[j] - m->means[k][j]);
            if (rest) m->scatter[k][i][j] += r * rest[i][j];
        }
    }
}

double everlearn_learn(everlearn_mixture *m, const double x[EL_D], double weight) {
    double z[EL_D], joint[EL_K + 1], log_volume, top = -INFINITY, nearest = INFINITY, sum = 0.0;
    int observed = el_coordinates(x, z, &log_volume), gaps = observed < EL_D, last = EL_K;
    if (observed == 0 || !(weight > 0.0) || isinf(weight)) return NAN;
    for (int i = 0; i < EL_D; i++)
        if (isinf(x[i])) return NAN;
    if (EL_FADE_EVERY > 0 && ++m->rows % EL_FADE_EVERY == 0) el_fade(m, EL_FADE_FACTOR);
    for (int k = 0; k < EL_K; k++) {
        double d2;
        if (gaps) {
            el_conditional part;
            if (m->fresh[k] > 0.0) el_refresh(m, k);
            joint[k] = el_condition_component(m, k, z, 0.0, &part);
            d2 = part.distance;
        } else {
            /* Factors are frozen until their component has grown: a row costs O(K D^2). */
            double limit = fmax(EL_THRESHOLDS[observed], 2.0 * (m->heights[k] - top + EL_NEGLIGIBLE));
            d2 = el_distance(&m->factors[k][0][0], m->means[k], z, limit);
            joint[k] = m->heights[k] - 0.5 * d2;
        }
        nearest = fmin(nearest, d2);
        top = fmax(top, joint[k]);
    }
    /* Of a row far from all components the broad Gaussian takes its share, so that it does not spoil the nearest. */
    if (nearest > EL_THRESHOLDS[observed] && !gaps) {
        double d2 = el_distance(&EL_ALL_FACTOR[0][0], EL_ALL_MEAN, z, INFINITY);
        joint[last] = log(EL_BROAD_ROWS) + EL_ALL_HEIGHT - EL_D * log(2.0) - 0.125 * d2;
        top = fmax(top, joint[last++]);
    }
    for (int k = 0; k < last; k++) {
        double v = joint[k] - top;
        sum += joint[k] = v > -EL_NEGLIGIBLE ? exp(v) : 0.0;
    }
    double log_density = top + log(sum) - log(m->total) - log_volume;
    m->total += weight;
    for (int k = 0; k < EL_K; k++) {
        double r = weight * joint[k] / sum;
        if (!(r > EL_SMALL * weight)) continue;
        if (gaps) {
            el_conditional part;
            el_condition_component(m, k, z, 0.0, &part);
            el_add(m, k, r, part.filled, part.rest);
        } else {
            el_add(m, k, r, z, 0);
        }
        if (m->fresh[k] > EL_GROWTH * m->counts[k] + 0.5) el_refresh(m, k);
    }
    return log_density;
}

#endif
