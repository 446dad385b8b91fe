"""The covariance of a component from its scatter and the shape that all components share."""

import numpy as np

from everlearn.linalg.arrays import empty_matrix
from everlearn.linalg.compile import inlined, inner, kernel
from everlearn.linalg.simd import minus, put, spread, take, times
from everlearn.mixture.kernels.distances import LANES

LOG_2PI = np.log(2.0 * np.pi)


@inlined
def covariance_factor(count, tau):
    """Sigma over B = tau C + S + (c + tau) ridge: posterior mean of the covariance, widened for the unknown mean."""
    return (1.0 + 1.0 / max(count, 1.0)) / (tau + max(count - 1.0, 0.0))


@inlined
def posterior_scatter(count, scatter, shape, out):
    """B = tau C + S + (c + tau) diag(ridge) into `out`, from the lower triangle of S, or from its diagonal."""
    for i in range(out.shape[0]):
        for j in range(i + 1):
            off = shape.diagonal and j < i
            out[i, j] = 0.0 if off else shape.tau * shape.matrix[i, j] + scatter[i, j]
            out[j, i] = out[i, j]
        out[i, i] += (count + shape.tau) * shape.ridge[i]


@kernel
def invert_factor(B, out):
    """Inverse of the lower Cholesky factor of B into `out`; returns log|B|.

    A matrix that is not definite to rounding has its variances inflated step by step until it is, in place.
    """
    D = B.shape[0]
    U, W = padded(D), padded(D)
    log_det = factorise(B, U)
    invert_upper(U, W)
    for i in range(D):
        for j in range(D):
            out[i, j] = W[i, j] if j <= i else 0.0
    return log_det


@kernel
def log_determinant(B):
    """log|B|, as `invert_factor` has it."""
    return factorise(B, padded(B.shape[0]))


@kernel
def padded(D):
    """Room for a triangle whose rows are taken eight numbers at a time."""
    return empty_matrix(D, (D + 2 * LANES - 1) // LANES * LANES)


@inner
def factorise(B, U):
    """Upper Cholesky factor of B into the room U; variances of B are inflated until it has one. Returns log|B|."""
    log_det, inflation = upper_factor(B, U), 1e-13
    # Shares of the variances, so that the units of the columns do not matter.
    while not np.isfinite(log_det) and inflation < 1.0:
        for i in range(B.shape[0]):
            B[i, i] *= 1.0 + inflation
        log_det = upper_factor(B, U)
        inflation *= 10.0
    return log_det


@inner
def upper_factor(B, U):
    """Upper Cholesky factor of a symmetric B into the room U: U'U = B; returns log|B|, NaN if a pivot is all rounding.

    Row by row: U[j] = (B[j] - sum_k U[k, j] U[k]) / U[j, j]. Sums over rows, of which eight columns fill a register,
    and not products of two short rows, each of which ends in a sum across one: with the inverse 3 times as fast at 16
    columns and 6 times at 34.
    """
    D, P = B.shape[0], U.shape[1]
    log_det = 0.0
    for j in range(D):
        row = U[j]
        for i in range(j, D):
            row[i] = B[i, j]
        for i in range(D, P):
            row[i] = 0.0
        c = j
        while c + 3 * LANES < D:
            # Four registers, none of which waits for another.
            p, q, r, s = take(row, c), take(row, c + LANES), take(row, c + 2 * LANES), take(row, c + 3 * LANES)
            for k in range(j):
                a, at = U[k, j], k * P + c
                p, q = minus(p, a, take(U, at)), minus(q, a, take(U, at + LANES))
                r, s = minus(r, a, take(U, at + 2 * LANES)), minus(s, a, take(U, at + 3 * LANES))
            put(row, c, p)
            put(row, c + LANES, q)
            put(row, c + 2 * LANES, r)
            put(row, c + 3 * LANES, s)
            c += 4 * LANES
        while c < D:
            p = take(row, c)
            for k in range(j):
                p = minus(p, U[k, j], take(U, k * P + c))
            put(row, c, p)
            c += LANES
        pivot = row[j]
        # `not >` refuses NaN as well.
        if not pivot > D * 2.0**-52 * B[j, j]:
            return np.nan
        log_det += np.log(pivot)
        for c in range(j, D, LANES):
            put(row, c, times(take(row, c), 1.0 / np.sqrt(pivot)))
    return log_det


@inner
def invert_upper(U, W):
    """W = U'^-1, a lower triangle, for an upper triangle U, both with padded rows.

    Row by row: W[i] = (e_i - sum_k U[k, i] W[k]) / U[i, i].
    """
    D, P = U.shape
    for i in range(D):
        row, scale, c = W[i], 1.0 / U[i, i], 0
        while c + 3 * LANES <= i:
            p, q, r, s = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
            for k in range(c, i):
                a, at = U[k, i], k * P + c
                p, q = minus(p, a, take(W, at)), minus(q, a, take(W, at + LANES))
                r, s = minus(r, a, take(W, at + 2 * LANES)), minus(s, a, take(W, at + 3 * LANES))
            put(row, c, times(p, scale))
            put(row, c + LANES, times(q, scale))
            put(row, c + 2 * LANES, times(r, scale))
            put(row, c + 3 * LANES, times(s, scale))
            c += 4 * LANES
        while c <= i:
            p = spread(0.0)
            for k in range(c, i):
                p = minus(p, U[k, i], take(W, k * P + c))
            put(row, c, times(p, scale))
            c += LANES
        # Rows before the i-th have nothing in its column.
        row[i] = scale
        while c < P:
            put(row, c, spread(0.0))
            c += LANES


def inverse_factor(B):
    """`invert_factor` of a matrix, which stays as it is: the inverse of its lower Cholesky factor, and log|B|."""
    out = np.empty(B.shape)
    return out, invert_factor(np.array(B, order="C"), out)


# -- for Python: as a kernel of its own, each would be compiled for half a second -----------------------


def factors_of_counts(counts, tau):
    """`covariance_factor` of many counts."""
    return (1.0 + 1.0 / np.maximum(counts, 1.0)) / (tau + np.maximum(counts - 1.0, 0.0))


def posterior_scatters(counts, scatters, shape):
    """`posterior_scatter` of many components."""
    lower = np.tril(scatters, -1)
    S = lower + lower.transpose(0, 2, 1) + np.eye(scatters.shape[1]) * np.diagonal(scatters, axis1=1, axis2=2)[:, None]
    B = shape.tau * shape.matrix + S + (counts + shape.tau)[:, None, None] * np.diag(shape.ridge)
    return B * np.eye(B.shape[1]) if shape.diagonal else B


def covariances_of(components, shape):
    """Covariances of all components, (K, D, D), after a refresh."""
    K = int(components.size[0])
    counts = components.counts[:K]
    scale = factors_of_counts(counts, shape.tau)
    return posterior_scatters(counts, components.scatter[:K], shape) * scale[:, None, None]
