"""How far a row lies from the components of a frozen mixture, gaps included."""

import math

import numpy as np

from everlearn.linalg.compile import inner
from everlearn.linalg.dense import cholesky, cholesky_of_block, solve_lower

LOG_2PI = np.log(2.0 * np.pi)
HUGE = 1e250
NEGLIGIBLE = 40.0  # nats below the largest part of a sum that change nothing in it


@inner
def log_chi2_tail(square, m):
    """log P(chi-squared with m degrees of freedom > square), by the finite series for whole and half degrees.

    With x = square / 2 it is log of exp(-x) sum_i x^i / i! for even m, and for odd m of erfc(sqrt(x)) + exp(-x)
    sum_i x^(i - 1/2) / Gamma(i + 1/2). The sums are taken from their last term back, so that none of them overflows.
    """
    x = 0.5 * square
    if m % 2 == 0:
        return log_series(x, m // 2 - 1, 0.0) - x
    root = np.sqrt(x)
    # erfc(root) exp(x), which has a limit where both factors leave the range of numbers.
    first = math.erfc(root) * np.exp(x) if x < 500.0 else 1.0 / (root * np.sqrt(np.pi))
    if m == 1:
        return np.log(first) - x
    rest = log_series(x, (m - 3) // 2, 0.5) + np.log(2.0 * root / np.sqrt(np.pi)) if x > 0.0 else -np.inf
    return np.log(first + np.exp(rest)) - x if rest < 500.0 else rest - x


@inner
def log_series(x, n, half):
    """log(1 + x/(1 + half) (1 + x/(2 + half) (1 + ... x/(n + half)))), by Horner's rule with a running scale."""
    total, shift = 1.0, 0.0
    for i in range(n, 0, -1):
        total = np.exp(-shift) + total * x / (i + half)
        if total > HUGE:
            shift += np.log(total)
            total = 1.0
    return shift + np.log(total)


@inner
def chernoff_bound(square, m):
    """Upper bound of the log of the chi-squared tail, without its series."""
    return -0.5 * (square - m - m * np.log(square / m)) if square > m else 0.0


@inner
def is_low_rank(density):
    """Whether components have few factors and a noise of each column, and no matrix of columns by columns."""
    return density.precisions.shape[1] < density.means.shape[1]


@inner
def along_factor(density, k, q, e):
    """Number q of v = L^-1 W psi^-1 e, whose square Woodbury's identity takes off the squared distance."""
    row, y = density.factors[k, 1 + q], 0.0
    for i in range(e.shape[0]):
        y += row[i] * e[i]
    return y


@inner
def complete_square(density, k, z, e):
    """Squared Mahalanobis distance of a row without gaps to component k; e becomes the row about its mean."""
    D, total = z.shape[0], 0.0
    for i in range(D):
        e[i] = z[i] - density.means[k, i]
    if is_low_rank(density):
        for i in range(D):
            total += e[i] * e[i] * density.factors[k, 0, i]
        for q in range(density.precisions.shape[1]):
            total -= along_factor(density, k, q, e) ** 2
        return max(total, 0.0)
    for i in range(D):
        row, y = density.factors[k, i], 0.0
        for j in range(i + 1):
            y += row[j] * e[j]
        total += y * y
    return total


@inner
def partial_square(density, k, z, seen, scratch):
    """The same for the columns `seen` of a row, and the log-determinant of their covariance."""
    if is_low_rank(density):
        return partial_square_of_factors(density, k, z, seen, scratch)
    m, e, total = seen.shape[0], scratch.e, 0.0
    log_det = cholesky_of_block(density.covariances[k], seen, 0, scratch.block)
    for i in range(m):
        e[i] = z[seen[i]] - density.means[k, seen[i]]
    solve_lower(scratch.block, m, e)
    for i in range(m):
        total += e[i] * e[i]
    return total, log_det


@inner
def partial_square_of_factors(density, k, z, seen, scratch):
    """`partial_square` of a low-rank component: a Cholesky factor of factors by factors, whatever is missing."""
    Q, M, v = density.precisions.shape[1], scratch.block, scratch.e
    W, inverse_psi = density.covariances[k], density.factors[k, 0]
    total, log_det = 0.0, 0.0
    for a in range(Q):
        v[a] = 0.0
        for b in range(a + 1):
            M[a, b] = 0.0
    for i in range(seen.shape[0]):
        o = seen[i]
        e, w = z[o] - density.means[k, o], inverse_psi[o]
        total += e * e * w
        log_det -= np.log(w)
        for a in range(Q):
            x = W[a, o] * w
            v[a] += x * e
            for b in range(a + 1):
                M[a, b] += x * W[b, o]
    for a in range(Q):
        M[a, a] += 1.0
    log_det += cholesky(M, Q, 0.0)
    solve_lower(M, Q, v)
    for a in range(Q):
        total -= v[a] * v[a]
    return max(total, 0.0), log_det


@inner
def standardise(x, density, scratch):
    """A row in the units of the density, and the places of its observed columns, into the scratch; returns how many."""
    m = 0
    for j in range(x.shape[0]):
        scratch.z[j] = (x[j] - density.centre[j]) / density.scale[j]
        if not np.isnan(scratch.z[j]):
            scratch.places[m] = j
            m += 1
    return m


@inner
def atypicality(x, density, scratch):
    """-log of the probability that a row drawn from a component lies farther from it, summed over the components.

    -log sum_k w_k P(chi2_m > d_k^2), with d_k the Mahalanobis distance to component k over the m observed columns. A
    density would call the rows of a small tight group usual, because it is dense; here the group counts by its share.
    The broad component, the last one, is left out. scratch.joint takes the logs of weight times density.
    """
    D, K, z = x.shape[0], density.heights.shape[0], scratch.z
    m = standardise(x, density, scratch)
    if K == 0 or m == 0:
        return np.nan
    top, total = -np.inf, 0.0
    for k in range(K):
        if m == D:
            square = complete_square(density, k, z, scratch.e)
            scratch.joint[k] = density.heights[k] - 0.5 * square
        else:
            square, log_det = partial_square(density, k, z, scratch.places[:m], scratch)
            scratch.joint[k] = density.log_weights[k] - 0.5 * (m * LOG_2PI + log_det + square)
        # The bound is cheap, the series is not: most components are far away and change no digit.
        if k == K - 1 or density.log_weights[k] + chernoff_bound(square, m) < top - NEGLIGIBLE:
            continue
        part = density.log_weights[k] + log_chi2_tail(square, m)
        # A running log-sum-exp: the sum is rescaled whenever a larger part comes.
        if part > top:
            total = total * np.exp(top - part) + 1.0
            top = part
        else:
            total += np.exp(part - top)
    return -top - np.log(total)
