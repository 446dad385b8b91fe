"""The period of a stream, and the mean of each column by its phase."""

import numpy as np

from everlearn.linalg.compile import inner, kernel

LONGEST = 700  # rows of the longest period that is looked for
COLUMNS = 4  # columns that are looked at
PROMINENCE, LEAST = 0.2, 0.25  # of a peak of the autocorrelation above the dip before it, and its height
RATE = 0.2  # least weight of the newest visit to a phase


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
    r = autocorrelation(B, longest)
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
    """The period whose multiples have peaks, from its first one: a peak at c periods is c times as sharp."""
    period, multiple = float(lag), 2
    while int(period * (multiple + 0.1)) + 3 < len(r):
        peak = highest(r, int(period * (multiple - 0.1)) - 1, int(period * (multiple + 0.1)) + 3)
        if r[peak] < least:
            break
        period = peak / multiple
        multiple += 1
    return int(period + 0.5)


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
def look_for_period(season, units, rows, period):
    """Look for a period in the latest rows; on a new one the profile is made anew, in place. Returns the period."""
    U = latest_rows(season, units, rows)
    found = find_period(U[:, : min(COLUMNS, U.shape[1])])
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
