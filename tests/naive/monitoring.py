"""Page and Hinkley's test with all values kept: moments and sums of likelihood ratios from scratch at every value."""

import numpy as np


def robust_start(values, limit):
    """The first values with the two lowest and the highest clipped by the spread of the others."""
    ordered = np.sort(values)
    inner = ordered[2:-1]
    reach = limit * np.std(inner)
    return list(np.clip(ordered, np.mean(inner) - reach, np.mean(inner) + reach)[[0, 1, -1]]) + list(inner)


def autoregression(deviations, predictors, variance):
    """Coefficients of the two values before, and the variance of innovations, by the Yule-Walker equations."""
    n = len(deviations) + 1
    rho_1, rho_2 = (np.dot(deviations[lag:], predictors[: len(deviations) - lag]) / (n * variance) for lag in (1, 2))
    rho_1 = np.clip(rho_1 + (1 + 3 * rho_1) / n, -0.6, 0.9)
    rho_2 += (1 + rho_1 + 2 * rho_2) / n
    coefficients = np.linalg.solve([[1, rho_1], [rho_1, 1]], [rho_1, rho_2])
    second = np.clip(coefficients[1], -0.6, 0.6)
    if abs(second) * np.sqrt(n) < 2:
        second = 0.0
    # The second correlation that belongs to the bounded coefficient.
    rho_2 = rho_1**2 + second * (1 - rho_1**2)
    coefficients = np.linalg.solve([[1, rho_1], [rho_1, 1]], [rho_1, rho_2])
    return coefficients, variance * (1 - coefficients @ [rho_1, rho_2])


def threshold_ratio(drift, threshold, size, n, long_run):
    """Mean number of independent Gaussian values to a signal of Page's test, less the overshoot, more at first."""
    exponent = 2 * drift * (threshold + 1.166)
    run_length = (np.exp(exponent) - 1 - exponent) / (2 * drift**2)
    return run_length * np.exp(-0.583 * size) * (1 + (200 / n) ** 4 * long_run**2)


def page_hinkley(values, drift, threshold, min_rows, limit):
    """Indices at which the test fires."""
    fired, drift = [], max(drift, 0.05)
    kept, deviations, predictors, shapes, log_ratios, waiting = [], [], [], [], [], []
    for t, value in enumerate(values):
        if len(kept) < min_rows or np.std(kept) == 0:
            kept.append(value)
            kept = robust_start(kept, limit) if len(kept) == min_rows else kept
            continue
        mean, std, n = np.mean(kept), np.std(kept), len(kept) - min_rows + 1
        deviation = np.clip(value - mean, -limit * std, limit * std)
        coefficients, variance = autoregression(np.array(deviations[: n - 1]), np.array(predictors[: n - 1]), std**2)
        before = np.array([0.0, 0.0, *predictors])[[-1, -2]]
        score = np.clip((value - mean - coefficients @ before) / np.sqrt(variance), -limit, limit)
        # A drop of all values by 2 drift, in standard deviations of the innovations.
        separation = 2 * drift * std * (1 - coefficients.sum()) / np.sqrt(variance)
        size = min(separation, 2 * drift)
        excess = sum(shapes[: n - 1]) / (n + 20) * size**3
        log_ratios.append(-size * score - size**2 / 2 - np.log(max(0.2, 1 + excess)))
        # Of a change at each value since the burn-in.
        ratios = np.exp(np.cumsum(log_ratios[::-1]))
        if ratios.sum() > threshold_ratio(drift, threshold, size, n, (2 * drift / separation) ** 2):
            fired.append(t)
            kept, deviations, predictors, shapes, log_ratios, waiting = [], [], [], [], [], []
            continue
        deviations.append(deviation)
        predictors.append(np.clip(value - mean, -1.4 * limit * std, 1.4 * limit * std))
        tilted = np.exp(-size * score - size**2 / 2)
        shapes.append((tilted - 1 + size * score - size**2 / 2 * (score**2 - 1)) / size**3)
        waiting.append(mean + deviation)
        if ratios.max() <= 1.0 or len(waiting) >= len(kept):
            kept, waiting = kept + waiting, []
    return fired
