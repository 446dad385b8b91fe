"""The latest values of a statistic: their ranks, and a generalised Pareto tail beyond them."""

import numpy as np

from everlearn.linalg.compile import inner

LEAST = 20  # values below which there is no p-value
TAIL_SHARE = 0.1  # of the values are used for the tail
# The tail of a large memory begins with one in so many values, if they are as sure as so many independent ones: their
# share is then known within a seventh.
LARGER, SURE = 80, 50
# The shape is shrunk to that of an exponential tail as if so many excesses had been seen with shape 0: the sampling
# error of a shape from 200 excesses moves a p-value of 1e-4 by a factor of three.
SHAPE_PRIOR = 200.0
# Values from which on those of single rows are looked at for correlation: in fewer, a group of rows is one by chance,
# and in the tutorial of 250 rows (docs/tutorials/first_alarm.md) an alarm is lost.
ENOUGH = 450
LEAST_CORRELATION = 0.25  # of values some lags apart; less may be chance among 2,000 correlated ones


@inner
def place(ordered, size, value):
    """How many of the first `size` ascending values are below `value`."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def place_after(ordered, size, value):
    """How many of the first `size` ascending values are at most `value`."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


# Unsigned counters: without the test for negative indices the loops become moves of whole blocks of memory, which take
# a tenth of the time (0.1 us for 700 values).
ONE = np.uint64(1)


@inner
def shift_down(values, first, last):
    """values[first:last] = values[first + 1:last + 1], in place."""
    part, n = values[first:], np.uint64(last - first)
    for k in range(np.uint64(0), n):
        part[k] = part[k + ONE]


@inner
def shift_up(values, first, last):
    """values[first + 1:last + 1] = values[first:last], in place."""
    part, n = values[first:], np.uint64(last - first)
    for k in range(np.uint64(0), n):
        part[n - k] = part[n - k - ONE]


@inner
def remember(memory, i, value):
    """Put a value of statistic i in the place of the oldest one, in place; refit the tail when a twentieth is new."""
    ring, ordered = memory.ring[i], memory.ordered[i]
    M, size, slot = ring.shape[0], memory.size[i], memory.head[i]
    if size == M:
        # Move the values between the old place and the new one by one step: no sort is needed.
        a = place(ordered, M, ring[slot])
        b = place(ordered, M, value)
        if b > a:
            shift_down(ordered, a, b - 1)
            ordered[b - 1] = value
        else:
            shift_up(ordered, b, a)
            ordered[b] = value
    else:
        b = place(ordered, size, value)
        shift_up(ordered, b, size)
        ordered[b] = value
        memory.size[i] = size + 1
    ring[slot] = value
    memory.head[i] = (slot + 1) % M
    memory.since[i] += 1
    if memory.since[i] * 20 >= memory.size[i]:
        fit_tail(memory, i)
        memory.since[i] = 0


@inner
def sign_correlation(values, middle, lag):
    """Correlation of Gaussian values `lag` apart that are on the same sides of the median as these.

    Of two that are both above it in a share b of the pairs, it is sin(pi / 2 phi), phi = (b - p^2) / (p (1 - p)) with p
    = 1/2 (Sheppard, 1899). Outliers do not move it. With ties p is the share above; where nearly all values are equal,
    p^2 says how often two are above by chance.
    """
    both, above, n = 0, 0, values.shape[0]
    for t in range(n):
        above += values[t] > middle
    for t in range(n - lag):
        both += (values[t] > middle) & (values[t + lag] > middle)
    p = above / n
    return np.sin(0.5 * np.pi * (both / (n - lag) - p * p) / (p * (1.0 - p))) if above > 0 else 0.0


@inner
def independent_share(memory, i):
    """Independent values in a remembered one, between memory.least and memory.independent.

    Of a slow statistic neighbours are alike, and on a stream that wanders far more so than the statistic itself makes
    them: 40,000 rows of a random walk have a dozen excursions. An autoregression whose values L apart have the
    correlation r has (1 - rho) / (1 + rho) independent values in one, rho = r^(1/L). Beside noise a walk shows at long
    lags only: the least share of lags 1, 4, 16, ... counts.
    """
    share, least, lag = memory.independent[i], memory.least[i], 1
    if share == 1.0 and memory.size[i] < ENOUGH:
        return share
    values, middle = memory.ring[i, : memory.size[i]], memory.ordered[i, memory.size[i] // 2]
    while share > least and 4 * lag < values.shape[0]:
        r = sign_correlation(values, middle, lag)
        # Two standard errors for independent values, pi / 2 sqrt(pairs) each; slow ones have larger ones at long lags.
        if r < np.pi / np.sqrt(values.shape[0] - lag) or (lag > 1 and r < LEAST_CORRELATION):
            break
        rho = r ** (1.0 / lag) if lag > 1 else r
        share = min(share, (1.0 - rho) / (1.0 + rho))
        lag *= 4
    return max(share, least)


@inner
def shape_of_ratio(ratio):
    """Shape of the generalised Pareto law whose 96 % and 50 % quantiles have this ratio, by bisection."""
    low, high = -0.5, 1.5
    for _ in range(30):
        xi = 0.5 * (low + high)
        near = np.log(25.0) / np.log(2.0) if abs(xi) < 1e-6 else (25.0**xi - 1.0) / (2.0**xi - 1.0)
        if near < ratio:
            low = xi
        else:
            high = xi
    return 0.5 * (low + high)


@inner
def fit_tail(memory, i):
    """Generalised Pareto law of the excess over the top tenth, from all but the largest 4 % of the excesses.

    The largest are left out because they may be anomalies, or may be missing because they were held back: the scale is
    that of an exponential law under type II censoring, (sum of the r smallest + (k - r) times the r-th) / r. The
    sampling error of the scale makes the predictive law heavier: its shape is larger by 1 / (independent excesses).

    Of a large memory the rank says more down to the top 80th, and the law goes on from there. Where one view rules the
    scores and can say no more than that a row is of a group, their tail has an end, which the law has not: of counts
    half of the alarms were lost at 1 in 100. In a young memory strange rows may be a larger share than later.
    """
    ordered, m = memory.ordered[i], memory.size[i]
    if m < LEAST:
        return
    k = max(10, int(TAIL_SHARE * m))
    u, r = ordered[m - k - 1], k - k // 25
    largest, half = ordered[m - k + r - 1] - u, ordered[m - k + k // 2 - 1] - u
    total = (k - r) * largest
    for j in range(r):
        total += ordered[m - k + j] - u
    excess = total - (k - r) * largest
    independent = max(independent_share(memory, i) * k, 1.0)
    shape = shape_of_ratio(largest / half) if half > 0.0 else 0.0
    # Correlated values tell a shape less surely, which the last line adds; the prior is not the heavier for it. With
    # fewer values in its place tails of statistics that follow each other were taken for lighter than they are, and the
    # demonstration had three times the alarms asked for.
    most = memory.independent[i] * k
    shape = min(max(shape * most / (most + SHAPE_PRIOR), 0.0), 0.9)
    scale = total / r * (1.0 - shape)
    # Ties can leave no excess at all; the spread of the bulk then sets the least scale.
    spread = u - ordered[m // 2]
    memory.threshold[i], memory.share[i] = u, np.log((k + 0.5) / (m + 1.0))
    for j in range(r, k):
        excess += ordered[m - k + j] - u
    # With the largest excesses again: groups of strange rows are what it is to notice. A few far ones raise the mean;
    # a group of more than a twentieth of the rows raises the median, of an exponential law ln 2 of the mean, most. Of
    # counts, which are equal in many rows, the median is no group.
    mean, middle = excess / k, m - k + k // 2 - 1
    if ordered[middle - k // 10] < ordered[middle + k // 10]:
        mean = max(mean, half / np.log(2.0))
    memory.heaviness[i] = mean / spread if spread > 0.0 else 0.0
    memory.scale[i], memory.shape[i] = max(scale, 1e-2 * spread, 1e-9), shape + 1.0 / independent
    larger = m // LARGER
    if larger * independent >= SURE * k:
        # The excess of such a law over a higher threshold has the same shape.
        memory.threshold[i], memory.share[i] = ordered[m - larger - 1], np.log((larger + 0.5) / (m + 1.0))
        memory.scale[i] += memory.shape[i] * (memory.threshold[i] - u)


@inner
def tail_log_p(y, scale, shape):
    """Log of the probability that an excess is larger than y."""
    if abs(shape) < 1e-6:
        return -y / scale
    return -np.log1p(shape * y / scale) / shape


@inner
def log_p_value(memory, i, value):
    """Log of the share of values of statistic i that are at least `value`, by rank or by the tail; NaN while few."""
    m = memory.size[i]
    if m < LEAST or np.isnan(value):
        return np.nan
    if value > memory.threshold[i]:
        return memory.share[i] + tail_log_p(value - memory.threshold[i], memory.scale[i], memory.shape[i])
    return rank_log_p(memory, i, value)


@inner
def rank_log_p(memory, i, value):
    """Log of the share of values of statistic i that are at least `value`, by rank alone."""
    ordered, m = memory.ordered[i], memory.size[i]
    below = place(ordered, m, value)
    # A statistic of which nearly all values are equal, as repeats, has thousands of ties: they are not stepped through.
    upto = place_after(ordered, m, value) if below < m and ordered[below] == value else below
    rank = 0.5 * (below + upto)
    if upto == below and 0 < below < m:
        # Between two values the rank is interpolated, so that different scores keep different p-values.
        gap = ordered[below] - ordered[below - 1]
        rank += (value - ordered[below - 1]) / gap - 0.5
    # Half a value more and one more in the count: no p-value is zero.
    return min(np.log((m - rank + 0.5) / (m + 1.0)), 0.0)
