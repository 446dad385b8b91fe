"""Page and Hinkley's test with all values kept: moments from scratch at every value."""

import numpy as np


def robust_start(values, limit):
    """The first values with the two lowest and the highest clipped by the spread of the others."""
    ordered = np.sort(values)
    inner = ordered[2:-1]
    reach = limit * np.std(inner)
    return list(np.clip(ordered, np.mean(inner) - reach, np.mean(inner) + reach)[[0, 1, -1]]) + list(inner)


def page_hinkley(values, drift, threshold, min_rows, limit):
    """Indices at which the test fires."""
    fired, kept, drop = [], [], 0.0
    for t, value in enumerate(values):
        if len(kept) >= min_rows and np.std(kept) > 0:
            mean, std = np.mean(kept), np.std(kept)
            value = np.clip(value, mean - limit * std, mean + limit * std)
            drop = max(0.0, drop - (value - mean) / std - drift)
        if drop > threshold:
            fired.append(t)
            kept, drop = [], 0.0
            continue
        kept.append(value)
        if len(kept) == min_rows:
            kept = robust_start(kept, limit)
    return fired
