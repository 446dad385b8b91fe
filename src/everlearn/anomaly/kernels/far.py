"""The far tail: how often rows come that the tail of the scores calls one in 500, and how much farther they go.

The p-value of a score beyond the largest remembered ones is an extrapolation. Heavy tails bend where nothing can be
seen among 8,000 rows: the mixture covers the bulk of such rows, and those beyond it lie several nats farther out than
the law of the bulk would have them. Only rows over a long time can tell, so that each far row is kept for 256 far ones.

Under a correct p-value, the excess y = log FAR_LEVEL - log p of far rows is exponential with scale 1, and far rows are
a Poisson process with the rate FAR_LEVEL. Both rates have conjugate Gamma priors around these values, worth PRIOR far
rows. After r far rows in N rows the posterior predictive law, in which the error of the fit is accounted for, is

    P(far) = (PRIOR + r) / (PRIOR / FAR_LEVEL + N)  and  P(excess > y | far) = (1 + y / b)^-a,

a = PRIOR + r and b = PRIOR + the sum of their excesses: a generalised Pareto law with the shape 1 / a.

Excesses may have heavier tails than that: of Student's t with three degrees of freedom the largest twentieth lies at 8
nats and the largest hundredth at 20. Where the far rows themselves say so, they are believed: with k of them beyond y,
a Dirichlet process of the same prior has P(excess > y | far) = (k + PRIOR exp(-y)) / (PRIOR + r), and the larger of
both probabilities is told. Beyond the farthest row only the first law is left, so that what never came is still an
alarm; and far rows that follow each other count once in k, so that one fault does not hide the next. Far rows of a run
of LASTING ones that are held back are no tail: they are taken back, and while it lasts none are counted.
"""

import numpy as np

from everlearn.linalg.compile import inner, kernel

FAR_LEVEL = 2e-3  # p-value from which a row is far
KEPT = 256  # far rows: 128,000 rows of a calibrated stream
PRIOR = 10.0  # far rows that the exponential law of scale 1 and its rate are worth
# More far rows than this times their expected number, and two standard errors, are not the tail of what is usual.
MOST_USUAL = 1.5
# Nor are they if their median excess, with some rows of an exponential law, is larger than this. That law has ln 2; the
# far rows of the clean streams of benchmarks/anomaly.py have at most 2.3 in 99 of 100 cases, heavy tails included. With
# 5 nats and 10 rows, one in 300 of the rows at 6 standard deviations among 6,000 was no alarm: those before it were
# taken for a tail.
MOST_MEDIAN, ROWS_OF_MEDIAN = 4.0, 5.0
# An excess of 30 nats has never been seen on clean streams (benchmarks/anomaly.py, heavy tails included). It is an
# anomaly, and is not kept: a single fault of 90 nats would hide the next one like it.
MOST_EXCESS = 30.0
# Rows held back by which a fault lasts. Three faults of benchmarks/pump.py, each with far rows of 20 nats in its first
# minute, hid a fourth by their share of all far rows. Clean streams have no such runs but random walks.
LASTING = 60.0
APART = 20  # rows after which a far row is another clump of them
CLUMP = 20.0  # far rows that are counted one after the other: the rest of a lasting fault is not about usual rows
REFILL = 4.0  # times FAR_LEVEL, by which a row lets the next one be counted


@inner
def usual_far_rows(far):
    """How many of the far rows that are kept belong to usual ones, and the rows in which they came.

    Where there are far more of them than a tail has, or most of them lie where a tail has nearly none, the strangest
    ones are anomalies, and no more than the expected number is believed, from below.
    """
    kept = far.excess.shape[0]
    n, N = min(far.size[0], kept), float(far.rows[0])
    if far.size[0] > kept:
        # The oldest that is kept is where the count begins.
        N -= far.numbers[far.size[0] % kept]
    expected = FAR_LEVEL * N
    beyond = 0
    for i in range(n):
        beyond += far.excess[i] > MOST_MEDIAN
    if n > MOST_USUAL * expected + 2.0 * np.sqrt(expected) or 2 * beyond > n + ROWS_OF_MEDIAN:
        return min(int(expected), n), N
    return n, N


@inner
def clumps_beyond(far, y, most):
    """Clumps of far rows whose farthest, of those up to the excess `most`, goes beyond y."""
    kept, size = far.excess.shape[0], far.size[0]
    found, counted, before = 0, True, -APART - 1
    for i in range(max(0, size - kept), size):
        slot = i % kept
        if far.numbers[slot] - before > APART:
            counted = False
        before = far.numbers[slot]
        if not counted and y < far.excess[slot] <= most:
            found += 1
            counted = True
    return found


@kernel
def far_log_p(far, log_p):
    """Log p-value by the posterior predictive laws of far rows; others keep theirs."""
    y = np.log(FAR_LEVEL) - log_p
    if not y > 0.0:
        return log_p
    r, N = usual_far_rows(far)
    n = min(far.size[0], far.excess.shape[0])
    total, most = 0.0, np.inf
    if r == n:
        for i in range(n):
            total += far.excess[i]
    else:
        ordered = np.sort(far.excess[:n])
        most = ordered[r - 1] if r > 0 else 0.0
        for i in range(r):
            total += ordered[i]
    exponential = -(PRIOR + r) * np.log1p(y / (PRIOR + total))
    # Within the far rows that were seen, their own share.
    seen = np.log((clumps_beyond(far, y, most) + PRIOR * np.exp(-y)) / (PRIOR + r))
    told = np.log((PRIOR + r) / (PRIOR / FAR_LEVEL + N)) + max(exponential, seen)
    # A far row is never more probable than one that is not, and a farther one always less.
    return min(told, np.log(FAR_LEVEL) - 1e-3 * y)


@inner
def count_far(far, log_p, held):
    """Count a row, and keep its excess if it is far and may be a usual row; in place.

    `held` is how many rows are held back, less those that have leaked away.
    """
    if held >= LASTING:
        take_back(far, far.rows[0] - int(2.0 * LASTING))
        return
    far.rows[0] += 1
    far.budget[0] = min(far.budget[0] + REFILL * FAR_LEVEL, CLUMP)
    y = np.log(FAR_LEVEL) - log_p
    if 0.0 < y < MOST_EXCESS and far.budget[0] >= 1.0:
        far.budget[0] -= 1.0
        slot = far.size[0] % far.excess.shape[0]
        far.excess[slot], far.numbers[slot] = y, far.rows[0]
        far.size[0] += 1


@inner
def take_back(far, since):
    """Forget the far rows that came after so many rows, in place."""
    kept, size = far.excess.shape[0], far.size[0]
    n = min(size, kept)
    stay = n
    while stay > 0 and far.numbers[(size - n + stay - 1) % kept] > since:
        stay -= 1
    if stay == n:
        return
    far.budget[0] = min(far.budget[0] + (n - stay), CLUMP)
    if size > kept:
        # Those before the oldest that is kept are gone: the count begins with that, from the first slot on.
        turn(far.excess, size % kept)
        turn(far.numbers, size % kept)
        begin = far.numbers[0]
        for i in range(kept):
            far.numbers[i] -= begin
        far.rows[0] -= begin
    far.size[0] = stay


@inner
def turn(values, first):
    """Put the values from `first` on before the others, in place: both parts are reversed, then the whole."""
    n = values.shape[0]
    reverse(values, 0, first)
    reverse(values, first, n)
    reverse(values, 0, n)


@inner
def reverse(values, start, stop):
    """Reverse the order of values[start:stop], in place."""
    for i in range((stop - start) // 2):
        values[start + i], values[stop - 1 - i] = values[stop - 1 - i], values[start + i]
