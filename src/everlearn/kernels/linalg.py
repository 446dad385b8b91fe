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


@kernel
def subtract_stack(X, means):
    """X - mu for each mean."""
    k, (m, D) = means.shape[0], X.shape
    out = np.empty((k, m, D))
    for j in range(k):
        for i in range(m):
            for a in range(D):
                out[j, i, a] = X[i, a] - means[j, a]
    return out


@kernel
def downdate_stack(A, Z, scale):
    """A = scale (A - Z'Z) for a stack of symmetric matrices, symmetric to the last bit."""
    k, m, D = Z.shape
    for j in range(k):
        for a in range(D):
            row = A[j, a]
            s = 0
            while s + 4 <= m:
                c0, c1, c2, c3 = Z[j, s, a], Z[j, s + 1, a], Z[j, s + 2, a], Z[j, s + 3, a]
                for b in range(D):
                    row[b] -= c0 * Z[j, s, b] + c1 * Z[j, s + 1, b] + c2 * Z[j, s + 2, b] + c3 * Z[j, s + 3, b]
                s += 4
            while s < m:
                for b in range(D):
                    row[b] -= Z[j, s, a] * Z[j, s, b]
                s += 1
            for b in range(D):
                row[b] *= scale[j]


@kernel
def solve_stack(R, Y):
    """Solve R'Z = Y in place for a stack of upper triangles R."""
    k, m, D = Y.shape
    for j in range(k):
        for i in range(m):
            s = 0
            while s + 4 <= i:
                c0, c1, c2, c3 = R[j, s, i], R[j, s + 1, i], R[j, s + 2, i], R[j, s + 3, i]
                for a in range(D):
                    Y[j, i, a] -= c0 * Y[j, s, a] + c1 * Y[j, s + 1, a] + c2 * Y[j, s + 2, a] + c3 * Y[j, s + 3, a]
                s += 4
            while s < i:
                for a in range(D):
                    Y[j, i, a] -= R[j, s, i] * Y[j, s, a]
                s += 1
            scale = 1.0 / R[j, i, i]
            for a in range(D):
                Y[j, i, a] *= scale


@kernel
def invert_upper(R):
    """Inverses of a stack of upper triangles."""
    k, m, _ = R.shape
    out = np.zeros((k, m, m))
    for j in range(k):
        for i in range(m - 1, -1, -1):
            out[j, i, i] = 1.0 / R[j, i, i]
            for s in range(i + 1, m):
                c = R[j, i, s] * out[j, i, i]
                for q in range(s, m):
                    out[j, i, q] -= c * out[j, s, q]
    return out


@kernel
def mirror_upper(A):
    """Copy the upper triangle of A onto the lower one, tile by tile."""
    D = A.shape[0]
    tile = 32
    for p in range(0, D, tile):
        for q in range(p, D, tile):
            for a in range(p, min(p + tile, D)):
                for b in range(max(q, a + 1), min(q + tile, D)):
                    A[b, a] = A[a, b]
