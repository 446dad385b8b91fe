"""Rarity of a row against a uniform sample of the stream, at resolutions too coarse to follow a small group."""

import numpy as np

from everlearn.linalg.compile import inner, kernel, loop

NEAR = 0.3  # half width of a cell around a value, in units of the column's scale
MASSES = (0.1, 0.3)  # shares of the sample to which the distance is taken
OUTER = 100  # one in so many values of a column lies beyond its outer percentile on either side
# Asinh units beyond it that count in a distance. With 1 in place of 0.25 the average precision on Shuttle is smaller by
# 0.015, that on all other groups of benchmarks/anomaly.py the same within 0.006; without a limit it is smaller by 0.06.
BEYOND = 0.25


@kernel
def robust_units(ordered):
    """Median and scale of ascending values: quartiles or 5 % quantiles, whichever says more."""
    k = ordered.shape[0]
    if k == 0:
        return 0.0, 1.0
    middle = ordered[k // 2]
    # 1.349 is the interquartile range of a standard Gaussian; 6.58 is twice its range from 5 to 95 %, so that the outer
    # quantiles decide only where the middle half is narrow beside them.
    quartiles = (ordered[(3 * k) // 4] - ordered[k // 4]) / 1.349
    outer = (ordered[k - 1 - k // 20] - ordered[k // 20]) / 6.58
    sd = np.sqrt(np.mean((ordered - np.mean(ordered)) ** 2))
    scale = max(quartiles, outer)
    if scale <= 1e-9 * sd:
        scale = sd
    if scale <= 1e-12 * abs(middle):
        scale = max(1e-6 * abs(middle), 1e-12)
    return middle, scale


@inner
def coordinate(value, sample, j):
    """A value of column j in asinh units, winsorised just beyond its outer percentiles; a gap becomes the median.

    Distances are to find groups of rows. A single value a thousand scales out would be farther from everything than any
    group is; how rare it is, the mixture and the column by itself know better.
    """
    if np.isnan(value):
        return 0.0
    centre, scale, k = sample.units.centre[j], sample.units.scale[j], sample.observed[j]
    u = np.arcsinh((value - centre) / scale)
    if k == 0:
        return u
    low, high = sample.ordered[j, k // OUTER], sample.ordered[j, k - 1 - k // OUTER]
    # Few values lie outside: the limits are put into asinh units for these alone.
    if value > high:
        return min(u, np.arcsinh((high - centre) / scale) + BEYOND)
    if value < low:
        return max(u, np.arcsinh((low - centre) / scale) - BEYOND)
    return u


@kernel
def refresh_sample(sample, size):
    """Order the columns of the first `size` rows and take new units and coordinates from them, in place."""
    D = sample.rows.shape[1]
    for j in range(D):
        column = np.sort(sample.rows[:size, j])
        k = size
        while k > 0 and np.isnan(column[k - 1]):
            k -= 1
        sample.ordered[j, :k] = column[:k]
        sample.observed[j] = k
        sample.units.centre[j], sample.units.scale[j] = robust_units(column[:k])
        for i in range(size):
            sample.coordinates[j, i] = coordinate(sample.rows[i, j], sample, j)


@inner
def count_near(ordered, k, low, high):
    """How many of the first k ascending values lie in [low, high]."""
    a, b = np.searchsorted(ordered[:k], low), np.searchsorted(ordered[:k], high, side="right")
    return b - a


@inner
def column_rarity(x, sample):
    """Sum over the columns of -log(share of the sample near the value); gaps count as the mean column."""
    D, total, seen = x.shape[0], 0.0, 0
    for j in range(D):
        k = sample.observed[j]
        if np.isnan(x[j]) or k == 0:
            continue
        scale, ordered = sample.units.scale[j], sample.ordered[j]
        near = count_near(ordered, k, x[j] - NEAR * scale, x[j] + NEAR * scale)
        # Half a row more: a value that nothing is near to has a finite surprise.
        total -= np.log((near + 0.5) / (k + 1.0))
        if near == 0:
            # Beyond the sample the distance still counts, slowly: otherwise all far values would be equal.
            outside = max(ordered[0] - x[j], x[j] - ordered[k - 1], 0.0) / scale
            total += np.log1p(outside)
        seen += 1
    return total * D / seen if seen else np.nan


@loop
def add_squares(squares, column, u, size):
    """Add the squared differences of one column, in place: a loop that vectorises."""
    for i in range(size):
        squares[i] += (u - column[i]) ** 2


@loop
def mass_below(squares, size, bound):
    """How many of the first `size` values are at most `bound`, and their sum: a loop without branches."""
    count, total = 0, 0.0
    for i in range(size):
        inside = squares[i] <= bound
        count += inside
        total += squares[i] if inside else 0.0
    return count, total


@inner
def smallest_sum(squares, size, k, low, high):
    """Sum of the k smallest values and a bound of them, by interpolation of the counts between `low` and `high`.

    Counting values below a bound takes a small part of the time of a partial sort, and a few bounds find the one that
    separates k of them. Every third halves the interval, which a crooked law of the values would not let shrink. Where
    no bound separates them, equal values lie at the bound.
    """
    (count, total), below = mass_below(squares, size, high), 0
    for step in range(60):
        if count == k:
            break
        share = 0.5 if step % 3 == 2 else min(max((k - below + 0.5) / (count - below + 1.0), 0.02), 0.98)
        middle = low + share * (high - low)
        n, s = mass_below(squares, size, middle)
        if n >= k:
            high, count, total = middle, n, s
        else:
            low, below = middle, n
    return total - (count - k) * high, high


@inner
def distances_to_mass(x, sample, scratch):
    """Root mean squared distance to the nearest 10 and 30 % of the sample (Chazal et al. 2011), in asinh units."""
    D, size = x.shape[0], sample.size[0]
    squares, seen = scratch.squares, 0
    squares[:size] = 0.0
    for j in range(D):
        if np.isnan(x[j]):
            continue
        seen += 1
        add_squares(squares, sample.coordinates[j], coordinate(x[j], sample, j), size)
    far = min(max(3, int(MASSES[1] * size)), size)
    near = min(max(3, int(MASSES[0] * size)), far)
    # At most total / b of the squares are larger than b (Markov): with this b, `far` are not. A maximum would take ten
    # times as long as the sum.
    _, total = mass_below(squares, size, np.inf)
    wide, bound = smallest_sum(squares, size, far, 0.0, total / max(size - far, 1))
    narrow, _ = smallest_sum(squares, size, near, 0.0, bound)
    return np.sqrt(max(narrow, 0.0) * D / (seen * near)), np.sqrt(max(wide, 0.0) * D / (seen * far))
