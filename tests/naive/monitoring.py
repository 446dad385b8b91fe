"""Page and Hinkley's test with all values kept: moments and sums of likelihood ratios from scratch at every value."""

import numpy as np
import scipy.linalg


def robust_start(values, limit):
    """The first values with the two lowest and the highest clipped by the spread of the others."""
    ordered = np.sort(values)
    inner = ordered[2:-1]
    reach = limit * np.std(inner)
    return list(np.clip(ordered, np.mean(inner) - reach, np.mean(inner) + reach)[[0, 1, -1]]) + list(inner)


def shrinkage(squared, noise):
    """Factor of an estimate whose square is so many squared standard errors."""
    return 1 - (noise / squared) ** 2 if squared > noise else 0.0


def autoregression(deviations, predictors):
    """Coefficients of the six values before, the variance of innovations, and how many coefficients beyond the first.

    Each order by the Yule-Walker equations; the last coefficient is bounded and shrunk, and the correlation that it
    stands for takes the place of the one that was measured.
    """
    n, count = len(deviations) + 1, len(deviations)
    products = [np.dot(deviations[lag:], predictors[: max(count - lag, 0)]) for lag in range(7)]
    measured = np.array(products[1:]) / max(products[0], 1e-300)
    measured = measured + (1 + measured[0] + 2 * measured) / n
    correlations, coefficients, variance, used, factor = [], np.zeros(0), 1.0, 0.0, 1.0
    for k in range(6):
        matrix = scipy.linalg.toeplitz([1, *correlations])
        last = np.linalg.solve(matrix, [*correlations, measured[k]])[-1]
        last = np.clip(last, -0.6, 0.9 if k == 0 else 0.6)
        factor *= shrinkage(last**2 * n, (1.5, 4.0)[k] if k < 2 else 0.5)
        if factor == 0:
            break
        # The last coefficient is that of the correlation beyond what those before explain, over the variance left.
        known = coefficients @ correlations[::-1] if k else 0.0
        correlations = [*correlations, known + last * factor * variance]
        coefficients = np.linalg.solve(matrix, correlations)
        variance = 1 - coefficients @ correlations
        used += factor if k else 0.0
    return np.pad(coefficients, (0, 6 - len(coefficients))), variance, used


def local_variance(squares, recents, levels, recent, level):
    """Variance of the next innovation over that of all: from recent squares and the predicted level, by regression.

    `squares` are relative to their mean when they came, as are the means of recent squares.
    """
    value, used, trust = 1.0, 0.0, max(0.0, 1 - 300 / max(len(squares), 1))
    excess = np.array(squares) - 1
    noise = 6 * max(np.sum(excess**2) / max(len(excess), 1), 0.5)
    for predictor, now, sign in ((np.array(recents) - 1, recent - 1, 1), (np.array(levels), level, -1)):
        cross, square = excess @ predictor, predictor @ predictor
        if sign * cross > 0 and cross**2 > noise * square:
            factor = trust * shrinkage(cross**2 / square, noise)
            slope = factor * cross / square
            value = max(value + (min(slope, 1.0) if sign > 0 else slope) * now, 1.0)
            used += factor
    return min(value, 4.0), used


def threshold_ratio(drift, threshold, size, n, long_run, used):
    """Mean number of independent Gaussian values to a signal of Page's test, less the overshoot, more at first."""
    exponent = 2 * drift * (threshold + 1.166)
    run_length = (np.exp(exponent) - 1 - exponent) / (2 * drift**2)
    price = np.exp(min(3 * np.log(run_length) ** 2 * used / n, 20))
    return run_length * price * np.exp(-0.583 * size) * (1 + (200 / n) ** 4 * long_run**2)


class Since:
    """All values since the last change, by kind, and what was made of them."""

    def __init__(self):
        self.kept, self.waiting = [], []
        self.deviations, self.predictors, self.shapes, self.log_ratios = [], [], [], []
        self.innovations, self.squares, self.recents, self.levels, self.recent = [], [], [], [], 1.0


def page_hinkley(values, drift, threshold, min_rows, limit):
    """Indices at which the test fires."""
    fired, drift, since = [], max(drift, 0.05), Since()
    for t, value in enumerate(values):
        if len(since.kept) < min_rows or np.std(since.kept) == 0:
            since.kept.append(value)
            since.kept = robust_start(since.kept, limit) if len(since.kept) == min_rows else since.kept
            continue
        mean, std, n = np.mean(since.kept), np.std(since.kept), len(since.kept) - min_rows + 1
        counted = n - 1  # values since the burn-in that count
        coefficients, variance, used = autoregression(
            np.array(since.deviations[:counted]), np.array(since.predictors[:counted])
        )
        # A drop of all values by 2 drift, in standard deviations of the innovations.
        separation = 2 * drift * (1 - coefficients.sum()) / np.sqrt(variance)
        before = np.array([*np.zeros(6), *since.predictors])[-1:-7:-1]
        prediction = coefficients @ before
        innovation = (value - mean - prediction) / (std * np.sqrt(variance))
        power = (np.sum(np.square(since.innovations[:counted])) + 20) / (counted + 20)
        kinds = (since.squares[:counted], since.recents[:counted], since.levels[:counted])
        local, predictors_used = local_variance(*kinds, since.recent / power, prediction / std)
        score = np.clip(innovation / np.sqrt(local), -limit, limit)
        long_run = min((2 * drift / separation) ** 2, 25)
        size = 2 * drift / np.sqrt(max(long_run, 1) * local)
        excess = sum(since.shapes[:counted]) / (n + 20) * size**3
        since.log_ratios.append(-size * score - size**2 / 2 - np.log(max(0.2, 1 + excess)))
        # Of a change at each value since the burn-in.
        ratios = np.exp(np.cumsum(since.log_ratios[::-1]))
        if ratios.sum() > threshold_ratio(drift, threshold, size, n, long_run, used + predictors_used):
            fired.append(t)
            since = Since()
            continue
        deviation = np.clip(value - mean, -limit * std, limit * std)
        since.deviations.append(deviation)
        since.predictors.append(np.clip(value - mean, -1.4 * limit * std, 1.4 * limit * std))
        tilted = np.exp(-size * score - size**2 / 2)
        since.shapes.append((tilted - 1 + size * score - size**2 / 2 * (score**2 - 1)) / size**3)
        since.innovations.append(np.clip(innovation, -limit, limit))
        since.squares.append(since.innovations[-1] ** 2 / power)
        since.recents.append(since.recent / power)
        since.levels.append(prediction / std)
        since.recent += 0.12 * (since.innovations[-1] ** 2 - since.recent)
        since.waiting.append(mean + deviation)
        if ratios.max() <= 1.0 or len(since.waiting) >= len(since.kept):
            since.kept, since.waiting = since.kept + since.waiting, []
    return fired
