"""Page and Hinkley's test with all values kept: moments from scratch at every value."""

import numpy as np


def robust_start(values, limit):
    """The first values with the two lowest and the highest clipped by the spread of the others."""
    ordered = np.sort(values)
    inner = ordered[2:-1]
    reach = limit * np.std(inner)
    return list(np.clip(ordered, np.mean(inner) - reach, np.mean(inner) + reach)[[0, 1, -1]]) + list(inner)


def scaled_threshold(standardised, n, drift, threshold):
    """The threshold for values whose sums vary more, or have a heavier left tail, than those of independent Gaussians.

    `standardised` are those since the burn-in, up to the last at which nothing had dropped.
    """
    autocovariance = sum(
        standardised[t] * sum(0.9 ** (lag - 1) * standardised[t - lag] for lag in range(1, t + 1))
        for t in range(len(standardised))
    )
    third_moment = sum(-(t**3) for t in standardised)
    f = 1.0 + max(0.0, 2.0 * autocovariance / n + 2.0 / 3.0 * drift * third_moment / n)
    f = min(f * (1.0 + 30.0 / n), 6.0)
    return max(np.sqrt(f) * threshold, f * (threshold - np.log(f) / (2.0 * drift)) if drift else 0.0)


def page_hinkley(values, drift, threshold, min_rows, limit):
    """Indices at which the test fires."""
    fired, kept, standardised, drop, settled = [], [], [], 0.0, 0
    for t, value in enumerate(values):
        if len(kept) >= min_rows and np.std(kept) > 0:
            mean, std = np.mean(kept), np.std(kept)
            value = np.clip(value, mean - limit * std, mean + limit * std)
            drop = max(0.0, drop - (value - mean) / std - drift)
            if drop > scaled_threshold(standardised[:settled], len(kept), drift, threshold):
                fired.append(t)
                kept, standardised, drop, settled = [], [], 0.0, 0
                continue
            settled = len(standardised) if drop == 0.0 else settled
            standardised.append((value - mean) / std)
        kept.append(value)
        if len(kept) == min_rows:
            kept = robust_start(kept, limit)
    return fired
