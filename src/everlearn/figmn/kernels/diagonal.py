"""The incremental Gaussian mixture with diagonal covariances, in O(K D) a row.

The same functions as in `everlearn.figmn.kernels.rows`, with `precisions` (capacity, D). A column that is not observed
keeps its mean and variance: it is independent of the others within a component.
"""

import numpy as np

from everlearn.figmn.kernels.responsibilities import LOG_2PI, normalise
from everlearn.figmn.kernels.rows import (
    DONE,
    FLOOR,
    FULL,
    NEGLIGIBLE,
    THIN,
    fade,
    gain,
    prune,
    spread_coefficient,
)
from everlearn.linalg.compile import kernel


@kernel
def measure(x, means, precisions, counts, n, d2, log_joint):
    """Distances and log joint densities (weights not normalised); returns the number of observed columns."""
    D = x.shape[0]
    observed = 0
    for a in range(D):
        if not np.isnan(x[a]):
            observed += 1
    for j in range(n):
        d2[j] = 0.0
        log_precision = 0.0
        for a in range(D):
            if not np.isnan(x[a]):
                e = x[a] - means[j, a]
                d2[j] += e * e * precisions[j, a]
                log_precision += np.log(precisions[j, a])
        log_joint[j] = np.log(counts[j]) - 0.5 * (d2[j] - log_precision + observed * LOG_2PI)
    return observed


@kernel
def update_component(x, mean, precision, w, paper):
    """Sigma_aa = (1-w) Sigma_aa + c e_a^2 where observed; returns the growth of log|Sigma|, NaN if invalid."""
    c = spread_coefficient(w, paper)
    growth = 0.0
    if paper and c < 0.0:
        for a in range(x.shape[0]):
            e = x[a] - mean[a]
            if not np.isnan(e) and 1.0 - w + c * e * e * precision[a] <= 0.0:
                return np.nan
    for a in range(x.shape[0]):
        if not np.isnan(x[a]):
            e = x[a] - mean[a]
            stretch = 1.0 - w + c * e * e * precision[a]
            precision[a] /= stretch
            growth += np.log(stretch)
            mean[a] += w * e
    return growth


@kernel
def create(x, weight, posterior, means, precisions, log_dets, counts, ages, n, centre, initial_variance):
    """Open component n at x; gaps take the mixture's mean given the row, or the column's centre."""
    log_det = 0.0
    for a in range(x.shape[0]):
        value = x[a]
        if np.isnan(value):
            value = centre[a] if n == 0 else 0.0
            for j in range(n):
                value += posterior[j] * means[j, a]
        means[n, a] = value
        precisions[n, a] = 1.0 / initial_variance[a]
        log_det += np.log(initial_variance[a])
    log_dets[n] = log_det
    counts[n] = weight
    ages[n] = 1.0


@kernel
def is_thin(precision, initial_variance):
    """Whether some column has less than the least variance."""
    for a in range(initial_variance.shape[0]):
        if precision[a] * initial_variance[a] * FLOOR > 1.0:
            return True
    return False


@kernel
def update(x, weight, posterior, means, precisions, log_dets, counts, ages, n, d2, paper, forgetting):
    """Update every component by its share of one row; returns how many updates were skipped as invalid."""
    skipped = 0
    for j in range(n):
        ages[j] += 1.0
        p = posterior[j] * weight
        w = gain(counts[j], p, forgetting)
        counts[j] = forgetting * counts[j] + p
        if p * (1.0 + d2[j]) < NEGLIGIBLE:
            continue
        growth = update_component(x, means[j], precisions[j], w, paper)
        if np.isnan(growth):
            skipped += 1
        else:
            log_dets[j] += growth
    return skipped


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
    """Learn rows start..stop of X in order; see `everlearn.figmn.kernels.rows.learn_rows`."""
    capacity = means.shape[0]
    d2 = np.empty(capacity)
    log_joint = np.empty(capacity)
    posterior = np.empty(capacity)
    skipped = 0
    for t in range(start, stop):
        x = X[t]
        observed = measure(x, means, precisions, counts, n, d2, log_joint)
        if observed == 0:
            log_density[t] = 0.0
            distance[t] = 0.0
            continue
        log_density[t] = normalise(log_joint, n, posterior) - np.log(np.sum(counts[:n])) if n > 0 else np.nan
        distance[t] = np.min(d2[:n]) if n > 0 else np.inf
        if distance[t] >= thresholds[observed]:
            if n == capacity:
                return t, n, FULL, skipped
            fade(counts, n, forgetting)
            create(x, weights[t], posterior, means, precisions, log_dets, counts, ages, n, centre, initial_variance)
            n += 1
            continue
        skipped += update(x, weights[t], posterior, means, precisions, log_dets, counts, ages, n, d2, paper, forgetting)
        if min_age < np.inf:
            n = prune(means, precisions, log_dets, counts, ages, n, min_age, min_count)
        for j in range(n):
            if is_thin(precisions[j], initial_variance):
                return t + 1, n, THIN, skipped
    return stop, n, DONE, skipped


@kernel
def ask_rows(X, means, precisions, log_dets, counts, n, log_scale, log_density, distance, posterior):
    """Log-density, smallest d^2 and posteriors of rows; see `everlearn.figmn.kernels.rows.ask_rows`."""
    d2 = np.empty(n)
    log_joint = np.empty(n)
    p = np.empty(n)
    log_total = np.log(np.sum(counts[:n]))
    for t in range(X.shape[0]):
        measure(X[t], means, precisions, counts, n, d2, log_joint)
        log_density[t] = normalise(log_joint, n, p) - log_total
        distance[t] = np.min(d2)
        for a in range(X.shape[1]):
            if not np.isnan(X[t, a]):
                log_density[t] -= log_scale[a]
        if t < posterior.shape[0]:
            posterior[t] = p
