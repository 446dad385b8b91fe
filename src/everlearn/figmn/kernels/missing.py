"""The mixture on rows with missing values: the marginal of what is observed, and the EM update from it.

With e_o = x_o - mu_o and zeros where values are missing, g = Lambda e holds Lambda_oo e_o and Lambda_mo e_o, and with
Lambda_mm = L L' the distance in the marginal of the observed columns is d^2 = e_o' g_o - |L^-1 g_m|^2. Only the
components that a row changes need more. `index` lists the observed columns first, then the missing ones.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.responsibilities import least, log_height
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import cholesky_of_block, multiply_rows, solve_lower, solve_lower_transposed
from everlearn.linalg.simd import inverse, larger, minus, put, smaller, spread, take, times

LANES = 8  # components whose small eliminations run in step, one a SIMD lane; `everlearn.linalg.simd` says what it buys
LANE_COLUMNS = 24  # more missing columns than these make eliminations that are long enough by themselves
SAFE = 1e12  # if all (at most LANE_COLUMNS) pivots lie in [1/SAFE, SAFE], their product cannot over- or underflow


class Lanes(NamedTuple):
    """Room for eliminations in step, of at most m missing columns."""

    pairs: Any  # (m (m + 1)/2,), see `list_pairs`
    F: Any  # (m (m + 1)/2, LANES), lower triangles, row after row
    b: Any  # (m, LANES)
    terms: Any  # (4, LANES), see `eliminate_lanes`


@kernel
def make_lanes(m):
    """Room for the elimination of m columns."""
    size = m * (m + 1) // 2
    lanes = Lanes(np.empty(size, np.uintp), np.empty((size, LANES)), np.empty((m, LANES)), np.empty((4, LANES)))
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
    """g = A e for a symmetric A in columns start to start + 31, where e is zero in the missing columns."""
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
    """e = x - mu, zero where x is missing, and g = Lambda e; returns e' g."""
    D = x.shape[0]
    for a in range(D):
        e[a] = x[a] - mean[a] if x[a] == x[a] else 0.0
    # Only rows of observed columns are read: the others would be multiplied by zero.
    whole = D - D % 32
    for a in range(0, whole, 32):
        multiply_observed(precision, index, observed, e, a, g)
    total = multiply_rows(precision, e, whole, g)
    for a in range(whole):
        total += e[a] * g[a]
    return total


@inner
def eliminate_lanes(m, F, b, terms):
    """Eliminate the missing columns from the triangles and from b, all lanes in step; leaves pivots on the diagonals.

    The terms are -b' A^-1 b for the matrices A, the product of the pivots, the smallest and the largest.
    """
    square, product, low, high = spread(0.0), spread(1.0), spread(np.inf), spread(0.0)
    row = 0
    for k in range(0, 8 * m, 8):
        # An LDL' elimination without roots: b'A^-1 b = sum z_k^2/pivot_k, and |A| is the product of the pivots.
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
    # One logarithm in place of m.
    if terms[2, lane] > 1.0 / SAFE and terms[3, lane] < SAFE:
        return np.log(terms[1, lane])
    log, p = 0.0, 0
    for i in range(m):
        log += np.log(F[p, lane]) if F[p, lane] > 0.0 else np.nan
        p += i + 2
    return log


@inner
def measure_in_lanes(x, observed, state, n, scratch):
    """d^2 of all components and, in place of the log joint density, log|Lambda_mm|: eight components at a time.

    Lanes without a component are not read.
    """
    index, d2, (pairs, F, b, terms) = scratch.index, scratch.d2, scratch.lanes
    D = index.shape[0]
    m, size = D - observed, list_pairs(index, observed, pairs)
    numbers = state.precisions.reshape(state.precisions.shape[0], D * D)
    for first in range(0, n, LANES):
        stop = min(first + LANES, n)
        for j in range(first, stop):
            g, precision = scratch.G[j], numbers[j]
            d2[j] = deviate(x, state.means[j], state.precisions[j], index, observed, scratch.E[j], g)
            for p in range(size):
                F[p, j - first] = precision[pairs[p]]
            for i in range(m):
                b[i, j - first] = g[index[observed + i]]
        eliminate_lanes(m, F, b, terms)
        for j in range(first, stop):
            d2[j] += terms[0, j - first]
            scratch.log_joint[j] = log_of_pivots(m, j - first, F, terms)


@inner
def measure_one_by_one(x, observed, state, n, scratch):
    """The same by a Cholesky factor for each component, where many columns are missing."""
    index, L, b = scratch.index, scratch.L, scratch.b
    m = x.shape[0] - observed
    for j in range(n):
        g = scratch.G[j]
        distance = deviate(x, state.means[j], state.precisions[j], index, observed, scratch.E[j], g)
        scratch.log_joint[j] = cholesky_of_block(state.precisions[j], index, observed, L)
        for i in range(m):
            b[i] = g[index[observed + i]]
        solve_lower(L, m, b)
        for i in range(m):
            distance -= b[i] * b[i]
        scratch.d2[j] = distance


@inner
def measure_missing(x, observed, state, n, scratch):
    """Distances and log joint densities of a row with missing values to every component; returns the smallest distance.

    Both are NaN where the block of the missing columns has no factor.
    """
    d2, log_joint = scratch.d2, scratch.log_joint
    if x.shape[0] - observed <= scratch.lanes.b.shape[0]:
        measure_in_lanes(x, observed, state, n, scratch)
    else:
        measure_one_by_one(x, observed, state, n, scratch)
    for j in range(n):
        # Without a factor of Lambda_mm there is no marginal; NaN makes the row
        # unsafe, and it is learned in covariance form.
        if np.isnan(log_joint[j]):
            d2[j] = np.nan
        # log|Sigma_oo| = log|Sigma| + log|Lambda_mm|
        log_joint[j] = log_height(state.counts[j], state.log_dets[j] + log_joint[j], observed) - 0.5 * d2[j]
    return least(d2, n)


@inner
def fill_missing(precision, observed, e, g, scratch):
    """Conditional means in place of the missing deviations, e_m = -Lambda_mm^-1 Lambda_mo e_o.

    So g = Lambda e vanishes there. Leaves the factor of Lambda_mm in scratch.L.
    """
    index, L, b, D = scratch.index, scratch.L, scratch.b, e.shape[0]
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
    # Exactly zero in theory; what rounding leaves would enter the update.
    for i in range(observed, D):
        g[index[i]] = 0.0


@inner
def eliminate_missing(precision, observed, g, index, W):
    """The missing columns' rows of Lambda, bordered by g and observed columns first, reduced by forward elimination.

    With Lambda_mm = L L' the rows of W become L^-1 (Lambda_mo, Lambda_mm, g_m) = (C, L', z), and the row of g below
    them g_o - C'z, which is Lambda_oo e_o for the e with its missing values filled.
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
    """e_m = -L'^-1 z in place of the missing deviations."""
    D = index.shape[0]
    for i in range(D - 1, observed - 1, -1):
        row = W[i - observed]
        value = row[D]
        for k in range(i + 1, D):
            value += row[k] * e[index[k]]
        e[index[i]] = -value / row[i]


@inner
def fill_tile(W, m, i, k, w, c, T):
    """T = w C'C + c h h' for rows i to i + 3 and columns k to k + 7, where h is the row of W below C."""
    v0, v1, v2, v3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
    for s in range(m):
        row = W[s]
        u = take(row, k)
        v0, v1 = minus(v0, row[i], u), minus(v1, row[i + 1], u)
        v2, v3 = minus(v2, row[i + 2], u), minus(v3, row[i + 3], u)
    h = W[m]
    u, w, c = take(h, k), -w, -c
    put(T[i], k, minus(times(v0, w), c * h[i], u))
    put(T[i + 1], k, minus(times(v1, w), c * h[i + 1], u))
    put(T[i + 2], k, minus(times(v2, w), c * h[i + 2], u))
    put(T[i + 3], k, minus(times(v3, w), c * h[i + 3], u))


@inner
def downdate_observed(precision, observed, index, w, c, W, T):
    """Lambda_oo = (Lambda_oo - w C'C - c h h')/(1-w), symmetric to the last bit; h is the row of W below C."""
    m, scale = index.shape[0] - observed, 1.0 / (1.0 - w)
    for k in range(0, observed, 8):
        for i in range(0, min(k + 8, observed), 4):
            fill_tile(W, m, i, k, w * scale, c * scale, T)
    for i in range(observed):
        a, less_row = index[i], T[i]
        row = precision[a]
        for k in range(i, observed):
            value = scale * row[index[k]] - less_row[k]
            row[index[k]] = value
            precision[index[k], a] = value


@inner
def update_missing(j, observed, state, w, c, scratch):
    """The EM update of component j from the observed part of a row; returns the growth of log|Sigma|.

    With Sigma_mm += w Lambda_mm^-1 for the missing values, only the observed block of the precision changes:
    Lambda_oo = (Lambda_oo - w C'C - k g g')/(1-w), with C = L^-1 Lambda_mo and k = c/(1 + c d^2), c as for a complete
    row. The marginal of the observed columns is updated as by a complete row, and the regression of the missing columns
    on them stays as it is. NaN when definiteness would be lost.
    """
    # The observed columns take the row as a complete one would be taken (Sherman-Morrison); the missing ones follow by
    # their regression on these, so that the determinant grows by the observed columns' factors alone.
    stretch = 1.0 + c * scratch.d2[j]
    if stretch <= 0.0:
        return np.nan
    precision, e, index, W = state.precisions[j], scratch.E[j], scratch.index, scratch.W
    eliminate_missing(precision, observed, scratch.G[j], index, W)
    fill_eliminated(index, observed, W, e)
    for a in range(e.shape[0]):
        state.means[j, a] += w * e[a]
    downdate_observed(precision, observed, index, w, c / stretch, W, scratch.L)
    return observed * np.log(1.0 - w) + np.log(stretch)
