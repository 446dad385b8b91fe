"""Statistics of rows that have been learned, as the present model would give them if it had not seen the row."""

import numpy as np

from everlearn.anomaly.kernels.density import (
    LOG_2PI,
    along_factor,
    complete_square,
    is_low_rank,
    log_chi2_tail,
    partial_square,
    standardise,
)
from everlearn.anomaly.kernels.memory import fit_tail, remember
from everlearn.anomaly.kernels.past import advance, predictability
from everlearn.anomaly.kernels.rows import (
    ALWAYS_REMEMBERED,
    any_observed,
    as_usual_as_others,
    combined_score,
    judge_tails,
    next_recent,
    part_of,
    statistics_of,
    with_rows_before,
)
from everlearn.anomaly.kernels.sample import column_rarity, distances_to_mass
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_vector
from everlearn.linalg.handle import lent

LEAST_LEFT = 0.05  # share of a component's spread that must stay without the row: below it the row is the component


@inner
def factor_square(density, k, m, e):
    """|E[factors | row]|^2 of a row about the mean of low-rank component k; of one with gaps, its expectation."""
    Q, total = density.precisions.shape[1], 0.0
    if m < e.shape[0]:
        return float(Q)
    # E[factors | row] = L^-T v.
    for a in range(Q):
        latent = 0.0
        for q in range(a, Q):
            latent += density.precisions[k, q, a] * along_factor(density, k, q, e)
        total += latent * latent
    return total


@kernel
def left_out_atypicality(x, density, rows, scratch):
    """`atypicality` of a learned row under components without it, to which it belongs by its responsibilities r_k.

    A Gaussian of n rows that loses one at the squared Mahalanobis distance d^2 has it at n / (n - 1) d^2 / (1 - d^2 /
    (n - 1)) afterwards (rank-one downdate of mean and covariance); here n is n_k = w_k rows, and r_k of the row goes.
    A component that is the row alone is gone without it. Where none is left, the row keeps its plain value. Of a
    low-rank component a row draws the mean and the directions towards itself, not all D columns: with the leverage
    h = (1 + |factors|^2) / n its deviation is 1 / (1 - h) times as large without it.
    """
    D, K, z = x.shape[0], density.heights.shape[0], scratch.z
    m = standardise(x, density, scratch)
    if K == 0 or m == 0:
        return np.nan
    squares, joint, drawn = np.empty(K), np.empty(K), np.zeros(K)
    low_rank = is_low_rank(density)
    for k in range(K):
        if m == D:
            squares[k] = complete_square(density, k, z, scratch.e)
            if low_rank:
                drawn[k] = 1.0 + factor_square(density, k, m, scratch.e)
            joint[k] = density.heights[k] - 0.5 * squares[k]
        else:
            squares[k], log_det = partial_square(density, k, z, scratch.places[:m], scratch)
            joint[k] = density.log_weights[k] - 0.5 * (m * LOG_2PI + log_det + squares[k])
            if low_rank:
                drawn[k] = 1.0 + factor_square(density, k, m, scratch.e)
    r = np.exp(joint - joint.max())
    r /= r.sum()
    with_row, without = np.full(K - 1, -np.inf), np.full(K - 1, -np.inf)
    for k in range(K - 1):
        with_row[k] = density.log_weights[k] + log_chi2_tail(squares[k], m)
        n = np.exp(density.log_weights[k]) * rows
        # What remains of the component; its share of all rows without this one is its weight.
        left = n - r[k]
        spread = 1.0 - r[k] * (drawn[k] if low_rank else squares[k]) / left if left > 0.0 else 0.0
        if spread > LEAST_LEFT:
            square = squares[k] / spread**2 if low_rank else squares[k] * n / left / spread
            without[k] = np.log(left / max(rows - 1.0, 1.0)) + log_chi2_tail(square, m)
    parts = without if without.max() > -np.inf else with_row
    return -parts.max() - np.log(np.exp(parts - parts.max()).sum())


@inner
def rescore_static(X, handle, out):
    """Statistics of rows that do not depend on the rows before, into the first four columns of `out`."""
    state, _, scratch = lent(handle)
    for t in range(len(X)):
        out[t, 0] = left_out_atypicality(X[t], state.density, float(state.clock.learned[0]), scratch)
        out[t, 1] = column_rarity(X[t], state.sample)
        if not np.isnan(out[t, 1]):
            out[t, 2], out[t, 3] = distances_to_mass(X[t], state.sample, scratch)


@kernel
def rescore_sample(handle, statistics):
    """Score the sample's first rows as the present model does, for `as_usual_as_others`; `statistics` is room for them.

    The first places of a reservoir hold old rows longer than others. Rows that have been known for long say more of
    what is usual: with every third place in their stead a fault that lasts is sooner as usual as they are, and the
    average precision on NAB is smaller by 0.01 to 0.02 (benchmarks/anomaly.py).
    """
    state, _, _ = handle.content
    size, among = min(state.sample.size[0], statistics.shape[0]), state.among
    rescore_static(state.sample.rows[:size], handle, statistics)
    for i in range(among.size.shape[0]):
        # NaN, of rows that say nothing, come last.
        among.ordered[i, :size] = np.sort(statistics[:size, i])
        among.size[i] = size - np.count_nonzero(np.isnan(statistics[:size, i]))


@inner
def rescore_stream(X, handle, out):
    """All statistics of rows in their order, into `out`; clock and past of the state move on, in place."""
    state, settings, scratch = lent(handle)
    rescore_static(X, handle, out)
    for t in range(len(X)):
        if any_observed(X[t]):
            statistics_of(X[t], state, settings, scratch)
            copy_vector(scratch.statistics[4:], out[t, 4:])
        else:
            out[t] = np.nan
        advance(X[t], state.past, state.season, state.clock, scratch)
        state.clock.rows[0] += 1
        state.clock.predicted[0] += 1


@kernel
def refill(memory, statistics, numbers, strides):
    """Forget what a memory holds and remember these statistics, by the numbers of their rows; in place."""
    for i in range(statistics.shape[1]):
        memory.size[i], memory.head[i], memory.since[i] = 0, 0, 0
        for t in range(len(statistics)):
            if numbers[t] % strides[i] == 0 and not np.isnan(statistics[t, i]):
                remember(memory, i, statistics[t, i])
        # Once more at the end: the last values may have come since the last fit.
        fit_tail(memory, i)


@inner
def remember_released(statistics, numbers, handle):
    """Remember the statistics of rows that were held back, in place; the slowest ones were remembered at once."""
    state, settings, _ = lent(handle)
    strides = settings.strides
    for t in range(len(statistics)):
        for i in range(statistics.shape[1]):
            due = strides[i] < ALWAYS_REMEMBERED and numbers[t] % strides[i] == 0
            if due and not np.isnan(statistics[t, i]):
                remember(state.memory, i, statistics[t, i])


@inner
def add_rows_before(scores, handle):
    """Scores of rows in their order, each with those of the rows before it, in place; the mean moves on with them."""
    state, settings, _ = lent(handle)
    gate = predictability(state.past, state.clock)
    state.recent[0] = 0.0
    for t in range(len(scores)):
        own = scores[t, 0]
        scores[t, 0] = with_rows_before(own, gate, state.recent[0], settings)
        state.recent[0] = next_recent(state.recent[0], own, settings)


@inner
def combine(statistics, handle, out):
    """Combined score of each row of statistics, by their ranks in the memory as it is."""
    state, settings, scratch = lent(handle)
    gate = predictability(state.past, state.clock)
    for t in range(len(statistics)):
        for i in range(statistics.shape[1]):
            scratch.parts[i] = part_of(statistics[t, i], state.memory, i)
        judge_tails(scratch.parts, statistics[t], state.memory, gate, settings)
        as_usual_as_others(scratch.parts, statistics[t], state.among)
        out[t, 0] = combined_score(scratch.parts, state.memory.heaviness, gate, settings, scratch.sums)
