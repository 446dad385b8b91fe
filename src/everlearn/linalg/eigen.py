"""Symmetric eigenproblems of some tens of rows, many at a time in threads.

LAPACK's threads wait for one another there: OpenBLAS takes a lock in every call, and one eigenproblem makes hundreds.
`benchmarks/gpu.py` has both times. For a single one, or for large matrices, NumPy's `eigh` is as good or better.
"""

import numpy as np

from everlearn.linalg.compile import inlined, kernel
from everlearn.linalg.simd import minus, put, spread, take

EPSILON = 2.220446049250313e-16
# Part of the largest number on the diagonal up to which another number is nothing: it moves eigenvalues by less than
# their rounding. Matrices of few directions have many such, whose squares would underflow.
NOTHING = EPSILON**2
# Steps for one eigenvalue, at most; it takes less than two on average.
MOST_STEPS = 60
LANES = 8


@inlined
def add_rows(M, v, first, p):
    """p = sum of v_j times row j of M, from row and column `first` on; zero before."""
    n, size = M.shape[0], M.shape[1]
    begin = first // LANES * LANES
    for at in range(0, size, LANES):
        total = spread(0.0)
        if at >= begin:
            for j in range(first, n):
                total = minus(total, -v[j], take(M, j * size + at))
        put(p, at, total)
    for i in range(begin, first):
        p[i] = 0.0


@inlined
def subtract_outer(M, x, y, first):
    """M -= x y' from row `first` on; y is zero before the columns that count."""
    n, size = M.shape[0], M.shape[1]
    for j in range(first, n):
        for at in range(first // LANES * LANES, size, LANES):
            put(M, j * size + at, minus(take(M, j * size + at), x[j], take(y, at)))


@inlined
def largest_of_diagonal(A):
    """The largest absolute number on the diagonal: of a Gram matrix, the largest of all."""
    largest = 0.0
    for i in range(A.shape[0]):
        largest = max(largest, abs(A[i, i]))
    return largest


@kernel
def tridiagonal(A, off, Q):
    """Reduce symmetric A to tridiagonal form in place, A = Q T Q', by Householder reflections (Golub, Van Loan, 8.3).

    A and Q are (n, m), with zeros in columns from n up to m, a multiple of eight. The diagonal of T is left in that of
    A, and `off` takes what is beside it.
    """
    n, size = A.shape
    V, beta = np.zeros((n, size)), np.zeros(n)
    p = np.zeros(size)
    least = NOTHING * largest_of_diagonal(A)
    for k in range(n - 2):
        v = V[k]
        norm = 0.0
        for i in range(k + 1, n):
            v[i] = A[k, i]
            norm += v[i] * v[i]
        alpha = -np.copysign(np.sqrt(norm), v[k + 1])
        off[k] = alpha
        rest = norm - v[k + 1] * v[k + 1]
        if rest <= least * least:
            off[k] = v[k + 1]  # nothing to reflect
            continue
        v[k + 1] -= alpha
        beta[k] = 2.0 / (rest + v[k + 1] * v[k + 1])
        add_rows(A, v, k + 1, p)
        dot = 0.0
        for i in range(k + 1, n):
            p[i] *= beta[k]
            dot += p[i] * v[i]
        for i in range(k + 1, n):
            p[i] -= 0.5 * beta[k] * dot * v[i]
        subtract_outer(A, v, p, k + 1)
        subtract_outer(A, p, v, k + 1)
    if n > 1:
        off[n - 2] = A[n - 2, n - 1]
    for i in range(n):
        Q[i, i] = 1.0
    for k in range(n - 3, -1, -1):
        if beta[k] != 0.0:
            add_rows(Q, V[k], k + 1, p)
            for i in range(size):
                p[i] *= beta[k]
            subtract_outer(Q, V[k], p, k + 1)


@inlined
def rotate(R, i, s, c):
    """Rotate rows i and i + 1."""
    size = R.shape[1]
    for at in range(i * size, (i + 1) * size, LANES):
        x, y = take(R, at), take(R, at + size)
        put(R, at + size, minus(minus(spread(0.0), -s, x), -c, y))
        put(R, at, minus(minus(spread(0.0), -c, x), s, y))


@kernel
def eigen(G):
    """Eigenvalues of a symmetric matrix, descending, and its eigenvectors, as rows.

    Householder tridiagonalisation and implicit QL steps (Dubrulle, Martin and Wilkinson, 1968).
    """
    n = G.shape[0]
    size = (n + LANES - 1) // LANES * LANES
    A, Q, R = np.zeros((n, size)), np.zeros((n, size)), np.zeros((n, size))
    A[:, :n] = G
    off, d = np.zeros(n), np.empty(n)
    least = NOTHING * largest_of_diagonal(A)
    tridiagonal(A, off, Q)
    for i in range(n):
        d[i] = A[i, i]
    # Rotations mix two eigenvectors at a time: as rows they are contiguous.
    R[:, :n] = Q[:, :n].T
    for first in range(n):
        for _ in range(MOST_STEPS):
            m = first
            while m < n - 1 and abs(off[m]) > max(EPSILON * (abs(d[m]) + abs(d[m + 1])), least):
                m += 1
            if m == first:
                break
            g = (d[first + 1] - d[first]) / (2.0 * off[first])
            g = d[m] - d[first] + off[first] / (g + np.copysign(np.hypot(g, 1.0), g))
            s, c, p, i = 1.0, 1.0, 0.0, m - 1
            while i >= first:
                f, b = s * off[i], c * off[i]
                r = np.sqrt(f * f + g * g)
                off[i + 1] = r
                if r == 0.0:  # underflow: the matrix falls into two here
                    d[i + 1] -= p
                    off[m] = 0.0
                    break
                s, c = f / r, g / r
                g = d[i + 1] - p
                r = (d[i] - g) * s + 2.0 * c * b
                p = s * r
                d[i + 1] = g + p
                g = c * r - b
                rotate(R, i, s, c)
                i -= 1
            if i < first:
                d[first] -= p
                off[first], off[m] = g, 0.0
    order = np.argsort(-d)
    R = np.ascontiguousarray(R[:, :n])
    return d[order], R[order]
