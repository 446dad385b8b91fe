"""Page and Hinkley's test on a stream of numbers, one at a time."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel


class ChangeState(NamedTuple):
    """Values since the last change: their number, mean and scatter about it, and the drop accumulated.

    During the burn-in the two lowest values and the highest one are held back from mean and scatter. So that an array
    of zeros is the start, they count only once there are one, two and three values. After it, their places hold what a
    `Tail` names.
    """

    n: float = 0.0
    mean: float = 0.0
    scatter: float = 0.0
    drop: float = 0.0
    lowest: float = 0.0
    second_lowest: float = 0.0
    highest: float = 0.0


class Tail(NamedTuple):
    """How much farther the accumulated drop of values that do not change goes than that of independent Gaussian ones.

    Sums over the values since the burn-in, with t the standardised value and m the values before it, weighted by
    0.9, 0.81, ...
    """

    recent: float
    """m, for the next value."""
    excess: float
    """Sum of t m - drift t^3 / 3, until the drop was last zero."""
    pending: float
    """The same since then: a drop that becomes a change must not count as what is usual."""


class TestSettings(NamedTuple):
    """The parameters of the test; see `everlearn.monitoring.page_hinkley.PageHinkley`."""

    drift: float
    threshold: float
    min_rows: float
    limit: float


# Two lowest and one highest: log-densities have their long tail on the left.
HELD_BACK = 3.0
# Weight of the value before, of the one before that, ... in the autocovariance: ten values count.
LAG_WEIGHT = 0.9
# Rows over which a drop accumulates. With a mean that is estimated from n rows its variance is larger by this over n.
HORIZON = 30.0
# Largest scale. Values that stay low or high for long, as those of a machine's regimes do, would raise the threshold
# until the test is deaf: a lasting drop is worth more false signals. At this one it is seen within some 25 rows.
MOST_SCALE = 6.0


@inner
def clipped(deviation, std, limit):
    """A deviation of at most `limit` standard deviations."""
    return min(max(deviation, -limit * std), limit * std)


@inner
def end_burn_in(state, limit):
    """Take in the extremes that were held back, clipped: one that is an outlier must not widen the scale."""
    n, mean, scatter = state.n - HELD_BACK, state.mean, state.scatter
    centre, std = mean, np.sqrt(scatter / n)
    for value in (state.lowest, state.second_lowest, state.highest):
        deviation = centre + clipped(value - centre, std, limit) - mean
        n += 1.0
        mean += deviation / n
        scatter += deviation * (deviation - deviation / n)
    return ChangeState(state.n, mean, scatter, 0.0, 0.0, 0.0, 0.0)


@inner
def burn_in(value, state, settings):
    """Take one of the first values: an extreme takes the place of one held back before, which is taken in instead."""
    low = state.lowest if state.n >= 1.0 else np.inf
    next_low = state.second_lowest if state.n >= 2.0 else np.inf
    high = state.highest if state.n >= 3.0 else -np.inf
    n, mean, scatter = state.n + 1.0, state.mean, state.scatter
    # `value` leaves each comparison as the one that is pushed out; infinity stands for a place that was empty.
    if value < low:
        low, next_low, value = value, low, next_low
    elif value < next_low:
        next_low, value = value, next_low
    if value < np.inf and value > high:
        high, value = value, high
    if abs(value) < np.inf:
        deviation = value - mean
        # Welford's update over the values that are not held back, of which there are n - 3 by now.
        mean += deviation / (n - HELD_BACK)
        scatter += deviation * (value - mean)
    next_low, high = next_low if n >= 2.0 else 0.0, high if n >= 3.0 else 0.0
    state = ChangeState(n, mean, scatter, 0.0, low, next_low, high)
    return end_burn_in(state, settings.limit) if n >= settings.min_rows else state


@inner
def scaled_threshold(excess, n, settings):
    """The threshold at which values like these signal as seldom as independent Gaussian ones do.

    The time to a false signal grows as exp(theta h) / (drift theta), with theta the positive root of the cumulant
    generating function of -t - drift (D. Siegmund, Sequential Analysis, 1985, II). To the third cumulant, 2 drift /
    theta is f = v + 2/3 drift skewness, with the long-run variance v = 1 + 2 sum of autocorrelations. Equal times need
    the threshold f (h - log(f) / (2 drift)); without drift a sum of variance f needs sqrt(f) h.
    """
    f = min((1.0 + 2.0 * max(0.0, excess / n)) * (1.0 + HORIZON / n), MOST_SCALE)
    threshold = np.sqrt(f) * settings.threshold
    if settings.drift > 0.0:
        threshold = max(threshold, f * (settings.threshold - np.log(f) / (2.0 * settings.drift)))
    return threshold


@inner
def step(value, state, settings):
    """Take one value; returns the next state and the accumulated drop if it signals a change, else zero.

    The value that signals is not among those from which the test starts again: it may be an outlier, beside which no
    later drop would stand out.
    """
    if state.n < settings.min_rows:
        return burn_in(value, state, settings), 0.0
    tail = Tail(state.lowest, state.second_lowest, state.highest)
    deviation, drop, t = value - state.mean, state.drop, 0.0
    std = np.sqrt(state.scatter / state.n)
    # Constant values so far: there is no unit in which a drop could be measured.
    if std > 0.0:
        deviation = clipped(deviation, std, settings.limit)
        t = deviation / std
        drop = max(0.0, drop - t - settings.drift)
    if drop > scaled_threshold(tail.excess, state.n, settings):
        return ChangeState(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), drop
    excess, pending = tail.excess, tail.pending
    if drop == 0.0:
        excess, pending = excess + pending, 0.0
    pending += t * tail.recent - settings.drift / 3.0 * t**3
    n = state.n + 1.0
    # With the clipped deviation: an outlier moves mean and spread by no more than `limit` standard deviations.
    change = deviation / n
    scatter = state.scatter + deviation * (deviation - change)
    recent = LAG_WEIGHT * tail.recent + t
    return ChangeState(n, state.mean + change, scatter, drop, recent, excess, pending), 0.0


@inner
def step_in_place(value, memory, settings):
    """`step` on a state kept in an array, in the order of its fields; returns the drop that signals, or zero."""
    state = ChangeState(memory[0], memory[1], memory[2], memory[3], memory[4], memory[5], memory[6])
    state, drop = step(value, state, settings)
    for i, number in enumerate(state):
        memory[i] = number
    return drop


@inner
def page_hinkley_step(value, memory, drift, threshold, min_rows, limit):
    """`step_in_place` with the settings one by one; returns whether a change is signalled."""
    return step_in_place(value, memory, TestSettings(drift, threshold, min_rows, limit)) > 0.0


@kernel
def detect(values, memory, settings, drops):
    """Take values in order; writes the drops at those that signal a change, else zero."""
    for t in range(values.shape[0]):
        drops[t] = step_in_place(values[t], memory, settings)
