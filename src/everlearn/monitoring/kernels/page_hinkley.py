"""Page and Hinkley's test on a stream of numbers, one at a time, with the statistic of Shiryaev and Roberts."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel


class ChangeState(NamedTuple):
    """What the test knows of the values since the last change. An array of zeros is the start.

    The sums are those of the values that count: all until Page's statistic was last one or less, where a change is
    no more likely than none. Values after it wait, because those of a drop are not what is usual. Sums of second order
    are of deviations from the mean of the values that count, clipped.
    """

    n: float = 0.0
    mean: float = 0.0
    scatter: float = 0.0
    """Sum of squared deviations."""
    lag_0: float = 0.0
    """Sums of deviations times those none to six values before as they predict, since the burn-in."""
    lag_1: float = 0.0
    lag_2: float = 0.0
    lag_3: float = 0.0
    lag_4: float = 0.0
    lag_5: float = 0.0
    lag_6: float = 0.0
    shape: float = 0.0
    """Sum of `shape_term` since the burn-in."""
    power: float = 0.0
    """Sum of squared innovations, before their local variance is divided out."""
    excess: float = 0.0
    """Sum of squares of y, the square of an innovation over their mean, less one; `LocalVariance` predicts it."""
    recent_cross: float = 0.0
    """Sums of y times the mean of recent squares, and of squares of the latter."""
    recent_square: float = 0.0
    level_cross: float = 0.0
    """Sums of y times the predicted value, and of squares of the latter."""
    level_square: float = 0.0
    waiting_n: float = 0.0
    """The same sums of the values that wait, in the same order."""
    waiting_sum: float = 0.0
    waiting_squares: float = 0.0
    waiting_lag_0: float = 0.0
    waiting_lag_1: float = 0.0
    waiting_lag_2: float = 0.0
    waiting_lag_3: float = 0.0
    waiting_lag_4: float = 0.0
    waiting_lag_5: float = 0.0
    waiting_lag_6: float = 0.0
    waiting_shape: float = 0.0
    waiting_power: float = 0.0
    waiting_excess: float = 0.0
    waiting_recent_cross: float = 0.0
    waiting_recent_square: float = 0.0
    waiting_level_cross: float = 0.0
    waiting_level_square: float = 0.0
    coefficient_1: float = 0.0
    """The filter that whitens: coefficients of the six values before, made from the sums of the values that count."""
    coefficient_2: float = 0.0
    coefficient_3: float = 0.0
    coefficient_4: float = 0.0
    coefficient_5: float = 0.0
    coefficient_6: float = 0.0
    correlation_1: float = 0.0
    """Autocorrelations of values for which that filter is the best."""
    correlation_2: float = 0.0
    correlation_3: float = 0.0
    correlation_4: float = 0.0
    correlation_5: float = 0.0
    correlation_6: float = 0.0
    innovation_variance: float = 0.0
    """Variance of innovations over that of values."""
    long_run: float = 0.0
    """Variance of a long sum of values, over that of as many independent ones."""
    order: float = 0.0
    """Coefficients in use, beyond the first: a shrunk one counts by the factor that is left of it."""
    previous_1: float = 0.0
    """Deviations of the latest six values."""
    previous_2: float = 0.0
    previous_3: float = 0.0
    previous_4: float = 0.0
    previous_5: float = 0.0
    previous_6: float = 0.0
    recent: float = 0.0
    """Exponentially weighted mean of squared innovations."""
    ratio: float = 0.0
    """Statistic of Shiryaev and Roberts: the likelihood ratios of a change at each value so far, added up."""
    largest: float = 0.0
    """Page's statistic: the largest of these ratios."""
    lowest: float = 0.0
    """Values that the burn-in holds back; they count once there are one, two and three values."""
    second_lowest: float = 0.0
    highest: float = 0.0


# Places in the array.
N, MEAN, SCATTER, LAG, SHAPE, POWER, EXCESS, RECENT_CROSS, RECENT_SQUARE, LEVEL_CROSS, LEVEL_SQUARE = map(
    ChangeState._fields.index,
    ("n", "mean", "scatter", "lag_0", "shape", "power", "excess", "recent_cross", "recent_square", "level_cross",
     "level_square"),
)  # fmt: skip
WAITING, COEFFICIENT, CORRELATION, VARIANCE, LONG_RUN, ORDER_USED, PREVIOUS, RECENT, RATIO, LARGEST, HELD = map(
    ChangeState._fields.index,
    ("waiting_n", "coefficient_1", "correlation_1", "innovation_variance", "long_run", "order", "previous_1", "recent",
     "ratio", "largest", "lowest"),
)  # fmt: skip
NUMBERS = len(ChangeState._fields)


class TestSettings(NamedTuple):
    """The parameters of the test; see `everlearn.monitoring.page_hinkley.PageHinkley`."""

    drift: float
    threshold: float
    min_rows: float
    limit: float


class LocalVariance(NamedTuple):
    """Variance of the next innovation over that of all, and how many of its two predictors are in use."""

    value: float
    in_use: float


# Two lowest and one highest: log-densities have their long tail on the left.
HELD_BACK = 3.0
# E(overshoot) of a Gaussian random walk over a high threshold, in its standard deviations (D. Siegmund, Sequential
# Analysis, 1985, section X.2).
OVERSHOOT = 0.583
# The likelihood ratio of a shift by nothing is one: below this drift the ratios would only count the rows.
LEAST_DRIFT = 0.05
# Values before that whiten. Moving averages and slow components in noise need many; six leave little of them.
ORDER = 6
# Reflection coefficients (partial autocorrelations), at most: estimates from few values may reach one, where the
# values say nothing of a change.
LEAST_CORRELATION, MOST_CORRELATION = -0.6, 0.9
MOST_LATER_CORRELATION = 0.6
# Long-run variance over that of a value, at most; correlated by 0.9 it is 19. A machine that keeps a regime for long
# has a larger one, and would be made deaf by it.
MOST_LONG_RUN = 25.0
# Squared standard errors below which a reflection coefficient counts as zero. The second decides whether there is more
# than an autoregression of first order, as most streams are: an error there would be paid for with delay. Where there
# is more, later ones are small, all of one kind, and what is left out would be paid for with false signals.
FIRST_NOISE, SECOND_NOISE, LATER_NOISE = 1.5, 4.0, 0.5
# The same for the two predictors of the local variance.
VARIANCE_NOISE = 6.0
# Values after the burn-in before which it is not used, and of which it is short later: the log-densities of a model
# that has just begun to learn are wild at first, which is no sign that they will be again.
VARIANCE_ROWS = 300.0
# Weight of the latest square in the mean of recent ones.
RECENT_WEIGHT = 0.12
# Local variance over that of all, at most. One below that of all is not used: innovations that are small and of one
# sign, as before a false signal of slow values, would be made larger by it.
MOST_VARIANCE = 4.0
# Log of the threshold that each coefficient in use adds, times the number of values, over half the square of that log:
# the error of one coefficient has the variance 1 / n, and moves the log of the long-run variance by twice itself.
PRICE = 6.0
# Values after the burn-in over which the threshold comes down: while mean, spread and correlation were estimated from
# fewer than 100, Gaussian values signalled ten times as often as later, and those correlated by 0.6 forty times.
SETTLING = 200.0
# Limit of values that predict, over that of values that count: a lower one would leave correlation in the innovations.
PREDICTORS = 1.4
# The least sum of squares that is divided by: values may stay where the mean is.
TINY = 1e-300
# Values of a Gaussian shape that shape and power are estimated with: the first ones do not make them.
PRIOR_ROWS = 20.0


@inner
def clipped(deviation, std, limit):
    """A deviation of at most `limit` standard deviations."""
    return min(max(deviation, -limit * std), limit * std)


@inner
def shrinkage(squared_error_units, noise):
    """Factor of an estimate whose square is so many squared standard errors: zero up to `noise`, one far above.

    The square leaves estimates that are clear nearly as they are, where the positive part of James and Stein's factor
    would still take a tenth at ten times the noise.
    """
    if squared_error_units <= noise:
        return 0.0
    share = noise / squared_error_units
    return 1.0 - share * share


@inner
def restart(memory, n, mean, scatter):
    """Forget all but these: the start, or the end of the burn-in."""
    memory[:] = 0.0
    memory[N], memory[MEAN], memory[SCATTER] = n, mean, scatter
    memory[VARIANCE] = memory[LONG_RUN] = memory[RECENT] = 1.0


@inner
def end_burn_in(memory, limit):
    """Take in the extremes that were held back, clipped: one that is an outlier must not widen the scale."""
    n, mean, scatter = memory[N] - HELD_BACK, memory[MEAN], memory[SCATTER]
    centre, std = mean, np.sqrt(scatter / n)
    for i in range(3):
        deviation = centre + clipped(memory[HELD + i] - centre, std, limit) - mean
        n += 1.0
        mean += deviation / n
        scatter += deviation * (deviation - deviation / n)
    restart(memory, n, mean, scatter)


@inner
def burn_in(value, memory, settings):
    """Take one of the first values: an extreme takes the place of one held back before, which is taken in instead."""
    low = memory[HELD] if memory[N] >= 1.0 else np.inf
    next_low = memory[HELD + 1] if memory[N] >= 2.0 else np.inf
    high = memory[HELD + 2] if memory[N] >= 3.0 else -np.inf
    memory[N] += 1.0
    # `value` leaves each comparison as the one that is pushed out; infinity stands for a place that was empty.
    if value < low:
        low, next_low, value = value, low, next_low
    elif value < next_low:
        next_low, value = value, next_low
    if value < np.inf and value > high:
        high, value = value, high
    if abs(value) < np.inf:
        deviation = value - memory[MEAN]
        # Welford's update over the values that are not held back, of which there are n - 3 by now.
        memory[MEAN] += deviation / (memory[N] - HELD_BACK)
        memory[SCATTER] += deviation * (value - memory[MEAN])
    memory[HELD] = low
    memory[HELD + 1] = next_low if memory[N] >= 2.0 else 0.0
    memory[HELD + 2] = high if memory[N] >= 3.0 else 0.0
    if memory[N] >= settings.min_rows:
        end_burn_in(memory, settings.limit)


@inner
def estimate_filter(memory, tested):
    """Make the whitening filter from the sums: Durbin and Levinson's recursion, with shrunk reflection coefficients.

    The first that counts as zero ends it: those of an autoregression are zero from its order on. Autocorrelations are
    corrected for their bias of order 1 / n (M. G. Kendall, 1954).
    """
    # Not by the scatter, which is clipped more: correlations would come out larger by a twentieth.
    scale = 1.0 / max(memory[LAG], TINY)
    first = memory[LAG + 1] * scale
    variance, long_run, used, factor = 1.0, 1.0, 0.0, 1.0
    for k in range(ORDER):
        memory[COEFFICIENT + k] = 0.0
    for k in range(ORDER):
        rho = memory[LAG + 1 + k] * scale
        rho += (1.0 + first + 2.0 * rho) / tested
        for i in range(k):
            rho -= memory[COEFFICIENT + i] * memory[CORRELATION + k - 1 - i]
        # A partial autocorrelation: what is left of `rho`, over the variance that is left.
        limit = MOST_CORRELATION if k == 0 else MOST_LATER_CORRELATION
        reflection = min(max(rho / variance, LEAST_CORRELATION), limit)
        noise = FIRST_NOISE if k == 0 else (SECOND_NOISE if k == 1 else LATER_NOISE)
        factor *= shrinkage(reflection * reflection * tested, noise)
        if factor == 0.0:
            break
        reflection *= factor
        add_stage(memory, k, reflection, variance)
        variance *= 1.0 - reflection * reflection
        long_run *= (1.0 + reflection) / (1.0 - reflection)
        used += factor if k > 0 else 0.0
    memory[VARIANCE], memory[LONG_RUN], memory[ORDER_USED] = variance, min(long_run, MOST_LONG_RUN), used


@inner
def add_stage(memory, k, reflection, variance):
    """Add stage k to the filter, and the correlation that it stands for: one step of Levinson's recursion, in place."""
    correlation = reflection * variance
    for i in range(k):
        correlation += memory[COEFFICIENT + i] * memory[CORRELATION + k - 1 - i]
    memory[CORRELATION + k] = correlation
    for i in range((k + 1) // 2):
        one, other = memory[COEFFICIENT + i], memory[COEFFICIENT + k - 1 - i]
        memory[COEFFICIENT + i] = one - reflection * other
        memory[COEFFICIENT + k - 1 - i] = other - reflection * one
    memory[COEFFICIENT + k] = reflection


@inner
def predicted_deviation(memory):
    """The deviation of the next value that the filter predicts.

    The value itself is clipped only with its innovation, those before by `PREDICTORS`: values that stay below all that
    was seen are not predicted by each other, so that they are found soon even where usual ones are low for long and
    high for long.
    """
    prediction = 0.0
    for i in range(ORDER):
        prediction += memory[COEFFICIENT + i] * memory[PREVIOUS + i]
    return prediction


@inner
def local_variance(memory, rows, power, level):
    """Variance of the next innovation, over that of all: large after large ones, and where low values are predicted.

    The first is autoregressive conditional heteroscedasticity (T. Bollerslev, 1986), the second holds for
    log-densities, which spread the farther the lower they are. Each is a regression of the squares on what predicts
    them, shrunk as the reflection coefficients are.
    """
    value, in_use, trust = 1.0, 0.0, max(0.0, 1.0 - VARIANCE_ROWS / max(rows, 1.0))
    noise = VARIANCE_NOISE * max(memory[EXCESS] / max(rows, 1.0), 0.5)
    cross, square = memory[RECENT_CROSS], memory[RECENT_SQUARE]
    if cross > 0.0 and cross * cross > noise * square:
        factor = trust * shrinkage(cross * cross / square, noise)
        value = max(1.0 + min(factor * cross / square, 1.0) * (memory[RECENT] / power - 1.0), 1.0)
        in_use += factor
    cross, square = memory[LEVEL_CROSS], memory[LEVEL_SQUARE]
    if cross < 0.0 and cross * cross > noise * square:
        factor = trust * shrinkage(cross * cross / square, noise)
        value = max(value + factor * cross / square * level, 1.0)
        in_use += factor
    return LocalVariance(min(value, MOST_VARIANCE), in_use)


@inner
def shape_term(ratio, score, size):
    """What a value adds to the moment generating function of innovations beyond that of a Gaussian.

    Its Hermite terms to the second are left out: their means are known, and would only add variance.
    """
    return (ratio - 1.0 + size * score - 0.5 * size**2 * (score**2 - 1.0)) / size**3


@inner
def signalling_ratio(size, tested, long_run, in_use, settings):
    """The ratio that signals.

    R - n is a martingale while nothing changes, so that E(R) at a signal is the mean number of values to it: the
    threshold is that number, less the overshoot. It is the one of Page's test with the same drift and threshold on
    independent Gaussian values (Siegmund, 1985, equation 2.57).
    """
    shift = 2.0 * max(settings.drift, LEAST_DRIFT)
    exponent = shift * (settings.threshold + 2.0 * OVERSHOOT)
    run_length = 2.0 * (np.exp(exponent) - 1.0 - exponent) / shift**2
    # As many independent values say as much of the mean.
    early = (SETTLING / tested) ** 2 * long_run
    # A long-run variance that is wrong by the factor 1 + e makes signals exp(e ln R) times as frequent: in the mean
    # over e, exp(var(e) (ln R)^2 / 2) times.
    price = 0.5 * np.log(run_length) ** 2 * PRICE * in_use / tested
    return run_length * np.exp(min(price, 20.0) - OVERSHOOT * size) * (1.0 + early * early)


@inner
def step_in_place(value, memory, settings):
    """Take one value into a state kept in an array; returns the log of the ratio if it signals a change, else zero.

    The value that signals is not among those from which the test starts again: it may be an outlier, beside which no
    later drop would stand out.
    """
    if memory[N] < settings.min_rows:
        burn_in(value, memory, settings)
        return 0.0
    n, deviation = memory[N] + 1.0, value - memory[MEAN]
    std = np.sqrt(memory[SCATTER] / memory[N])
    # Constant values so far: there is no unit in which a drop could be measured.
    if std == 0.0:
        change = deviation / n
        restart(memory, n, memory[MEAN] + change, deviation * (deviation - change))
        return 0.0
    tested, limit = n - settings.min_rows, settings.limit
    prediction = predicted_deviation(memory)
    raw = (deviation - prediction) / (std * np.sqrt(memory[VARIANCE]))
    power = (memory[POWER] + PRIOR_ROWS) / (tested - 1.0 + PRIOR_ROWS)
    local = local_variance(memory, tested - 1.0, power, prediction / std)
    local_std = np.sqrt(local.value)
    score = clipped(raw / local_std, 1.0, limit)
    # A lasting drop of the values by 2 drift is one of the innovations by `size`. Values that alternate would be given
    # a larger one, but its ratios have a mean that is harder to estimate.
    size = 2.0 * max(settings.drift, LEAST_DRIFT) / (np.sqrt(max(1.0, memory[LONG_RUN])) * local_std)
    gaussian = np.exp(-size * (score + 0.5 * size))
    # Divided by its mean while nothing changes, which the martingale needs, whatever the distribution.
    mean_ratio = max(0.2, 1.0 + memory[SHAPE] / (tested + PRIOR_ROWS) * size**3)
    ratio = (1.0 + memory[RATIO]) * gaussian / mean_ratio
    # A lower bound first: the threshold has two exponentials, which would cost a third of the time.
    bound = (settings.threshold + 2.0 * OVERSHOOT) ** 2 * max(0.0, 1.0 - OVERSHOOT * size)
    if ratio > bound and ratio > signalling_ratio(
        size, tested, memory[LONG_RUN], memory[ORDER_USED] + local.in_use, settings
    ):
        memory[:] = 0.0
        return np.log(ratio)
    memory[RATIO] = ratio
    memory[LARGEST] = max(1.0, memory[LARGEST]) * gaussian / mean_ratio
    memory[WAITING + SHAPE] += shape_term(gaussian, score, size)
    wait_variance(memory, clipped(raw, 1.0, limit), power, prediction / std)
    wait_deviation(memory, deviation, std, limit)
    # As many as all before are no excursion: the estimates from those before were wrong.
    if memory[LARGEST] <= 1.0 or memory[WAITING] >= memory[N]:
        count_waiting(memory, settings.min_rows)
    return 0.0


@inner
def wait_deviation(memory, deviation, std, limit):
    """Add a deviation to the sums that wait, and to those that predict, clipped: an outlier does not move them."""
    counted, predictor = clipped(deviation, std, limit), clipped(deviation, std, PREDICTORS * limit)
    memory[WAITING] += 1.0
    memory[WAITING + MEAN] += counted
    memory[WAITING + SCATTER] += counted * counted
    memory[WAITING + LAG] += counted * predictor
    for i in range(ORDER):
        memory[WAITING + LAG + 1 + i] += counted * memory[PREVIOUS + i]
    for i in range(ORDER - 1, 0, -1):
        memory[PREVIOUS + i] = memory[PREVIOUS + i - 1]
    memory[PREVIOUS] = predictor


@inner
def wait_variance(memory, innovation, power, level):
    """Add an innovation to the sums that wait from which the local variance is estimated."""
    square = innovation * innovation
    excess, recent = square / power - 1.0, memory[RECENT] / power - 1.0
    memory[WAITING + POWER] += square
    memory[WAITING + EXCESS] += excess * excess
    memory[WAITING + RECENT_CROSS] += excess * recent
    memory[WAITING + RECENT_SQUARE] += recent * recent
    memory[WAITING + LEVEL_CROSS] += excess * level
    memory[WAITING + LEVEL_SQUARE] += level * level
    memory[RECENT] += RECENT_WEIGHT * (square - memory[RECENT])


@inner
def count_waiting(memory, min_rows):
    """The values that wait count from now on."""
    total = memory[WAITING + MEAN]
    memory[N] += memory[WAITING]
    change = total / memory[N]
    memory[MEAN] += change
    memory[SCATTER] += memory[WAITING + SCATTER] - total * change
    for i in range(LAG, WAITING):
        memory[i] += memory[WAITING + i]
    for i in range(WAITING, COEFFICIENT):
        memory[i] = 0.0
    estimate_filter(memory, memory[N] + 1.0 - min_rows)


@inner
def page_hinkley_step(value, memory, drift, threshold, min_rows, limit):
    """`step_in_place` with the settings one by one; returns whether a change is signalled."""
    return step_in_place(value, memory, TestSettings(drift, threshold, min_rows, limit)) > 0.0


@kernel
def detect(values, memory, settings, statistics):
    """Take values in order; writes the logarithm of the ratio at those that signal a change, else zero."""
    for t in range(values.shape[0]):
        statistics[t] = step_in_place(values[t], memory, settings)
