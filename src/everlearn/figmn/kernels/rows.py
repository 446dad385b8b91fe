"""The incremental Gaussian mixture, one row at a time.

Every function works in place on the arrays of a `MixtureState` (see `everlearn.figmn.learn`):
`means` (capacity, D), `precisions` (capacity, D, D), `log_dets` of the covariances, `counts` (the
accumulated posteriors sp) and `ages`, of which the first `n` components are in use.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.bounds import LOG_NEGLIGIBLE, measure_near
from everlearn.figmn.kernels.missing import (
    LANE_GAPS,
    fill_gaps,
    make_lanes,
    measure_with_gaps,
    observed_first,
    update_component_with_gaps,
)
from everlearn.figmn.kernels.responsibilities import log_height, measure, normalise, total, weigh
from everlearn.linalg.column_scan import count_observed, has_gaps
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import rank_one_update

DONE = 0  # every row is learned
FULL = 1  # the next row needs a new component and there is no room for it
UNSAFE = 2  # the next row would cost a precision its accuracy: learn it in covariance form
THIN = 3  # a component has become thinner than the floor: widen it before the next row

NEGLIGIBLE = np.exp(LOG_NEGLIGIBLE)  # p (1 + d^2) below this changes no bit of a component
MAX_GAIN = 0.999  # a component that has faded away keeps a thousandth of its shape
FLOOR = 1e-10  # smallest conditional variance of a column, in units of a new component's
UNSAFE_STRETCH = 1e8  # w d^2: an update that divides one eigenvalue of a precision by more than this


class Scratch(NamedTuple):
    """Room for the work on one row."""

    E: Any  # x - mu, (capacity, D)
    G: Any  # Lambda (x - mu)
    d2: Any  # (capacity,), like the next six
    log_joint: Any
    posterior: Any
    touched: Any  # whether the row changed the component
    shrink: Any  # see `everlearn.figmn.kernels.bounds`
    height: Any
    index: Any  # columns, observed first
    L: Any  # see `everlearn.figmn.kernels.missing`, like the next three
    b: Any
    W: Any
    lanes: Any


@inner
def gain(count, p, forgetting):
    """Share w of the new row in a component whose count fades by `forgetting` first."""
    return min(p / (forgetting * count + p), MAX_GAIN)


@inner
def spread_coefficient(w, paper):
    """c in Sigma = (1-w) Sigma + c e e': w(1-w), or the printed w(1 - 3w + w^2) of FIGMN eq. 23."""
    return w * (1.0 - 3.0 * w + w * w) if paper else w * (1.0 - w)


@inner
def is_unsafe(posterior, d2, counts, n, weight, forgetting):
    """Whether some precision would lose too many digits in this update, or has lost them already."""
    for j in range(n):
        if not d2[j] >= 0.0:
            return True
        if gain(counts[j], posterior[j] * weight, forgetting) * d2[j] > UNSAFE_STRETCH:
            return True
    return False


@inner
def update_component(j, means, precisions, E, G, d2, w, c):
    """Sigma = (1-w) (Sigma + c e e'), by Sherman-Morrison on Lambda.

    Returns the growth of log|Sigma|, or NaN when definiteness would be lost.
    """
    D = E.shape[1]
    stretch = 1.0 + c * d2
    growth = np.nan
    if stretch > 0.0:
        root = np.sqrt(abs(c) / stretch)
        for a in range(D):
            G[j, a] *= root
            means[j, a] += w * E[j, a]
        rank_one_update(precisions[j], G[j], 1.0 if c < 0.0 else -1.0, 1.0 / (1.0 - w))
        growth = D * np.log(1.0 - w) + np.log(stretch)
    return growth


@inner
def fade(counts, n, forgetting):
    """Weigh the past less."""
    if forgetting < 1.0:
        for j in range(n):
            counts[j] *= forgetting


@inner
def update(index, observed, weight, means, precisions, log_dets, counts, ages, n, paper, forgetting, scratch):
    """Update every component by its share of one row; returns how many updates were skipped as invalid."""
    D = means.shape[1]
    E, G, d2 = scratch.E, scratch.G, scratch.d2
    skipped = 0
    for j in range(n):
        ages[j] += 1.0
        p = scratch.posterior[j] * weight
        w = gain(counts[j], p, forgetting)
        counts[j] = forgetting * counts[j] + p
        scratch.touched[j] = p * (1.0 + d2[j]) >= NEGLIGIBLE
        if not scratch.touched[j]:
            continue
        c = spread_coefficient(w, paper) / (1.0 - w)
        if observed == D:
            growth = update_component(j, means, precisions, E, G, d2[j], w, c)
        else:
            growth = update_component_with_gaps(
                means[j], precisions[j], index, observed, E[j], G[j], d2[j], w, c, scratch.W, scratch.L
            )
        if np.isnan(growth):
            skipped += 1
        else:
            log_dets[j] += growth
    return skipped


@inner
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


@inner
def remove(k, means, precisions, log_dets, counts, ages, n):
    """Drop component k, keeping the order of the others; precisions are matrices or diagonals."""
    D = means.shape[1]
    for j in range(k, n - 1):
        log_dets[j], counts[j], ages[j] = log_dets[j + 1], counts[j + 1], ages[j + 1]
        for a in range(D):
            means[j, a] = means[j + 1, a]
            if precisions.ndim == 2:
                precisions[j, a] = precisions[j + 1, a]
            else:
                for b in range(D):
                    precisions[j, a, b] = precisions[j + 1, a, b]


@inner
def heaviest(counts, n):
    """The first of the components with the largest count."""
    best = 0
    for j in range(1, n):
        if counts[j] > counts[best]:
            best = j
    return best


@inner
def prune(means, precisions, log_dets, counts, ages, n, min_age, min_count):
    """Remove components older than min_age with less than min_count, the heaviest aside; returns how many are left."""
    kept = heaviest(counts, n)
    for j in range(n - 1, -1, -1):
        if j != kept and ages[j] > min_age and counts[j] < min_count:
            remove(j, means, precisions, log_dets, counts, ages, n)
            n -= 1
    return n


@inner
def is_thin(precision, initial_variance):
    """Whether some column, given the others, has less than the least variance (1/Lambda_aa is that variance)."""
    for a in range(initial_variance.shape[0]):
        if precision[a, a] * initial_variance[a] * FLOOR > 1.0:
            return True
    return False


@inner
def any_thin(precisions, initial_variance, touched, n, everyone):
    """Whether some component that was touched, or just some component, is too thin."""
    for j in range(n):
        if (touched[j] or everyone) and is_thin(precisions[j], initial_variance):
            return True
    return False


@inner
def shrink_bounds(weight, forgetting, posterior, counts, d2, n, shrink, changed):
    """Keep the bounds of a screen valid through the update that is about to be made; marks what it changes."""
    for j in range(n):
        if posterior[j] > 0.0:
            shrink[j] /= 1.0 + gain(counts[j], posterior[j] * weight, forgetting) * d2[j]
            changed[j] = True


@kernel
def make_scratch(capacity, D, gaps):
    """Room for the work on one row; for the work on gaps only if there are some."""
    m = D if gaps else 0
    wide = m + 8  # with room for eight numbers from any column on
    return Scratch(
        np.empty((capacity, D)), np.empty((capacity, D)), np.empty(capacity), np.empty(capacity), np.empty(capacity),
        np.ones(capacity, np.bool_), np.ones(capacity), np.empty(capacity),
        np.empty(m, np.uintp), np.empty((wide, wide)), np.empty(m), np.empty((m + 1, wide)),
        make_lanes(min(m, LANE_GAPS)),
    )  # fmt: skip


@inner
def measure_row(x, weight, observed, lower, means, precisions, log_dets, counts, n, scratch):
    """Distances and log joint densities of one row; returns the smallest distance and how many were evaluated."""
    E, G, d2, log_joint = scratch.E, scratch.G, scratch.d2, scratch.log_joint
    near = n
    if observed < x.shape[0]:
        observed_first(x, scratch.index)
        nearest = measure_with_gaps(
            x, scratch.index, observed, means, precisions, log_dets, counts, n, E, G, d2, log_joint, scratch.L,
            scratch.b, scratch.lanes,
        )  # fmt: skip
    elif lower.shape[0] == 0:
        nearest = measure(x, means, precisions, log_dets, counts, n, E, G, d2, log_joint)
    else:
        nearest, near = measure_near(
            x, weight, lower, scratch.shrink, scratch.height, means, precisions, log_dets, counts, n, E, G, d2,
            log_joint,
        )  # fmt: skip
    return nearest, near


@inner
def learn_loop(
    X, weights, start, stop, means, precisions, log_dets, counts, ages, n, centre, initial_variance, thresholds, paper,
    forgetting, min_age, min_count, log_density, distance, lower, changed, scratch,
):  # fmt: skip
    """Learn rows in order; see `learn_near_rows`."""
    capacity, D = means.shape
    screened = lower.shape[1] > 0
    skipped, evaluations, unchecked = 0, 0, True
    for t in range(start, stop):
        x, weight = X[t], weights[t]
        observed = count_observed(x)
        if observed == 0:
            log_density[t], distance[t] = 0.0, 0.0
            continue
        distance[t], near = measure_row(
            x, weight, observed, lower[t - start if screened else 0], means, precisions, log_dets, counts, n, scratch
        )
        evaluations += near
        log_density[t] = weigh(scratch.log_joint, counts, n, scratch.posterior)
        if distance[t] >= thresholds[observed]:
            if n == capacity:
                return t, n, FULL, skipped, evaluations
            fade(counts, n, forgetting)
            if observed < D:
                for j in range(n):
                    fill_gaps(precisions[j], scratch.index, observed, scratch.E[j], scratch.G[j], scratch.L, scratch.b)
            create(
                x, weight, scratch.posterior, means, precisions, log_dets, counts, ages, n, scratch.E, centre,
                initial_variance,
            )  # fmt: skip
            scratch.height[n] = log_height(counts[n], log_dets[n], D)
            n += 1
            continue
        if is_unsafe(scratch.posterior, scratch.d2, counts, n, weight, forgetting):
            return t, n, UNSAFE, skipped, evaluations
        if screened:
            shrink_bounds(weight, forgetting, scratch.posterior, counts, scratch.d2, n, scratch.shrink, changed)
        skipped += update(
            scratch.index, observed, weight, means, precisions, log_dets, counts, ages, n, paper, forgetting, scratch
        )
        left = n
        if min_age < np.inf:
            left = prune(means, precisions, log_dets, counts, ages, n, min_age, min_count)
        if any_thin(precisions, initial_variance, scratch.touched, left, unchecked or left < n):
            return t + 1, left, THIN, skipped, evaluations
        if screened and left < n:
            for j in range(capacity):
                changed[j] = True
            return t + 1, left, DONE, skipped, evaluations
        n, unchecked = left, False
    return stop, n, DONE, skipped, evaluations


@kernel
def learn_rows(
    X, weights, start, stop, means, precisions, log_dets, counts, ages, n, centre, initial_variance, thresholds, paper,
    forgetting, min_age, min_count, log_density, distance,
):  # fmt: skip
    """Learn rows start..stop of X in order.

    Fills `log_density` (of each row before it was learned; NaN when there was no component) and `distance` (its
    smallest d^2; infinite when there was no component), so that a row is novel where distance >= thresholds[observed].
    Returns (next row, components, status, skipped updates); a status other than DONE leaves the next row untouched for
    the caller.
    """
    scratch = make_scratch(means.shape[0], means.shape[1], has_gaps(X[start:stop]))
    after, n, status, skipped, _ = learn_loop(
        X, weights, start, stop, means, precisions, log_dets, counts, ages, n, centre, initial_variance, thresholds,
        paper, forgetting, min_age, min_count, log_density, distance, np.empty((1, 0)), np.empty(0, np.bool_), scratch,
    )  # fmt: skip
    return after, n, status, skipped


@kernel
def learn_near_rows(
    X, weights, start, stop, means, precisions, log_dets, counts, ages, n, centre, initial_variance, thresholds,
    forgetting, min_age, min_count, log_density, distance, lower, changed,
):  # fmt: skip
    """Learn complete rows in order with the exact update, passing over components that cannot matter to a row.

    lower[t - start, j] bounds 1 + d^2 from below for the first components, one at least. `changed` tells the components
    that the bounds no longer describe; the end of a component ends the run. Returns what `learn_rows` does, with the
    number of distances evaluated in the last place.
    """
    scratch = make_scratch(means.shape[0], means.shape[1], False)
    for j in range(n):
        scratch.height[j] = log_height(counts[j], log_dets[j], means.shape[1])
    after, n, status, _, evaluations = learn_loop(
        X, weights, start, stop, means, precisions, log_dets, counts, ages, n, centre, initial_variance, thresholds,
        False, forgetting, min_age, min_count, log_density, distance, lower, changed, scratch,
    )  # fmt: skip
    return after, n, status, evaluations


@kernel
def ask_rows(X, means, precisions, log_dets, counts, n, log_scale, log_density, distance, posterior):
    """Log-density, smallest d^2 and posteriors of rows under the mixture.

    Densities are those of the data before column a was divided by exp(log_scale[a]); posteriors are written for the
    rows that `posterior` has.
    """
    s = make_scratch(n, means.shape[1], has_gaps(X))
    log_total = np.log(total(counts, n))
    nothing = np.empty(0)
    for t in range(X.shape[0]):
        observed = count_observed(X[t])
        distance[t], _ = measure_row(X[t], 1.0, observed, nothing, means, precisions, log_dets, counts, n, s)
        log_density[t] = normalise(s.log_joint, n, s.posterior) - log_total
        for a in range(X.shape[1]):
            if X[t, a] == X[t, a]:
                log_density[t] -= log_scale[a]
        if t < posterior.shape[0]:
            for j in range(n):
                posterior[t, j] = s.posterior[j]
