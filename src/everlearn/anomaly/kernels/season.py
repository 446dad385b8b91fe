"""The period of a stream, and the mean of each column by its phase."""

import numpy as np

from everlearn.linalg.compile import inner, kernel

LONGEST = 700  # rows of the longest period that is looked for
COLUMNS = 4  # columns that are looked at
PROMINENCE, LEAST = 0.2, 0.25  # of a peak of the autocorrelation above the dip before it, and its height
RATE = 0.2  # least weight of the newest visit to a phase
SAME = 0.01  # a period that differs by less is the one before, seen through as many rows again


@kernel
def autocorrelation(B, longest):
    """Mean autocorrelation of the columns of B at lags 0 to `longest`; columns that do not vary are left out."""
    n, out, used = len(B), np.zeros(longest + 1), 0
    for j in range(B.shape[1]):
        b = B[:, j] - B[:, j].mean()
        variance = np.dot(b, b)
        if variance <= 1e-12:
            continue
        used += 1
        for lag in range(1, longest + 1):
            # n/(n - lag): fewer products at long lags would look like less correlation.
            out[lag] += np.dot(b[lag:], b[: n - lag]) / variance * n / (n - lag)
    return out / max(used, 1)


@kernel
def find_period(B):
    """The first high peak of the autocorrelation, sharpened by its multiples; 0 if there is none."""
    longest = min(len(B) // 3, LONGEST)
    if longest < 10:
        return 0
    # A peak is looked for where each lag has three cycles, and sharpened by its multiples beyond.
    r = autocorrelation(B, 2 * len(B) // 3)
    first, low = 1, 1.0
    # Down the first slope: neighbouring rows are alike without any period.
    while first < longest and r[first] <= low:
        low = r[first]
        first += 1
    first = max(first, 6)
    top, dip = 0.0, low
    for k in range(first, longest):
        dip = min(dip, r[k])
        if r[k] >= r[k - 1] and r[k] >= r[k + 1] and r[k] - dip > PROMINENCE:
            top = max(top, r[k])
    if top < LEAST:
        return 0
    dip = low
    for k in range(first, longest):
        dip = min(dip, r[k])
        # The smallest lag that is nearly as high as the highest peak: multiples of a period have peaks as high.
        if r[k] >= 0.85 * top and r[k] - dip > PROMINENCE:
            return sharpened(r, highest(r, k, min(longest, int(1.1 * k) + 3)), 0.5 * top)
    return 0


@kernel
def highest(r, start, stop):
    """Lag of the highest value in [start, stop)."""
    best = start
    for k in range(start, stop):
        if r[k] > r[best]:
            best = k
    return best


@kernel
def sharpened(r, lag, least):
    """The period whose multiples have peaks, from its first one: a peak at c periods is c times as sharp.

    The peaks of a wave are flat, and their highest lags a matter of noise: of a cycle of 288 rows under noise, seven
    times seen, one or two rows off, so that its profile is out of phase some days later. A peak lies at the vertex of
    a parabola through its lags, an eighth of the period to either side: a tenth of a row off.
    """
    d, width = without_trend(r, lag), max(lag // 8, 1)
    period, multiple = vertex(d, highest(d, int(0.9 * lag) - 1, int(1.1 * lag) + 3), width), 2
    while int(period * (multiple + 0.5)) + 3 + width < len(r):
        peak = highest(d, int(period * (multiple - 0.1)) - 1, int(period * (multiple + 0.1)) + 3)
        if r[peak] < least:
            break
        period = vertex(d, peak, width) / multiple
        multiple += 1
    return int(period + 0.5)


@kernel
def without_trend(r, lag):
    """Autocorrelations less their means over one period about each: a slope would move the peaks."""
    n, half = len(r), lag // 2
    sums, out = np.zeros(n + 1), np.empty(n)
    for k in range(n):
        sums[k + 1] = sums[k] + r[k]
    for k in range(n):
        start, stop = max(k - half, 0), min(k - half + lag, n)
        out[k] = r[k] - (sums[stop] - sums[start]) / (stop - start)
    return out


@kernel
def vertex(r, lag, width):
    """Where the least-squares parabola through the lags about a peak has its top: a + b x + c x^2 at x = -b / 2c."""
    width = min(width, lag, len(r) - 1 - lag)
    n, x2, x4, y, xy, x2y = 2 * width + 1, 0.0, 0.0, 0.0, 0.0, 0.0
    for x in range(-width, width + 1):
        v = r[lag + x]
        x2, x4 = x2 + x**2, x4 + x**4
        y, xy, x2y = y + v, xy + x * v, x2y + x**2 * v
    if width < 1 or n * x2y - x2 * y >= 0.0:
        return float(lag)
    c = (n * x2y - x2 * y) / (n * x4 - x2 * x2)
    return lag + min(max(-0.5 * xy / x2 / c, -width), width)


@inner
def visit(season, phase, u):
    """Take a row into the profile of its phase, in place."""
    season.visits[phase] += 1.0
    rate = max(1.0 / season.visits[phase], RATE)
    for j in range(u.shape[0]):
        season.profile[phase, j] += rate * (u[j] - season.profile[phase, j])


@kernel
def latest_rows(season, units, rows):
    """The rows of the ring in their order, in asinh units; gaps become the value before."""
    size = season.ring.shape[0]
    n, D = min(rows, size), season.ring.shape[1]
    out = np.zeros((n, D))
    for i in range(n):
        source = season.ring[(rows - n + i) % size]
        for j in range(D):
            u = np.arcsinh((source[j] - units.centre[j]) / units.scale[j])
            out[i, j] = u if u == u else (out[i - 1, j] if i > 0 else 0.0)
    return out


@kernel
def look_for_period(season, units, rows, period, is_settled=False):
    """Look for a period in the latest rows; on a new one the profile is made anew, in place. Returns the period.

    `is_settled` says that the ring was as full at the last look.
    """
    U = latest_rows(season, units, rows)
    found = find_period(U[:, : min(COLUMNS, U.shape[1])])
    # With all the rows there can be, no period is seen better than the one before.
    if is_settled and abs(found - period) <= SAME * period:
        return period
    if found != period:
        rebuild_profile(season, U, rows, found)
    return found


@kernel
def rebuild_profile(season, U, rows, period):
    """The profile of a period from the latest rows, in place."""
    season.profile[:] = 0.0
    season.visits[:] = 0.0
    if period > 0:
        for i in range(len(U)):
            visit(season, (rows - len(U) + i) % period, U[i])
