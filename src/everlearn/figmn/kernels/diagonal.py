"""The mixture with diagonal covariances, in O(K D) a row.

The same functions as in `everlearn.figmn.kernels.rows`, with `precisions` (capacity, D). A column that is not observed
keeps its mean and variance: it is independent of the others within a component.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.responsibilities import LOG_2PI, least, log_unit
from everlearn.figmn.kernels.rows import DONE, FLOOR, FULL, NEGLIGIBLE, THIN, fade, gain, prune, spread_coefficient
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import softmax, total


class Scratch(NamedTuple):
    """Room for the work on one row and C components."""

    d2: Any  # (C,)
    log_joint: Any  # (C,)
    posterior: Any  # (C,)


@inner
def measure(x, state, n, scratch):
    """Distances and log joint densities (weights not normalised); returns the number of observed columns."""
    D, means, precisions = x.shape[0], state.means, state.precisions
    observed = 0
    for a in range(D):
        if not np.isnan(x[a]):
            observed += 1
    for j in range(n):
        d2, log_precision = 0.0, 0.0
        for a in range(D):
            # The determinant is that of the observed columns, which differ from
            # row to row: state.log_dets would not do.
            if not np.isnan(x[a]):
                e = x[a] - means[j, a]
                d2 += e * e * precisions[j, a]
                log_precision += np.log(precisions[j, a])
        scratch.d2[j] = d2
        scratch.log_joint[j] = np.log(state.counts[j]) - 0.5 * (d2 - log_precision + observed * LOG_2PI)
    return observed


@inner
def update_component(x, mean, precision, w, paper):
    """Sigma_aa = (1-w) Sigma_aa + c e_a^2 where observed; returns the growth of log|Sigma|, NaN if invalid."""
    c = spread_coefficient(w, paper)
    growth = 0.0
    # Looked at before any column is changed: a component takes a row in all columns or in none.
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


@inner
def create(x, weight, state, n, settings, posterior):
    """Create component n at x; missing values take the mixture's mean given the row, or the column's centre."""
    log_det = 0.0
    for a in range(x.shape[0]):
        value = x[a]
        if np.isnan(value):
            value = settings.centre[a] if n == 0 else 0.0
            for j in range(n):
                value += posterior[j] * state.means[j, a]
        state.means[n, a] = value
        state.precisions[n, a] = weight / settings.initial_variance[a]
        log_det += np.log(settings.initial_variance[a] / weight)
    state.log_dets[n] = log_det
    state.counts[n] = weight
    state.ages[n] = 1.0


@inner
def is_thin(precision, initial_variance):
    """Whether some column has less than the least variance."""
    for a in range(initial_variance.shape[0]):
        if precision[a] * initial_variance[a] * FLOOR > 1.0:
            return True
    return False


@inner
def update(x, weight, state, n, settings, scratch):
    """Update every component by its share of one row; returns how many updates were skipped as invalid."""
    counts, forgetting = state.counts, settings.forgetting
    skipped = 0
    for j in range(n):
        state.ages[j] += 1.0
        p = scratch.posterior[j] * weight
        w = gain(counts[j], p, forgetting)
        counts[j] = forgetting * counts[j] + p
        if p * (1.0 + scratch.d2[j]) < NEGLIGIBLE:
            continue
        growth = update_component(x, state.means[j], state.precisions[j], w, settings.paper)
        if np.isnan(growth):
            skipped += 1
        else:
            state.log_dets[j] += growth
    return skipped


@kernel
def learn_rows(rows, start, stop, missing, state, settings):
    """Learn rows start..stop in order; see `everlearn.figmn.kernels.rows.learn_rows`."""
    capacity, n = state.means.shape[0], state.n_components
    scratch = Scratch(np.empty(capacity), np.empty(capacity), np.empty(capacity))
    skipped, evaluations = 0, 0
    for t in range(start, stop):
        x, weight = rows.X[t], rows.weights[t]
        observed = measure(x, state, n, scratch)
        if observed == 0:
            rows.log_density[t], rows.distance[t] = 0.0, 0.0
            continue
        evaluations += n
        density = np.nan
        if n > 0:
            density = softmax(scratch.log_joint, n, scratch.posterior) - np.log(total(state.counts, n))
        rows.log_density[t], rows.distance[t] = density - log_unit(x, settings.log_scale), least(scratch.d2, n)
        if rows.distance[t] >= settings.thresholds[observed]:
            if n == capacity:
                return t, n, FULL, skipped, evaluations
            fade(state.counts, n, settings.forgetting)
            create(x, weight, state, n, settings, scratch.posterior)
            n += 1
            continue
        skipped += update(x, weight, state, n, settings, scratch)
        if settings.min_age < np.inf:
            n = prune(state, n, settings)
        for j in range(n):
            if is_thin(state.precisions[j], settings.initial_variance):
                return t + 1, n, THIN, skipped, evaluations
    return stop, n, DONE, skipped, evaluations


@kernel
def score_rows(X, missing, state, log_scale, out):
    """Log-density, smallest d^2 and posteriors of rows; see `everlearn.figmn.kernels.rows.score_rows`."""
    n = state.n_components
    scratch = Scratch(np.empty(n), np.empty(n), np.empty(n))
    log_total = np.log(total(state.counts, n))
    for t in range(X.shape[0]):
        x = X[t]
        measure(x, state, n, scratch)
        log_density = softmax(scratch.log_joint, n, scratch.posterior) - log_total
        out.log_density[t], out.distance[t] = log_density - log_unit(x, log_scale), least(scratch.d2, n)
        if t < out.posterior.shape[0]:
            for j in range(n):
                out.posterior[t, j] = scratch.posterior[j]
