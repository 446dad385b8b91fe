"""Departures of a row from its own past: prediction errors, levels, drifts, activity, repeated values."""

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_matrix, copy_vector

CLIP = 3.0  # standard deviations beyond which a residual adds no more to a drift
TRUSTED = 4.0  # standard deviations by which a value may depart from its prediction and still enter the history
SLOWEST = 2e-4  # least rate of the running moments: they follow the stream over 5,000 rows
FLOOR = 1e-3  # of squared residuals, so that a constant column has a logarithm
BEYOND_DOUBT = 300.0  # nats: more are not told apart, and exp would overflow
CONSTANT = 1e-9  # mean absolute deviation up to which a column has never varied
LEAST_CHANGES = 10.0  # of a column, before its level and activity have a scale: as many as it needs rows to have units
SETTLED = 20  # rows before residuals have a scale


@inner
def predict(past, season, clock, scratch):
    """Regressors of each column and the prediction of its next value, into the scratch."""
    D, L = past.mean.shape[0], past.history.shape[0]
    phase = clock.rows[0] % clock.period[0] if clock.period[0] > 0 else 0
    for j in range(D):
        row = scratch.regressors[j]
        row[0] = 1.0
        for lag in range(L):
            row[1 + lag] = past.history[lag, j]
        row[1 + L] = past.slow[j]
        row[2 + L] = season.profile[phase, j] if clock.period[0] > 0 and season.visits[phase] > 0.0 else 0.0
        total = 0.0
        for i in range(row.shape[0]):
            total += row[i] * past.coefficients[j, i]
        scratch.predicted[j] = total


@kernel
def residuals_beside_gaps(u, e, P, joint):
    """Errors of the missing values, as those of the observed ones let expect, into e; conditional residuals; e' S^-1 e.

    With P the precision of all errors, m the missing and o the observed ones, the mean of the former is -P_mm^-1 P_mo
    e_o, and S^-1 = P_oo - P_om P_mm^-1 P_mo the precision of the latter by themselves. If gaps counted as predicted
    exactly, a column whose errors are those of a missing one would stand out in every other row.
    """
    missing = np.flatnonzero(np.isnan(u))
    slopes = np.linalg.inv(P[missing][:, missing]) @ P[missing]
    for a, j in enumerate(missing):
        e[j], joint[j] = -np.dot(slopes[a], np.where(np.isnan(u), 0.0, e)), 0.0
    total = 0.0
    for j in range(u.shape[0]):
        if np.isnan(u[j]):
            continue
        y, own = np.dot(P[j], e), P[j, j]
        for a, i in enumerate(missing):
            own -= P[j, i] * slopes[a, j]
        joint[j] = y / np.sqrt(max(own, 1e-300))
        total += y * e[j]
    return total


@inner
def residuals_given_others(e, P, joint):
    """Conditional residuals of a row without gaps, or of columns whose errors are taken as independent; e' P e."""
    D, total = e.shape[0], 0.0
    diagonal = P.shape[1] < D
    for j in range(D):
        y, row = 0.0, P[j]
        if diagonal:
            y = row[0] * e[j]
            joint[j] = y / np.sqrt(row[0])
        else:
            for i in range(D):
                y += row[i] * e[i]
            joint[j] = y / np.sqrt(row[j])
        total += y * e[j]
    return total


@inner
def residuals(x, past, scratch):
    """Errors of the prediction: of each column by itself, and given the errors of the others; returns e' P e.

    The conditional residual of column j is (P e)_j / sqrt(P_jj): its exact z-value given all other columns.
    """
    D, gaps = x.shape[0], 0
    e, own, joint = scratch.error, scratch.own, scratch.joint_residual
    for j in range(D):
        u = np.arcsinh((x[j] - past.units.centre[j]) / past.units.scale[j])
        # Independent of the others, a gap counts as predicted exactly.
        e[j] = 0.0 if np.isnan(u) else u - scratch.predicted[j]
        gaps += np.isnan(u)
        own[j] = e[j] / np.sqrt(past.variance[j])
        scratch.u[j] = u
    if gaps > 0 and past.precision.shape[1] == D:
        total = residuals_beside_gaps(scratch.u, e, past.precision, joint)
    else:
        total = residuals_given_others(e, past.precision, joint)
    for j in range(D):
        # What departs too far enters the history only in part, so that one outlier does not spoil the next prediction.
        limit = TRUSTED * np.sqrt(past.variance[j])
        scratch.trusted[j] = scratch.predicted[j] + min(max(e[j], -limit), limit)
    return total


@inner
def rate_of(tau, rows):
    """Rate of an exponential mean over tau rows that starts as a plain mean."""
    return max(1.0 / (rows + 1.0), 1.0 / tau)


@inner
def next_means(past, clock, time_scales, scratch):
    """The exponential means as they will be with this row, into the scratch."""
    for k in range(time_scales.shape[0]):
        b = rate_of(time_scales[k], clock.predicted[0])
        for j in range(past.mean.shape[0]):
            if np.isnan(scratch.u[j]):
                # A gap says nothing: counted as no error, it would be the silence of a frozen sensor after a while.
                scratch.means[0, k, j], scratch.means[1, k, j] = past.level[k, j], past.drift[k, j]
                scratch.means[2, k, j], scratch.means[3, k, j] = past.own[k, j], past.joint[k, j]
                continue
            clipped = min(max(scratch.joint_residual[j], -CLIP), CLIP)
            own, joint = min(scratch.own[j] ** 2, 100.0), min(scratch.joint_residual[j] ** 2, 100.0)
            scratch.means[0, k, j] = past.level[k, j] + b * (scratch.trusted[j] - past.level[k, j])
            scratch.means[1, k, j] = past.drift[k, j] + b * (clipped - past.drift[k, j])
            scratch.means[2, k, j] = past.own[k, j] + b * (own - past.own[k, j])
            scratch.means[3, k, j] = past.joint[k, j] + b * (joint - past.joint[k, j])


@inner
def has_scale(past, j):
    """Whether column j has changed often enough for its means to have a scale.

    The first other values of a column that hardly varies make their rows strange, not the fifty after each of them.
    """
    return past.deviation[j] > CONSTANT and past.repeat_counts[j, 0] >= LEAST_CHANGES


@inner
def largest_departure(values, moments, k, logs, past):
    """Largest squared z-value of the columns' means at time scale k."""
    worst = 0.0
    for j in range(values.shape[1]):
        if not has_scale(past, j):
            continue
        v = np.log(values[k, j] + FLOOR) if logs else values[k, j]
        z = v - moments[0, k, j]
        worst = max(worst, z * z / max(moments[1, k, j], 1e-4))
    return worst


@inner
def surprise_of_repeat(x, past, j):
    """-log probability of the present run of one value in column j, by how often its values were repeated before."""
    if x[j] != past.last[j]:
        return 0.0
    counts = past.repeat_counts[j]
    # This repeat and the r before it: one came after a change, r after a repeat (a Markov chain of two states).
    first = -np.log((counts[1] + 0.5) / (counts[0] + 1.0))
    again = -np.log((counts[3] + 0.5) / (counts[2] + 1.0))
    return first + past.repeats[j] * again


@inner
def surprise_of_repeats(x, past):
    """That of the column where it is largest; of all columns together, if there are several and all are repeated.

    Two equal values of one sensor come by chance where it has few decimals. A row that comes twice does not: somebody
    has sent the last one again, or all sensors are stuck. Where no value ever came twice, it is beyond doubt.
    """
    worst, total, repeated, known = 0.0, 0.0, 0, 0.0
    for j in range(x.shape[0]):
        own = surprise_of_repeat(x, past, j)
        worst, total = max(worst, own), total + own
        repeated += x[j] == past.last[j]
        known += past.repeat_counts[j, 1]
    if repeated < x.shape[0] or repeated == 1:
        return worst
    return total if known > 0.0 else BEYOND_DOUBT


@inner
def past_statistics(x, past, season, clock, time_scales, scratch):
    """Statistics of a row against its own past, into scratch.statistics from the fifth on; nothing else is learned."""
    predict(past, season, clock, scratch)
    squared = residuals(x, past, scratch)
    next_means(past, clock, time_scales, scratch)
    out, T, at = scratch.statistics, time_scales.shape[0], 4
    # Residuals have no scale yet: these statistics are left untold, not zero.
    if clock.predicted[0] <= SETTLED:
        out[at:] = np.nan
        return
    out[at] = squared
    for k in range(T):
        out[at + 1 + k] = largest_departure(scratch.means[0], past.level_moments, k, False, past)
        out[at + 1 + T + k] = largest_departure(scratch.means[1], past.drift_moments, k, False, past)
        out[at + 1 + 2 * T + k] = largest_departure(scratch.means[2], past.own_moments, k, True, past)
        out[at + 1 + 3 * T + k] = largest_departure(scratch.means[3], past.joint_moments, k, True, past)
    out[at + 1 + 4 * T] = surprise_of_repeats(x, past)


@inner
def predictability(past, clock):
    """How much better a column's own past predicts it than its mean does, 0 to 1; mean over the columns."""
    D, total = past.mean.shape[0], 0.0
    for j in range(D):
        if past.deviation[j] > CONSTANT:
            # Rows without order gain by chance, too: nothing counts up to 2 %, all from 12 % on.
            gain = 1.0 - past.error[j] / past.deviation[j]
            total += min(max((gain - 0.02) / 0.1, 0.0), 1.0) / D
    return total * min(1.0, clock.predicted[0] / 100.0)


@inner
def advance(x, past, season, clock, scratch):
    """Move on by a row that may be strange: histories and exponential means, but nothing that defines what is usual."""
    L = past.history.shape[0]
    for lag in range(L - 1, 0, -1):
        copy_vector(past.history[lag - 1], past.history[lag])
    copy_matrix(scratch.means[0], past.level)
    copy_matrix(scratch.means[1], past.drift)
    copy_matrix(scratch.means[2], past.own)
    copy_matrix(scratch.means[3], past.joint)
    for j in range(x.shape[0]):
        # Not the value itself: see `residuals`.
        past.history[0, j] = scratch.trusted[j]
        past.slow[j] += 0.1 * (scratch.trusted[j] - past.slow[j])
        if not np.isnan(x[j]):
            past.repeats[j] = past.repeats[j] + 1 if x[j] == past.last[j] else 0
            past.last[j] = x[j]


@inner
def learn_usual(x, past, clock, scratch):
    """Learn a row as usual, in place: regression, scales and running moments. To be called before `advance`."""
    D, n = x.shape[0], clock.predicted[0]
    rate = max(1.0 / (n + 1.0), SLOWEST)
    e = scratch.error
    for j in range(D):
        if np.isnan(scratch.u[j]):
            continue
        away = scratch.u[j] - past.mean[j]
        past.mean[j] += rate * away
        past.deviation[j] += rate * (abs(away) - past.deviation[j])
        past.error[j] += rate * (abs(e[j]) - past.error[j])
        square = e[j] * e[j]
        if n > SETTLED:
            limit = 5.0 * np.sqrt(past.variance[j])
            # The variance may grow with a wide error, but by no more than a tenfold
            # one would; the regression sees less of it.
            square = min(square, 4.0 * limit * limit)
            e[j] = min(max(e[j], -limit), limit)
        past.variance[j] = max(past.variance[j] + rate * (square - past.variance[j]), 1e-8)
        least_squares_step(past.coefficients[j], past.inverse_gram[j], scratch.regressors[j], e[j], scratch.gain)
        if x[j] == past.last[j]:
            past.repeat_counts[j, 3 if past.repeats[j] > 0 else 1] += 1.0
        past.repeat_counts[j, 2 if past.repeats[j] > 0 else 0] += 1.0
    # At the first row the precision is that of no covariance.
    learn_covariance(past, e, scratch.u, rate, n > 0)
    update_moments(past.level_moments, scratch.means[0], rate, False)
    update_moments(past.drift_moments, scratch.means[1], rate, False)
    update_moments(past.own_moments, scratch.means[2], rate, True)
    update_moments(past.joint_moments, scratch.means[3], rate, True)


@inner
def learn_covariance(past, e, u, rate, has_precision):
    """Learn the errors' covariance, in place; where values are missing one step of EM."""
    D, C, gaps = e.shape[0], past.covariance, 0
    for i in range(D):
        gaps += np.isnan(u[i])
        if C.shape[1] < D:
            if not np.isnan(u[i]):
                C[i, 0] += rate * (e[i] * e[i] - C[i, 0])
            continue
        for j in range(D):
            C[i, j] += rate * (e[i] * e[j] - C[i, j])
    if gaps > 0 and has_precision and C.shape[1] == D:
        add_uncertainty(C, past.precision, u, rate)


@kernel
def add_uncertainty(C, P, u, rate):
    """Add what is not known of the missing values given the observed ones to the covariance, in place: P_mm^-1."""
    missing = np.flatnonzero(np.isnan(u))
    within = np.linalg.inv(P[missing][:, missing])
    for a, i in enumerate(missing):
        for b, j in enumerate(missing):
            C[i, j] += rate * within[a, b]


@inner
def least_squares_step(beta, Q, row, error, gain):
    """One step of recursive least squares, in place: Q is the inverse of the ridge plus the sum of row row'."""
    p, scale = row.shape[0], 1.0
    for i in range(p):
        total = 0.0
        for k in range(p):
            total += Q[i, k] * row[k]
        gain[i] = total
        scale += row[i] * total
    for i in range(p):
        # Sherman-Morrison on the inverse of the Gram matrix; both triangles are set alike, so that it stays symmetric.
        beta[i] += gain[i] / scale * error
        for k in range(i + 1):
            Q[i, k] -= gain[i] * gain[k] / scale
            Q[k, i] = Q[i, k]


@inner
def update_moments(moments, values, rate, logs):
    """Running mean and variance of each of the means, in place."""
    for k in range(values.shape[0]):
        for j in range(values.shape[1]):
            v = np.log(values[k, j] + FLOOR) if logs else values[k, j]
            away = v - moments[0, k, j]
            moments[0, k, j] += rate * away
            # Exponentially weighted variance about the moving mean; with a rate of 1/n it is the plain one.
            moments[1, k, j] = (1.0 - rate) * (moments[1, k, j] + rate * away * away)


@kernel
def refresh_precision(past, n):
    """Inverse of the residual covariance, shrunk to its diagonal by the number of rows; diagonal for wide rows."""
    D = past.mean.shape[0]
    if past.precision.shape[1] < D:
        for i in range(D):
            past.precision[i, 0] = 1.0 / (past.covariance[i, 0] + 1e-9)
        return
    # As in the sample's Gaussian: correlations of few rows are mostly chance.
    keep = n / (n + D + 1.0)
    shrunk = past.covariance * keep
    for i in range(D):
        shrunk[i, i] = past.covariance[i, i] * (1.0 + 1e-6) + 1e-9
    past.precision[:] = np.linalg.inv(shrunk)
