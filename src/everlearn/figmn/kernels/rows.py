"""The mixture, one row at a time.

Every function updates the arrays of a `State` (see `everlearn.figmn.state`) in place, of which the first `n` components
are in use: n changes from row to row, so that it stands beside the state. `Rows` holds the rows and what was found of
them, `Settings` the constants of the stream.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.bounds import LOG_NEGLIGIBLE, measure_screened
from everlearn.figmn.kernels.missing import (
    LANE_COLUMNS,
    fill_missing,
    make_lanes,
    measure_missing,
    observed_first,
    update_missing,
)
from everlearn.figmn.kernels.responsibilities import log_height, log_unit, measure_complete, respond
from everlearn.linalg.column_scan import count_observed
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import rank_one_update, softmax, total

DONE = 0  # every row is learned
FULL = 1  # the next row needs a new component and there is no room for it
UNSAFE = 2  # the next row would cost a precision its accuracy: learn it in covariance form
THIN = 3  # a component has become thinner than the floor: widen it before the next row

NEGLIGIBLE = np.exp(LOG_NEGLIGIBLE)  # p (1 + d^2) below this changes no bit of a component
MAX_GAIN = 0.999  # a component that has faded away keeps a thousandth of its shape
HEAVIEST_GAIN = 1.0 - 1e-9  # without forgetting: a row may weigh a thousand million times what was there
FLOOR = 1e-10  # smallest conditional variance of a column, in units of a new component's
UNSAFE_STRETCH = 1e8  # w d^2: an update that divides one eigenvalue of a precision by more than this
IGNORED = 1e-18  # posterior of a component that changes no digit of an expectation


class Scratch(NamedTuple):
    """Room for the work on one row, for C components and D columns; M is D where values may be missing, else zero."""

    E: Any  # (C, D), x - mu
    G: Any  # (C, D), Lambda (x - mu)
    d2: Any  # (C,)
    log_joint: Any  # (C,)
    posterior: Any  # (C,)
    touched: Any  # (C,), whether the row changed the component
    shrink: Any  # (C,), see `everlearn.figmn.kernels.bounds`
    height: Any  # (C,), log joint density at the mean
    index: Any  # (M,), columns, observed first
    L: Any  # (M + 8, M + 8), see `everlearn.figmn.kernels.missing`, like the next three
    b: Any  # (M,)
    W: Any  # (M + 1, M + 8)
    lanes: Any


class Screen(NamedTuple):
    """Bounds for the rows of a run; empty where every component is evaluated."""

    lower: Any  # (rows, components), lower bounds of 1 + d^2; (1, 0) without a screen
    changed: Any  # (C,), the components that the bounds no longer describe


@inner
def gain(count, p, forgetting):
    """Share w of the new row in a component whose count fades by `forgetting` first."""
    return min(p / (forgetting * count + p), MAX_GAIN if forgetting < 1.0 else HEAVIEST_GAIN)


@inner
def spread_coefficient(w, paper):
    """c in Sigma = (1-w) Sigma + c e e': w(1-w), or the printed w(1 - 3w + w^2) of FIGMN eq. 23."""
    return w * (1.0 - 3.0 * w + w * w) if paper else w * (1.0 - w)


@inner
def is_unsafe(weight, state, n, settings, scratch):
    """Whether some precision would lose too many digits in this update, or has lost them already."""
    d2 = scratch.d2
    for j in range(n):
        # Negative or NaN: rounding has cost the precision its definiteness.
        if not d2[j] >= 0.0:
            return True
        if gain(state.counts[j], scratch.posterior[j] * weight, settings.forgetting) * d2[j] > UNSAFE_STRETCH:
            return True
    return False


@inner
def update_complete(j, state, w, c, scratch):
    """Sigma_j = (1-w) (Sigma_j + c e e'), by Sherman-Morrison on Lambda_j.

    Returns the growth of log|Sigma|, or NaN when definiteness would be lost.
    """
    e, g = scratch.E[j], scratch.G[j]
    D = e.shape[0]
    # Sherman-Morrison (eq. 19) on Sigma + c e e', then the factor 1 - w. The root of the coefficient goes into g, so
    # that one symmetric pass over the matrix does it.
    stretch = 1.0 + c * scratch.d2[j]
    growth = np.nan
    if stretch > 0.0:
        root = np.sqrt(abs(c) / stretch)
        for a in range(D):
            g[a] *= root
            state.means[j, a] += w * e[a]
        rank_one_update(state.precisions[j], g, 1.0 if c < 0.0 else -1.0, 1.0 / (1.0 - w))
        # Matrix determinant lemma: |Sigma + c e e'| = |Sigma| (1 + c d^2).
        growth = D * np.log(1.0 - w) + np.log(stretch)
    return growth


@inner
def fade(counts, n, forgetting):
    """Weigh the past less."""
    if forgetting < 1.0:
        for j in range(n):
            counts[j] *= forgetting


@inner
def update(observed, weight, state, n, settings, scratch):
    """Update every component by its share of one row; returns how many updates were skipped as invalid."""
    D = state.means.shape[1]
    counts, forgetting = state.counts, settings.forgetting
    skipped = 0
    for j in range(n):
        state.ages[j] += 1.0
        p = scratch.posterior[j] * weight
        w = gain(counts[j], p, forgetting)
        counts[j] = forgetting * counts[j] + p
        # Age and count change for every component (eq. 4 and 5); mean and precision only where a bit of them would.
        scratch.touched[j] = p * (1.0 + scratch.d2[j]) >= NEGLIGIBLE
        if not scratch.touched[j]:
            continue
        # With 1 - w taken out of both terms of eq. 11 the precision takes one scale and one rank-one term.
        c = spread_coefficient(w, settings.paper) / (1.0 - w)
        if observed == D:
            growth = update_complete(j, state, w, c, scratch)
        else:
            growth = update_missing(j, observed, state, w, c, scratch)
        if np.isnan(growth):
            skipped += 1
        else:
            state.log_dets[j] += growth
    return skipped


@inner
def create(x, weight, state, n, settings, scratch):
    """Create component n at x; missing values take the mixture's conditional mean, or the column's centre.

    Its covariance is the initial one over the weight: count times covariance holds the creation prior once, as if the
    row had come `weight` times.
    """
    D, means, precisions = x.shape[0], state.means, state.precisions
    log_det = 0.0
    for a in range(D):
        value = x[a]
        if np.isnan(value):
            value = settings.centre[a] if n == 0 else 0.0
            for j in range(n):
                value += scratch.posterior[j] * (means[j, a] + scratch.E[j, a])
        means[n, a] = value
        for b in range(D):
            precisions[n, a, b] = 0.0
        precisions[n, a, a] = weight / settings.initial_variance[a]
        log_det += np.log(settings.initial_variance[a] / weight)
    state.log_dets[n] = log_det
    state.counts[n] = weight
    state.ages[n] = 1.0
    scratch.height[n] = log_height(weight, log_det, D)


@inner
def move_precision(precisions, source, target):
    """Copy one precision over another. numba drops the branch that does not fit only if the array is an argument."""
    D = precisions.shape[1]
    if precisions.ndim == 2:
        for a in range(D):
            precisions[target, a] = precisions[source, a]
    else:
        for a in range(D):
            for b in range(D):
                precisions[target, a, b] = precisions[source, a, b]


@inner
def remove(k, state, n):
    """Drop component k, keeping the order of the others."""
    for j in range(k, n - 1):
        state.log_dets[j] = state.log_dets[j + 1]
        state.counts[j] = state.counts[j + 1]
        state.ages[j] = state.ages[j + 1]
        for a in range(state.means.shape[1]):
            state.means[j, a] = state.means[j + 1, a]
        move_precision(state.precisions, j + 1, j)


@inner
def prune(state, n, settings):
    """Remove components older than min_age with less than min_count, the heaviest aside; returns how many are left."""
    counts, heaviest = state.counts, 0
    for j in range(1, n):
        if counts[j] > counts[heaviest]:
            heaviest = j
    # From the last one down: what moves into a freed place has been judged already.
    for j in range(n - 1, -1, -1):
        if j != heaviest and state.ages[j] > settings.min_age and counts[j] < settings.min_count:
            remove(j, state, n)
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
def any_thin(state, n, settings, touched, everyone):
    """Whether some component that was touched, or just some component, is too thin."""
    for j in range(n):
        if (touched[j] or everyone) and is_thin(state.precisions[j], settings.initial_variance):
            return True
    return False


@inner
def shrink_bounds(weight, state, n, settings, scratch, changed):
    """Keep the bounds of a screen valid through the update that is about to be made; marks what it changes."""
    for j in range(n):
        p = scratch.posterior[j]
        if p > 0.0:
            scratch.shrink[j] /= 1.0 + gain(state.counts[j], p * weight, settings.forgetting) * scratch.d2[j]
            changed[j] = True


@kernel
def make_scratch(capacity, D, missing):
    """Room for the work on one row; for the work on missing values only if there are some."""
    m = D if missing else 0
    wide = m + 8  # eight numbers are taken and put from any column on
    return Scratch(
        np.empty((capacity, D)), np.empty((capacity, D)), np.empty(capacity), np.empty(capacity), np.empty(capacity),
        np.ones(capacity, np.bool_), np.ones(capacity), np.empty(capacity),
        np.empty(m, np.uintp), np.empty((wide, wide)), np.empty(m), np.empty((m + 1, wide)),
        make_lanes(min(m, LANE_COLUMNS)),
    )  # fmt: skip


@inner
def measure_row(x, observed, state, n, scratch):
    """Distances and log joint densities of one row to every component; returns the smallest distance."""
    if observed < x.shape[0]:
        observed_first(x, scratch.index)
        nearest = measure_missing(x, observed, state, n, scratch)
    else:
        nearest = measure_complete(x, state, n, scratch)
    return nearest


@inner
def learn_loop(rows, start, stop, state, settings, screen, scratch):
    """Learn rows in order; see `learn_screened_rows`."""
    capacity, D = state.means.shape
    n, screened, missing = state.n_components, screen.lower.shape[1] > 0, scratch.index.shape[0] > 0
    skipped, evaluations, unchecked = 0, 0, True
    for t in range(start, stop):
        x, weight = rows.X[t], rows.weights[t]
        observed = count_observed(x) if missing else D
        if observed == 0:
            rows.log_density[t], rows.distance[t] = 0.0, 0.0
            continue
        if screened:
            nearest, near = measure_screened(x, weight, screen.lower[t - start], state, n, scratch)
        else:
            nearest, near = measure_row(x, observed, state, n, scratch), n
        evaluations += near
        rows.distance[t] = nearest
        rows.log_density[t] = respond(state.counts, n, scratch) - log_unit(x, settings.log_scale)
        # Novel (section 2.2). Without components the distance is infinite, as large as any threshold: the first row
        # creates, which Algorithm 1 forgets. A NaN is not novel; it goes on to the check of safety.
        if nearest >= settings.thresholds[observed]:
            if n == capacity:
                return t, n, FULL, skipped, evaluations
            fade(state.counts, n, settings.forgetting)
            # A new component puts its missing columns at the conditional means, which distances alone did not need.
            if observed < D:
                for j in range(n):
                    fill_missing(state.precisions[j], observed, scratch.E[j], scratch.G[j], scratch)
            create(x, weight, state, n, settings, scratch)
            n += 1
            continue
        # Asked before anything has changed, so that the caller can learn this row in another way.
        if is_unsafe(weight, state, n, settings, scratch):
            return t, n, UNSAFE, skipped, evaluations
        # The factors need gains from the counts before the update.
        if screened:
            shrink_bounds(weight, state, n, settings, scratch, screen.changed)
        skipped += update(observed, weight, state, n, settings, scratch)
        left = prune(state, n, settings) if settings.min_age < np.inf else n
        # Removal moves components to other places, where they have not been checked.
        if any_thin(state, left, settings, scratch.touched, unchecked or left < n):
            return t + 1, left, THIN, skipped, evaluations
        if screened and left < n:
            for j in range(capacity):
                screen.changed[j] = True
            return t + 1, left, DONE, skipped, evaluations
        # The first update has looked at all components, of which nothing was known;
        # from here on those that change are enough.
        n, unchecked = left, False
    return stop, n, DONE, skipped, evaluations


@kernel
def learn_rows(rows, start, stop, missing, state, settings):
    """Learn rows start..stop in order; `missing` is whether values may be.

    Fills `rows.log_density` (of each row before it was learned; NaN when there was no component) and `rows.distance`
    (its smallest d^2; infinite when there was no component), so that a row is novel where
    distance >= thresholds[observed]. Returns (next row, components, status, skipped updates, distances evaluated); a
    status other than DONE leaves the next row untouched for the caller.
    """
    scratch = make_scratch(state.means.shape[0], state.means.shape[1], missing)
    everyone = Screen(np.empty((1, 0)), np.empty(0, np.bool_))
    return learn_loop(rows, start, stop, state, settings, everyone, scratch)


@kernel
def learn_screened_rows(rows, start, stop, state, settings, screen):
    """Learn complete rows in order with the exact update, passing over components that cannot matter to a row.

    screen.lower[t - start, j] bounds 1 + d^2 from below for the first components, one at least. `screen.changed` tells
    the components that the bounds no longer describe; the end of a component ends the run. Returns what `learn_rows`
    does.
    """
    scratch = make_scratch(state.means.shape[0], state.means.shape[1], False)
    for j in range(state.n_components):
        scratch.height[j] = log_height(state.counts[j], state.log_dets[j], state.means.shape[1])
    return learn_loop(rows, start, stop, state, settings, screen, scratch)


@kernel
def score_rows(X, missing, state, log_scale, out):
    """Log-density, smallest d^2 and posteriors of rows under the mixture, into the fields of `out`.

    Densities are those of the data before column a was divided by exp(log_scale[a]); posteriors are written for the
    rows that `out.posterior` has.
    """
    n, D = state.n_components, X.shape[1]
    s = make_scratch(n, D, missing)
    log_total = np.log(total(state.counts, n))
    for t in range(X.shape[0]):
        x = X[t]
        observed = count_observed(x) if missing else D
        out.distance[t] = measure_row(x, observed, state, n, s)
        # Counts stand in for the priors of eq. 12 until their sum is taken off.
        out.log_density[t] = softmax(s.log_joint, n, s.posterior) - log_total - log_unit(x, log_scale)
        if t < out.posterior.shape[0]:
            for j in range(n):
                out.posterior[t, j] = s.posterior[j]


@kernel
def fill_expected(X, state, filled):
    """Rows with conditional means where values are missing; NaN where a precision is not definite."""
    n, D = state.n_components, X.shape[1]
    s = make_scratch(n, D, True)
    for t in range(X.shape[0]):
        x = X[t]
        observed = count_observed(x)
        # E-step on the observed columns only (eq. 14), then eq. 15 component by component.
        measure_row(x, observed, state, n, s)
        softmax(s.log_joint, n, s.posterior)
        for a in range(D):
            filled[t, a] = x[a] if x[a] == x[a] else 0.0
        for j in range(n if observed < D else 0):
            if s.posterior[j] < IGNORED:
                continue
            fill_missing(state.precisions[j], observed, s.E[j], s.G[j], s)
            for i in range(observed, D):
                a = s.index[i]
                filled[t, a] += s.posterior[j] * (state.means[j, a] + s.E[j, a])
