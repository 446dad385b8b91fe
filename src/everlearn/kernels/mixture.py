"""The incremental Gaussian mixture, one row at a time.

Every function works in place on the arrays of a `MixtureState` (see `everlearn.core.incremental`):
`means` (capacity, D), `precisions` (capacity, D, D), `log_dets` of the covariances, `counts` (the
accumulated posteriors sp) and `ages`, of which the first `n` components are in use.
"""

import numpy as np

from everlearn.kernels.jit import kernel
from everlearn.kernels.linalg import (
    cholesky_of_block,
    rank_one_downdate,
    solve_lower,
    solve_lower_transposed,
    symmetric_product,
)

DONE = 0  # every row is learned
FULL = 1  # the next row needs a new component and there is no room for it
UNSAFE = 2  # the next row would cost a precision its accuracy: learn it in covariance form
THIN = 3  # a component has become thinner than the floor: widen it before the next row

LOG_2PI = np.log(2.0 * np.pi)
NEGLIGIBLE = np.exp(-45.0)  # p (1 + d^2) below this changes no bit of a component
MAX_GAIN = 0.999  # a component that has faded away keeps a thousandth of its shape
FLOOR = 1e-10  # smallest conditional variance of a column, in units of a new component's
UNSAFE_STRETCH = 1e8  # w d^2: an update that divides one eigenvalue of a precision by more than this


@kernel
def observed_first(x, index):
    """Write the observed columns of x, then the missing ones, into index; returns how many are observed."""
    D = x.shape[0]
    observed = 0
    for a in range(D):
        if not np.isnan(x[a]):
            index[observed] = a
            observed += 1
    missing = observed
    for a in range(D):
        if np.isnan(x[a]):
            index[missing] = a
            missing += 1
    return observed


@kernel
def complete_distance(x, mean, precision, e, g):
    """d^2 of a complete row; fills e = x - mu and g = Lambda e."""
    for a in range(x.shape[0]):
        e[a] = x[a] - mean[a]
    return symmetric_product(precision, e, g)


@kernel
def marginal_distance(x, mean, precision, index, observed, e, g, L, b):
    """d^2 and log|Lambda_mm| of a row with gaps.

    e_o = x_o - mu_o; the gaps take the conditional mean, e_m = -Lambda_mm^-1 Lambda_mo e_o, so that
    g = Lambda e vanishes there and d^2 = e_o' g_o is the distance in the marginal of the observed part.
    """
    D = x.shape[0]
    m = D - observed
    log_det = cholesky_of_block(precision, index, observed, L)
    for i in range(observed):
        e[index[i]] = x[index[i]] - mean[index[i]]
    for i in range(m):
        row = precision[index[observed + i]]
        value = 0.0
        for k in range(observed):
            value -= row[index[k]] * e[index[k]]
        b[i] = value
    solve_lower(L, m, b)
    solve_lower_transposed(L, m, b)
    for i in range(m):
        e[index[observed + i]] = b[i]
    symmetric_product(precision, e, g)
    d2 = 0.0
    for i in range(observed):
        d2 += e[index[i]] * g[index[i]]
    for i in range(observed, D):
        g[index[i]] = 0.0
    return d2, log_det


@kernel
def measure(x, index, observed, means, precisions, log_dets, counts, n, E, G, d2, log_joint, L, b):
    """Distances and log joint densities (weights not normalised) of one row to every component."""
    D = x.shape[0]
    for j in range(n):
        log_det = log_dets[j]
        if observed == D:
            d2[j] = complete_distance(x, means[j], precisions[j], E[j], G[j])
        else:
            d2[j], gap_log_det = marginal_distance(x, means[j], precisions[j], index, observed, E[j], G[j], L, b)
            log_det += gap_log_det
        log_joint[j] = np.log(counts[j]) - 0.5 * (d2[j] + log_det + observed * LOG_2PI)


@kernel
def normalise(log_joint, n, posterior):
    """Softmax of the log joint densities; returns their log-sum-exp."""
    top = -np.inf
    for j in range(n):
        top = max(top, log_joint[j])
    if top == -np.inf:
        for j in range(n):
            posterior[j] = 0.0
        return top
    total = 0.0
    for j in range(n):
        posterior[j] = np.exp(log_joint[j] - top)
        total += posterior[j]
    for j in range(n):
        posterior[j] /= total
    return top + np.log(total)


@kernel
def gain(count, p, forgetting):
    """Share w of the new row in a component whose count fades by `forgetting` first."""
    return min(p / (forgetting * count + p), MAX_GAIN)


@kernel
def spread_coefficient(w, paper):
    """c in Sigma = (1-w) Sigma + c e e': w(1-w), or the printed w(1 - 3w + w^2) of FIGMN eq. 23."""
    return w * (1.0 - 3.0 * w + w * w) if paper else w * (1.0 - w)


@kernel
def is_unsafe(posterior, d2, counts, n, weight, forgetting):
    """Whether some precision would lose too many digits in this update, or has lost them already."""
    for j in range(n):
        if not d2[j] >= 0.0:
            return True
        if gain(counts[j], posterior[j] * weight, forgetting) * d2[j] > UNSAFE_STRETCH:
            return True
    return False


@kernel
def shift_mean(mean, e, w):
    """Move a mean by its share of the deviation."""
    for a in range(e.shape[0]):
        mean[a] += w * e[a]


@kernel
def update_component(mean, precision, e, g, d2, w, paper):
    """Sherman-Morrison on Lambda; returns the growth of log|Sigma|, or NaN when definiteness would be lost."""
    D = e.shape[0]
    c = spread_coefficient(w, paper) / (1.0 - w)
    stretch = 1.0 + c * d2
    if stretch <= 0.0:
        return np.nan
    scale = 1.0 / (1.0 - w)
    if c >= 0.0:
        root = np.sqrt(c / stretch)
        for a in range(D):
            g[a] *= root
        rank_one_downdate(precision, g, scale)
    else:
        for a in range(D):
            for b in range(D):
                precision[a, b] = scale * (precision[a, b] - c / stretch * (g[a] * g[b]))
    shift_mean(mean, e, w)
    return D * np.log(1.0 - w) + np.log(stretch)


@kernel
def update_component_with_gaps(mean, precision, index, observed, e, g, d2, w, paper, L, b):
    """The EM update from the observed part of a row.

    With Sigma_mm += w Lambda_mm^-1 for the gaps, only the observed block of the precision changes:
    Lambda_oo = (Lambda_oo - w C C' - k g g')/(1-w), with C = Lambda_om L^-T and k = c/(1 + c d^2), c as for a complete
    row. The marginal of the observed columns is updated as by a complete row, and the regression of the gaps on them
    stays as it is.
    """
    D = e.shape[0]
    m = D - observed
    c = spread_coefficient(w, paper) / (1.0 - w)
    stretch = 1.0 + c * d2
    if stretch <= 0.0:
        return np.nan
    cholesky_of_block(precision, index, observed, L)
    C = np.empty((observed, m))
    for i in range(observed):
        for k in range(m):
            b[k] = precision[index[i], index[observed + k]]
        solve_lower(L, m, b)
        for k in range(m):
            C[i, k] = b[k]
    for i in range(observed):
        for k in range(i + 1):
            value = c / stretch * (g[index[i]] * g[index[k]])
            for q in range(m):
                value += w * C[i, q] * C[k, q]
            value = (precision[index[i], index[k]] - value) / (1.0 - w)
            precision[index[i], index[k]] = value
            precision[index[k], index[i]] = value
    shift_mean(mean, e, w)
    return observed * np.log(1.0 - w) + np.log(stretch)


@kernel
def fade(counts, n, forgetting):
    """Weigh the past less."""
    if forgetting < 1.0:
        for j in range(n):
            counts[j] *= forgetting


@kernel
def update(
    index, observed, weight, posterior, means, precisions, log_dets, counts, ages, n, E, G, d2, paper, forgetting, L, b
):
    """Update every component by its share of one row; returns how many updates were skipped as invalid."""
    D = means.shape[1]
    skipped = 0
    for j in range(n):
        ages[j] += 1.0
        p = posterior[j] * weight
        w = gain(counts[j], p, forgetting)
        counts[j] = forgetting * counts[j] + p
        if p * (1.0 + d2[j]) < NEGLIGIBLE:
            continue
        if observed == D:
            growth = update_component(means[j], precisions[j], E[j], G[j], d2[j], w, paper)
        else:
            growth = update_component_with_gaps(
                means[j], precisions[j], index, observed, E[j], G[j], d2[j], w, paper, L, b
            )
        if np.isnan(growth):
            skipped += 1
        else:
            log_dets[j] += growth
    return skipped


@kernel
def create(x, weight, posterior, means, precisions, log_dets, counts, ages, n, E, centre, initial_variance):
    """Open component n at x; gaps take the mixture's conditional mean, or the column's centre."""
    D = x.shape[0]
    log_det = 0.0
    for a in range(D):
        value = x[a]
        if np.isnan(value):
            value = centre[a] if n == 0 else 0.0
            for j in range(n):
                value += posterior[j] * (means[j, a] + E[j, a])
        means[n, a] = value
        for b in range(D):
            precisions[n, a, b] = 0.0
        precisions[n, a, a] = 1.0 / initial_variance[a]
        log_det += np.log(initial_variance[a])
    log_dets[n] = log_det
    counts[n] = weight
    ages[n] = 1.0


@kernel
def remove(k, means, precisions, log_dets, counts, ages, n):
    """Drop component k, keeping the order of the others."""
    for j in range(k, n - 1):
        means[j] = means[j + 1]
        precisions[j] = precisions[j + 1]
        log_dets[j] = log_dets[j + 1]
        counts[j] = counts[j + 1]
        ages[j] = ages[j + 1]


@kernel
def prune(means, precisions, log_dets, counts, ages, n, min_age, min_count):
    """Remove components older than min_age with less than min_count, the heaviest aside; returns how many are left."""
    heaviest = np.argmax(counts[:n])
    for j in range(n - 1, -1, -1):
        if j != heaviest and ages[j] > min_age and counts[j] < min_count:
            remove(j, means, precisions, log_dets, counts, ages, n)
            n -= 1
    return n


@kernel
def is_thin(precision, initial_variance):
    """Whether some column, given the others, has less than the least variance (1/Lambda_aa is that variance)."""
    for a in range(initial_variance.shape[0]):
        if precision[a, a] * initial_variance[a] * FLOOR > 1.0:
            return True
    return False


@kernel
def learn_rows(
    X,
    weights,
    start,
    stop,
    means,
    precisions,
    log_dets,
    counts,
    ages,
    n,
    centre,
    initial_variance,
    thresholds,
    paper,
    forgetting,
    min_age,
    min_count,
    log_density,
    distance,
):
    """Learn rows start..stop of X in order.

    Fills `log_density` (of each row before it was learned) and `distance` (its smallest d^2; infinite
    when there was no component), so that a row is novel where distance >= thresholds[observed].
    Returns (next row, components, status, skipped updates); a status other than DONE leaves the next row
    untouched for the caller.
    """
    capacity, D = means.shape
    E = np.empty((capacity, D))
    G = np.empty((capacity, D))
    d2 = np.empty(capacity)
    log_joint = np.empty(capacity)
    posterior = np.empty(capacity)
    index = np.empty(D, np.int64)
    L = np.empty((0, 0))
    b = np.empty(D)
    skipped = 0
    for t in range(start, stop):
        x = X[t]
        weight = weights[t]
        observed = observed_first(x, index)
        if observed == 0:
            log_density[t] = 0.0
            distance[t] = 0.0
            continue
        if observed < D and L.shape[0] < D:
            L = np.empty((D, D))
        measure(x, index, observed, means, precisions, log_dets, counts, n, E, G, d2, log_joint, L, b)
        log_density[t] = normalise(log_joint, n, posterior) - np.log(np.sum(counts[:n])) if n > 0 else np.nan
        distance[t] = np.min(d2[:n]) if n > 0 else np.inf
        if distance[t] >= thresholds[observed]:
            if n == capacity:
                return t, n, FULL, skipped
            fade(counts, n, forgetting)
            create(x, weight, posterior, means, precisions, log_dets, counts, ages, n, E, centre, initial_variance)
            n += 1
            continue
        if is_unsafe(posterior, d2, counts, n, weight, forgetting):
            return t, n, UNSAFE, skipped
        skipped += update(
            index, observed, weight, posterior, means, precisions, log_dets, counts, ages, n, E, G, d2, paper,
            forgetting, L, b,
        )  # fmt: skip
        if min_age < np.inf:
            n = prune(means, precisions, log_dets, counts, ages, n, min_age, min_count)
        for j in range(n):
            if is_thin(precisions[j], initial_variance):
                return t + 1, n, THIN, skipped
    return stop, n, DONE, skipped


@kernel
def ask_rows(X, means, precisions, log_dets, counts, n, log_scale, log_density, distance, posterior):
    """Log-density, smallest d^2 and posteriors of rows under the mixture.

    Densities are those of the data before column a was divided by exp(log_scale[a]); posteriors are written for the
    rows that `posterior` has.
    """
    D = means.shape[1]
    e = np.empty((n, D))
    g = np.empty((n, D))
    d2 = np.empty(n)
    log_joint = np.empty(n)
    p = np.empty(n)
    index = np.empty(D, np.int64)
    L = np.empty((D, D))
    b = np.empty(D)
    log_total = np.log(np.sum(counts[:n]))
    for t in range(X.shape[0]):
        observed = observed_first(X[t], index)
        measure(X[t], index, observed, means, precisions, log_dets, counts, n, e, g, d2, log_joint, L, b)
        log_density[t] = normalise(log_joint, n, p) - log_total
        for i in range(observed):
            log_density[t] -= log_scale[index[i]]
        distance[t] = np.min(d2)
        if t < posterior.shape[0]:
            posterior[t] = p


@kernel
def to_internal(X, inverse_scale, limit):
    """X times the inverse scale of each column, kept within +-limit so that squares stay finite."""
    out = np.empty_like(X)
    for t in range(X.shape[0]):
        for a in range(X.shape[1]):
            value = X[t, a] * inverse_scale[a]
            if value > limit:
                value = limit
            elif value < -limit:
                value = -limit
            out[t, a] = value
    return out
