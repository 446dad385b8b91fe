"""The incremental mixture on rows with gaps: the marginal of what is observed, and the EM answer to what is not.

With e_o = x_o - mu_o and zeros in the gaps, g = Lambda e holds Lambda_oo e_o and Lambda_mo e_o, and with
Lambda_mm = L L' the distance in the marginal of the observed part is d^2 = e_o' g_o - |L^-1 g_m|^2. Only the components
that a row changes need more.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.responsibilities import least, log_height
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import cholesky_of_block, multiply_rows, solve_lower, solve_lower_transposed
from everlearn.linalg.simd import inverse, larger, minus, put, smaller, spread, take, times

LANES = 8  # components whose small eliminations run in step, as lanes of vector instructions
LANE_GAPS = 24  # more gaps than these make eliminations that are long enough by themselves
SAFE = 1e12  # so many pivots between this and its inverse have a product in the range of floats


class Lanes(NamedTuple):
    """Room for eliminations in step."""

    pairs: Any  # see `list_pairs`
    F: Any  # lower triangles, row after row, (numbers, lanes)
    b: Any
    terms: Any  # see `eliminate_lanes`


@kernel
def make_lanes(gaps):
    """Room for so many gaps."""
    size = gaps * (gaps + 1) // 2
    lanes = Lanes(np.empty(size, np.uintp), np.empty((size, LANES)), np.empty((gaps, LANES)), np.empty((4, LANES)))
    lanes.F[:] = 0.0
    lanes.b[:] = 0.0
    return lanes


@inner
def observed_first(x, index):
    """Write the observed columns of x, then the missing ones, into index; returns how many are observed."""
    D = x.shape[0]
    observed = 0
    for a in range(D):
        if not np.isnan(x[a]):
            index[observed] = a
            observed += 1
    missing = observed
    for a in range(D):
        if np.isnan(x[a]):
            index[missing] = a
            missing += 1
    return observed


@inner
def list_pairs(index, first, pairs):
    """Where the lower triangle on columns index[first:] lies in a flat matrix, row after row; returns its size."""
    D, p = index.shape[0], 0
    for i in range(first, D):
        for k in range(first, i + 1):
            pairs[p] = np.intp(index[i]) * D + np.intp(index[k])
            p += 1
    return p


@inner
def multiply_observed(A, index, observed, e, start, g):
    """g = A e for a symmetric A in columns start to start + 31, where e is zero in the gaps."""
    v0, v1, v2, v3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
    for i in range(observed):
        row, c = A[index[i]], -e[index[i]]
        v0, v1 = minus(v0, c, take(row, start)), minus(v1, c, take(row, start + 8))
        v2, v3 = minus(v2, c, take(row, start + 16)), minus(v3, c, take(row, start + 24))
    put(g, start, v0)
    put(g, start + 8, v1)
    put(g, start + 16, v2)
    put(g, start + 24, v3)


@inner
def deviate(x, mean, precision, index, observed, e, g):
    """e = x - mu, zero in the gaps, and g = Lambda e; returns e' g."""
    D = x.shape[0]
    for a in range(D):
        e[a] = x[a] - mean[a] if x[a] == x[a] else 0.0
    whole = D - D % 32
    for a in range(0, whole, 32):
        multiply_observed(precision, index, observed, e, a, g)
    total = multiply_rows(precision, e, whole, g)
    for a in range(whole):
        total += e[a] * g[a]
    return total


@inner
def gap_terms(precision, index, observed, g, L, b):
    """|L^-1 g_m|^2 and log|Lambda_mm|."""
    m = index.shape[0] - observed
    log_det = cholesky_of_block(precision, index, observed, L)
    for i in range(m):
        b[i] = g[index[observed + i]]
    solve_lower(L, m, b)
    square = 0.0
    for i in range(m):
        square += b[i] * b[i]
    return square, log_det


@inner
def gather_lane(numbers, pairs, size, index, observed, g, lane, F, b):
    """The lower triangle of Lambda_mm, from the numbers of Lambda, and g_m into one lane."""
    for p in range(size):
        F[p, lane] = numbers[pairs[p]]
    for i in range(index.shape[0] - observed):
        b[i, lane] = g[index[observed + i]]


@inner
def eliminate_lanes(m, F, b, terms):
    """Eliminate the gaps from the triangles and from b, all lanes in step, which leaves the pivots on the diagonals.

    The terms are -b' A^-1 b for the matrices A, the product of the pivots, the smallest and the largest.
    """
    square, product, low, high = spread(0.0), spread(1.0), spread(np.inf), spread(0.0)
    row = 0
    for k in range(0, 8 * m, 8):
        z, pivot = take(b, k), take(F, row + k)
        scale = inverse(pivot)
        square, product = minus(square, times(z, scale), z), times(product, pivot)
        low, high = smaller(pivot, low), larger(pivot, high)
        row += k + 8
        below = row
        for i in range(k + 8, 8 * m, 8):
            v = times(take(F, below + k), scale)
            put(b, i, minus(take(b, i), v, z))
            other = row
            for q in range(k + 8, i + 8, 8):
                put(F, below + q, minus(take(F, below + q), v, take(F, other + k)))
                other += q + 8
            below += i + 8
    put(terms, 0, square)
    put(terms, 8, product)
    put(terms, 16, low)
    put(terms, 24, high)


@inner
def log_of_pivots(m, lane, F, terms):
    """Sum of the logs of one lane's pivots, if possible by way of their product; NaN where one is not positive."""
    if terms[2, lane] > 1.0 / SAFE and terms[3, lane] < SAFE:
        return np.log(terms[1, lane])
    log, p = 0.0, 0
    for i in range(m):
        log += np.log(F[p, lane]) if F[p, lane] > 0.0 else np.nan
        p += i + 2
    return log


@inner
def measure_in_lanes(x, index, observed, means, precisions, n, E, G, d2, log_det, lanes):
    """d^2 and log|Lambda_mm| of all components, eight at a time; lanes without a component are not read."""
    D, (pairs, F, b, terms) = index.shape[0], lanes
    size = list_pairs(index, observed, pairs)
    numbers = precisions.reshape(precisions.shape[0], D * D)
    for first in range(0, n, LANES):
        stop = min(first + LANES, n)
        for j in range(first, stop):
            d2[j] = deviate(x, means[j], precisions[j], index, observed, E[j], G[j])
            gather_lane(numbers[j], pairs, size, index, observed, G[j], j - first, F, b)
        eliminate_lanes(D - observed, F, b, terms)
        for j in range(first, stop):
            d2[j] += terms[0, j - first]
            log_det[j] = log_of_pivots(D - observed, j - first, F, terms)


@inner
def measure_with_gaps(
    x, index, observed, means, precisions, log_dets, counts, n, E, G, d2, log_joint, L, b, lanes
):  # fmt: skip
    """Distances and log joint densities of a row with gaps to every component; returns the smallest distance.

    Both are NaN where the block of the gaps has no factor.
    """
    if x.shape[0] - observed <= lanes.b.shape[0]:
        measure_in_lanes(x, index, observed, means, precisions, n, E, G, d2, log_joint, lanes)
    else:
        for j in range(n):
            d2[j] = deviate(x, means[j], precisions[j], index, observed, E[j], G[j])
            square, log_joint[j] = gap_terms(precisions[j], index, observed, G[j], L, b)
            d2[j] -= square
    for j in range(n):
        if np.isnan(log_joint[j]):
            d2[j] = np.nan
        log_joint[j] = log_height(counts[j], log_dets[j] + log_joint[j], observed) - 0.5 * d2[j]
    return least(d2, n)


@inner
def fill_gaps(precision, index, observed, e, g, L, b):
    """Conditional means into the gaps of e, e_m = -Lambda_mm^-1 Lambda_mo e_o, so that g = Lambda e vanishes there.

    Leaves the factor of Lambda_mm in L.
    """
    D = e.shape[0]
    m = D - observed
    cholesky_of_block(precision, index, observed, L)
    for i in range(m):
        b[i] = -g[index[observed + i]]
    solve_lower(L, m, b)
    solve_lower_transposed(L, m, b)
    for i in range(m):
        row = precision[index[observed + i]]
        e[index[observed + i]] = b[i]
        for a in range(D):
            g[a] += b[i] * row[a]
    for i in range(observed, D):
        g[index[i]] = 0.0


@inner
def eliminate_gaps(precision, index, observed, g, W):
    """The gaps' rows of Lambda, bordered by g and observed columns first, less what they share with the rows before.

    With Lambda_mm = L L' the rows of W become L^-1 (Lambda_mo, Lambda_mm, g_m) = (C, L', z), and the row of g below
    them g_o - C'z, which is Lambda_oo e_o for the e with its gaps filled.
    """
    D = index.shape[0]
    m = D - observed
    for i in range(m + 1):
        row, source = W[i], precision[index[observed + i]] if i < m else g
        for k in range(D):
            row[k] = source[index[k]]
        for k in range(D, W.shape[1]):
            row[k] = 0.0
        if i < m:
            row[D] = g[index[observed + i]]
        for p in range(0, D + 1, 8):
            v = take(row, p)
            for s in range(i):
                v = minus(v, W[s, observed + i], take(W[s], p))
            put(row, p, v)
        if i < m:
            root = 1.0 / np.sqrt(row[observed + i])
            for p in range(0, D + 1, 8):
                put(row, p, times(take(row, p), root))


@inner
def fill_eliminated(index, observed, W, e):
    """e_m = -L'^-1 z into the gaps of e."""
    D = index.shape[0]
    for i in range(D - 1, observed - 1, -1):
        row = W[i - observed]
        value = row[D]
        for k in range(i + 1, D):
            value += row[k] * e[index[k]]
        e[index[i]] = -value / row[i]


@inner
def fill_tile(W, m, i, k, w, c, scale, T):
    """T = scale (w C'C + c h h') for rows i to i + 3 and columns k to k + 7, where h is the row of W below C."""
    v0, v1, v2, v3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
    for s in range(m):
        row = W[s]
        u = take(row, k)
        v0, v1 = minus(v0, row[i], u), minus(v1, row[i + 1], u)
        v2, v3 = minus(v2, row[i + 2], u), minus(v3, row[i + 3], u)
    h = W[m]
    u, w, c = take(h, k), -w * scale, -c * scale
    put(T[i], k, minus(times(v0, w), c * h[i], u))
    put(T[i + 1], k, minus(times(v1, w), c * h[i + 1], u))
    put(T[i + 2], k, minus(times(v2, w), c * h[i + 2], u))
    put(T[i + 3], k, minus(times(v3, w), c * h[i + 3], u))


@inner
def downdate_observed(precision, index, observed, W, w, c, scale, T):
    """Lambda_oo = scale (Lambda_oo - w C'C - c h h'), symmetric to the last bit."""
    m = index.shape[0] - observed
    for k in range(0, observed, 8):
        for i in range(0, min(k + 8, observed), 4):
            fill_tile(W, m, i, k, w, c, scale, T)
    for i in range(observed):
        a, less_row = index[i], T[i]
        row = precision[a]
        for k in range(i, observed):
            value = scale * row[index[k]] - less_row[k]
            row[index[k]] = value
            precision[index[k], a] = value


@inner
def update_component_with_gaps(mean, precision, index, observed, e, g, d2, w, c, W, T):
    """The EM update from the observed part of a row.

    With Sigma_mm += w Lambda_mm^-1 for the gaps, only the observed block of the precision changes:
    Lambda_oo = (Lambda_oo - w C'C - k g g')/(1-w), with C = L^-1 Lambda_mo and k = c/(1 + c d^2), c as for a complete
    row. The marginal of the observed columns is updated as by a complete row, and the regression of the gaps on them
    stays as it is.
    """
    stretch = 1.0 + c * d2
    if stretch <= 0.0:
        return np.nan
    eliminate_gaps(precision, index, observed, g, W)
    fill_eliminated(index, observed, W, e)
    for a in range(e.shape[0]):
        mean[a] += w * e[a]
    downdate_observed(precision, index, observed, W, w, c / stretch, 1.0 / (1.0 - w), T)
    return observed * np.log(1.0 - w) + np.log(stretch)
