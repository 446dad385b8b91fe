"""Small dense linear algebra on one component, written as loops that vectorise."""

import numpy as np

from everlearn.kernels.jit import kernel


@kernel
def symmetric_product(A, e, out):
    """out = A e for a symmetric A; returns e' A e."""
    D = e.shape[0]
    total = 0.0
    for a in range(D):
        row = A[a]
        value = 0.0
        for b in range(D):
            value += row[b] * e[b]
        out[a] = value
        total += value * e[a]
    return total


@kernel
def rank_one_downdate(A, h, scale):
    """A = scale (A - h h'), symmetric to the last bit."""
    D = h.shape[0]
    for a in range(D):
        row = A[a]
        h_a = h[a]
        for b in range(D):
            row[b] = scale * (row[b] - h_a * h[b])


@kernel
def cholesky_of_block(A, index, first, L):
    """Lower Cholesky factor of the block of A on columns index[first:], into L; returns its log-determinant.

    The result is NaN when the block is not positive definite.
    """
    m = index.shape[0] - first
    log_det = 0.0
    for i in range(m):
        for j in range(i + 1):
            value = A[index[first + i], index[first + j]]
            for k in range(j):
                value -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = value / L[j, j]
            elif value > 0.0:
                L[i, i] = np.sqrt(value)
                log_det += np.log(value)
            else:
                return np.nan
    return log_det


@kernel
def solve_lower(L, m, b):
    """Solve L z = b in place for the leading m x m triangle."""
    for i in range(m):
        value = b[i]
        for k in range(i):
            value -= L[i, k] * b[k]
        b[i] = value / L[i, i]


@kernel
def solve_lower_transposed(L, m, b):
    """Solve L' z = b in place for the leading m x m triangle."""
    for i in range(m - 1, -1, -1):
        value = b[i]
        for k in range(i + 1, m):
            value -= L[k, i] * b[k]
        b[i] = value / L[i, i]
