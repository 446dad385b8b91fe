"""Page and Hinkley's test on a stream of numbers, one at a time, with the statistic of Shiryaev and Roberts."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel


class ChangeState(NamedTuple):
    """What the test knows of the values since the last change. An array of zeros is the start.

    The moments are those of the values that count: all until Page's statistic was last one or less, where a change is
    no more likely than none. Values after it wait, because those of a drop are not what is usual. Moments of second
    order are of deviations from the mean of the values that count, clipped.
    """

    n: float = 0.0
    mean: float = 0.0
    scatter: float = 0.0
    """Sum of squared deviations."""
    lag_1: float = 0.0
    """Sum of deviations times those one value before, since the burn-in; and two before."""
    lag_2: float = 0.0
    shape: float = 0.0
    """Sum of `shape_term` since the burn-in."""
    waiting_n: float = 0.0
    """The same sums of the values that wait."""
    waiting_sum: float = 0.0
    waiting_squares: float = 0.0
    waiting_lag_1: float = 0.0
    waiting_lag_2: float = 0.0
    waiting_shape: float = 0.0
    ratio: float = 0.0
    """Statistic of Shiryaev and Roberts: the likelihood ratios of a change at each value so far, added up."""
    largest: float = 0.0
    """Page's statistic: the largest of these ratios."""
    previous: float = 0.0
    """Deviation of the latest value, and of the one before."""
    before_previous: float = 0.0
    lowest: float = 0.0
    """Values that the burn-in holds back; they count once there are one, two and three values."""
    second_lowest: float = 0.0
    highest: float = 0.0


class TestSettings(NamedTuple):
    """The parameters of the test; see `everlearn.monitoring.page_hinkley.PageHinkley`."""

    drift: float
    threshold: float
    min_rows: float
    limit: float


class Autoregression(NamedTuple):
    """Values as an autoregression of second order, by its partial autocorrelations."""

    first: float
    second: float
    long_run: float
    """Variance of a long sum of values, over that of as many independent ones."""


# Two lowest and one highest: log-densities have their long tail on the left.
HELD_BACK = 3.0
# E(overshoot) of a Gaussian random walk over a high threshold, in its standard deviations (D. Siegmund, Sequential
# Analysis, 1985, section X.2).
OVERSHOOT = 0.583
# The likelihood ratio of a shift by nothing is one: below this drift the ratios would only count the rows.
LEAST_DRIFT = 0.05
# Partial autocorrelations, at most: estimates from few values may reach one, where the values say nothing of a change.
LEAST_CORRELATION, MOST_CORRELATION = -0.6, 0.9
MOST_SECOND_CORRELATION = 0.6
# Standard errors from which the second partial autocorrelation counts: Box and Jenkins' bound of 95 %. Most streams
# have none, and the error of its estimate would be paid for with false signals.
SIGNIFICANT = 2.0
# Values after the burn-in over which the threshold comes down: while mean, spread and correlation were estimated from
# fewer than 100, Gaussian values signalled ten times as often as later, and those correlated by 0.6 forty times.
SETTLING = 200.0
# Limit of values that predict, over that of values that count: a lower one would leave correlation in the innovations.
PREDICTORS = 1.4
# Values of a Gaussian shape that the shape is estimated with: the first ones do not make it.
PRIOR_SHAPE = 20.0


@inner
def clipped(deviation, std, limit):
    """A deviation of at most `limit` standard deviations."""
    return min(max(deviation, -limit * std), limit * std)


@inner
def fresh(n, mean, scatter, lowest, second_lowest, highest):
    """A state with nothing but these: of the burn-in, or at its end."""
    return ChangeState(
        n, mean, scatter, 0.0, 0.0, 0.0,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        0.0, 0.0, 0.0, 0.0, lowest, second_lowest, highest,
    )  # fmt: skip


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
    return fresh(state.n, mean, scatter, 0.0, 0.0, 0.0)


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
    state = fresh(n, mean, scatter, low, next_low, high)
    return end_burn_in(state, settings.limit) if n >= settings.min_rows else state


@inner
def autoregression(state, tested):
    """Durbin and Levinson's recursion on the autocovariances, corrected for their bias of order 1 / n (Kendall)."""
    variance = state.scatter / state.n
    rho_1 = state.lag_1 / (tested * variance)
    rho_1 = min(max(rho_1 + (1.0 + 3.0 * rho_1) / tested, LEAST_CORRELATION), MOST_CORRELATION)
    rho_2 = state.lag_2 / (tested * variance)
    rho_2 += (1.0 + rho_1 + 2.0 * rho_2) / tested
    second = (rho_2 - rho_1 * rho_1) / (1.0 - rho_1 * rho_1)
    second = min(max(second, -MOST_SECOND_CORRELATION), MOST_SECOND_CORRELATION)
    if abs(second) * np.sqrt(tested) < SIGNIFICANT:
        second = 0.0
    return Autoregression(rho_1, second, (1.0 + rho_1) / (1.0 - rho_1) * (1.0 + second) / (1.0 - second))


@inner
def innovation(deviation, state, model, limit):
    """What the two values before do not predict of a value, in standard deviations, clipped.

    The value itself is clipped only here, those before by `PREDICTORS`: values that stay below all that was seen are
    not predicted by each other, so that they are found soon even where usual ones are low for long and high for long.
    """
    std = np.sqrt(state.scatter / state.n * (1.0 - model.first**2) * (1.0 - model.second**2))
    predicted = model.first * (1.0 - model.second) * state.previous + model.second * state.before_previous
    return clipped((deviation - predicted) / std, 1.0, limit)


@inner
def shape_term(ratio, score, size):
    """What a value adds to the moment generating function of innovations beyond that of a Gaussian.

    Its Hermite terms to the second are left out: their means are known, and would only add variance.
    """
    return (ratio - 1.0 + size * score - 0.5 * size**2 * (score**2 - 1.0)) / size**3


@inner
def signalling_ratio(size, tested, model, settings):
    """The ratio that signals.

    R - n is a martingale while nothing changes, so that E(R) at a signal is the mean number of values to it: the
    threshold is that number, less the overshoot. It is the one of Page's test with the same drift and threshold on
    independent Gaussian values (Siegmund, 1985, equation 2.57).
    """
    shift = 2.0 * max(settings.drift, LEAST_DRIFT)
    exponent = shift * (settings.threshold + 2.0 * OVERSHOOT)
    run_length = 2.0 * (np.exp(exponent) - 1.0 - exponent) / shift**2
    # As many independent values say as much of the mean.
    early = (SETTLING / tested) ** 2 * model.long_run
    return run_length * np.exp(-OVERSHOOT * size) * (1.0 + early * early)


@inner
def step(value, state, settings):
    """Take one value; returns the next state and the logarithm of the ratio if it signals a change, else zero.

    The value that signals is not among those from which the test starts again: it may be an outlier, beside which no
    later drop would stand out.
    """
    if state.n < settings.min_rows:
        return burn_in(value, state, settings), 0.0
    n, deviation = state.n + 1.0, value - state.mean
    std = np.sqrt(state.scatter / state.n)
    # Constant values so far: there is no unit in which a drop could be measured.
    if std == 0.0:
        change = deviation / n
        return fresh(n, state.mean + change, deviation * (deviation - change), 0.0, 0.0, 0.0), 0.0
    tested = n - settings.min_rows
    model = autoregression(state, tested)
    score = innovation(deviation, state, model, settings.limit)
    # Clipped: an outlier moves mean and spread by no more than `limit` standard deviations.
    predictor = clipped(deviation, std, PREDICTORS * settings.limit)
    deviation = clipped(deviation, std, settings.limit)
    # A lasting drop of the values by 2 drift is one of the innovations by `size`. Values that alternate would be given
    # a larger one, but its ratios have a mean that is harder to estimate.
    size = 2.0 * max(settings.drift, LEAST_DRIFT) / np.sqrt(max(1.0, model.long_run))
    gaussian = np.exp(-size * (score + 0.5 * size))
    # Divided by its mean while nothing changes, which the martingale needs, whatever the distribution.
    mean_ratio = max(0.2, 1.0 + state.shape / (tested + PRIOR_SHAPE) * size**3)
    ratio = (1.0 + state.ratio) * gaussian / mean_ratio
    # A lower bound first: the threshold has two exponentials, which would cost a third of the time.
    bound = (settings.threshold + 2.0 * OVERSHOOT) ** 2 * max(0.0, 1.0 - OVERSHOOT * size)
    if ratio > bound and ratio > signalling_ratio(size, tested, model, settings):
        return fresh(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), np.log(ratio)
    largest = max(1.0, state.largest) * gaussian / mean_ratio
    waiting = ChangeState(
        state.n, state.mean, state.scatter, state.lag_1, state.lag_2, state.shape,
        state.waiting_n + 1.0,
        state.waiting_sum + deviation,
        state.waiting_squares + deviation * deviation,
        state.waiting_lag_1 + deviation * state.previous,
        state.waiting_lag_2 + deviation * state.before_previous,
        state.waiting_shape + shape_term(gaussian, score, size),
        ratio, largest, predictor, state.previous, 0.0, 0.0, 0.0,
    )  # fmt: skip
    # As many as all before are no excursion: the estimates from those before were wrong.
    if largest <= 1.0 or waiting.waiting_n >= state.n:
        return counted(waiting), 0.0
    return waiting, 0.0


@inner
def counted(state):
    """The values that wait count from now on."""
    n = state.n + state.waiting_n
    change = state.waiting_sum / n
    return ChangeState(
        n,
        state.mean + change,
        state.scatter + state.waiting_squares - state.waiting_sum * change,
        state.lag_1 + state.waiting_lag_1,
        state.lag_2 + state.waiting_lag_2,
        state.shape + state.waiting_shape,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        state.ratio, state.largest, state.previous, state.before_previous, 0.0, 0.0, 0.0,
    )  # fmt: skip


@inner
def step_in_place(value, memory, settings):
    """`step` on a state kept in an array, in the order of its fields; returns the logarithm that signals, or zero."""
    state = ChangeState(
        memory[0], memory[1], memory[2], memory[3], memory[4], memory[5], memory[6], memory[7], memory[8], memory[9],
        memory[10], memory[11], memory[12], memory[13], memory[14], memory[15], memory[16], memory[17], memory[18],
    )  # fmt: skip
    state, statistic = step(value, state, settings)
    for i, number in enumerate(state):
        memory[i] = number
    return statistic


@inner
def page_hinkley_step(value, memory, drift, threshold, min_rows, limit):
    """`step_in_place` with the settings one by one; returns whether a change is signalled."""
    return step_in_place(value, memory, TestSettings(drift, threshold, min_rows, limit)) > 0.0


@kernel
def detect(values, memory, settings, statistics):
    """Take values in order; writes the logarithm of the ratio at those that signal a change, else zero."""
    for t in range(values.shape[0]):
        statistics[t] = step_in_place(values[t], memory, settings)
