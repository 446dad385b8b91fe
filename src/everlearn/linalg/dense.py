"""Small dense linear algebra on one component, written as loops that vectorise."""

import numpy as np

from everlearn.linalg.arrays import empty_matrix, empty_stack, empty_vector
from everlearn.linalg.compile import inner, kernel, loop


@inner
def multiply_rows(A, e, first, out):
    """out = A e for the rows of A from the first on; returns their share of e' A e."""
    D = e.shape[0]
    total = 0.0
    a = first
    while a + 4 <= D:
        # Four rows at a time: each number of e that is loaded serves four products.
        v0, v1, v2, v3 = 0.0, 0.0, 0.0, 0.0
        for b in range(D):
            v0 += A[a, b] * e[b]
            v1 += A[a + 1, b] * e[b]
            v2 += A[a + 2, b] * e[b]
            v3 += A[a + 3, b] * e[b]
        out[a], out[a + 1], out[a + 2], out[a + 3] = v0, v1, v2, v3
        total += v0 * e[a] + v1 * e[a + 1] + v2 * e[a + 2] + v3 * e[a + 3]
        a += 4
    while a < D:
        value = 0.0
        for b in range(D):
            value += A[a, b] * e[b]
        out[a] = value
        total += value * e[a]
        a += 1
    return total


@inner
def symmetric_product(A, e, out):
    """out = A e for a symmetric A; returns e' A e."""
    return multiply_rows(A, e, 0, out)


@inner
def rank_one_update(A, h, sign, scale):
    """A = scale (A + sign h h'), symmetric to the last bit."""
    D = h.shape[0]
    for a in range(D):
        # (a, b) and (b, a) round the same product of h[a] and h[b]: symmetry is kept without a copy.
        c = sign * h[a]
        for b in range(D):
            A[a, b] = scale * (A[a, b] + c * h[b])


@inner
def cholesky(A, m, least):
    """Lower Cholesky factor of the leading m x m block of a symmetric A, in place; returns its log-determinant.

    Only the lower triangle is read and written. The result is NaN when a pivot is not more than the share `least` of
    its diagonal entry: with zero, when the block is not positive definite; with m times the rounding unit, when a
    pivot is nothing but rounding.
    """
    log_det = 0.0
    for i in range(m):
        row = A[i]
        for j in range(i):
            other, value = A[j], row[j]
            for k in range(j):
                value -= row[k] * other[k]
            row[j] = value / other[j]
        value = row[i]
        for k in range(i):
            value -= row[k] * row[k]
        # row[i] still is the diagonal entry of A. `not >` refuses NaN as well.
        if not value > least * row[i]:
            return np.nan
        row[i] = np.sqrt(value)
        log_det += np.log(value)
    return log_det


@inner
def cholesky_of_block(A, index, first, L):
    """`cholesky` of the block of A on columns index[first:], into L."""
    m = index.shape[0] - first
    for i in range(m):
        source, row = A[index[first + i]], L[i]
        for j in range(i + 1):
            row[j] = source[index[first + j]]
    return cholesky(L, m, 0.0)


@inner
def inverse_of_factor(L, m, U):
    """Upper triangle U = L'^-1 of the leading m x m triangle L, so that U U' = (L L')^-1; zeros below."""
    for j in range(m):
        for i in range(j):
            U[j, i] = 0.0
        U[j, j] = 1.0 / L[j, j]
        for i in range(j + 1, m):
            value = 0.0
            for k in range(j, i):
                value -= L[i, k] * U[j, k]
            U[j, i] = value / L[i, i]


@inner
def spd_inverse(A, m, L):
    """Inverse of the leading m x m block of a symmetric positive definite A, in place; returns log|A|.

    Symmetric to the last bit. L is scratch of at least the same size. NaN, and A as it was, where A is not definite.
    """
    for i in range(m):
        for j in range(i + 1):
            L[i, j] = A[i, j]
    log_det = cholesky(L, m, 0.0)
    # Not NaN: the block has a factor.
    if log_det == log_det:
        inverse_of_factor(L, m, A)
        # U U' in place: entry (i, j) needs rows i and j from column j on, which are overwritten later.
        for i in range(m):
            for j in range(i, m):
                value = 0.0
                for k in range(j, m):
                    value += A[i, k] * A[j, k]
                A[i, j] = value
        for i in range(m):
            for j in range(i):
                A[i, j] = A[j, i]
    return log_det


@inner
def log_sum_exp(values, n):
    """log sum exp of the first n values; -inf when all of them are, or there are none."""
    top = -np.inf
    for j in range(n):
        top = max(top, values[j])
    # -inf less -inf would be NaN.
    if top == -np.inf:
        return top
    mass = 0.0
    for j in range(n):
        mass += np.exp(values[j] - top)
    return top + np.log(mass)


@inner
def softmax(values, n, out):
    """exp of the first n values, normalised to sum to one, into `out`; returns their log-sum-exp.

    Zeros where all values are -inf.
    """
    top = -np.inf
    for j in range(n):
        top = max(top, values[j])
    mass = 0.0
    for j in range(n):
        out[j] = np.exp(values[j] - top) if top > -np.inf else 0.0
        mass += out[j]
    if mass > 0.0:
        for j in range(n):
            out[j] /= mass
    return top + np.log(mass) if mass > 0.0 else top


@inner
def dot(a, b, n):
    """Product of the first n numbers of two vectors."""
    value = 0.0
    for i in range(n):
        value += a[i] * b[i]
    return value


@inner
def total(a, n):
    """Sum of the first n numbers of a vector."""
    value = 0.0
    for i in range(n):
        value += a[i]
    return value


@inner
def divide_columns(x, seen, gaps):
    """Numbers of the columns of x that are observed, and of those that are not, in order; returns how many are."""
    g, h = 0, 0
    for i in range(len(x)):
        if x[i] == x[i]:
            seen[g] = i
            g += 1
        else:
            gaps[h] = i
            h += 1
    return g


@inner
def solve_lower(L, m, b):
    """Solve L z = b in place for the leading m x m triangle."""
    for i in range(m):
        value = b[i]
        for k in range(i):
            value -= L[i, k] * b[k]
        b[i] = value / L[i, i]


@inner
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
def combine_stack(coefficients, E):
    """Sums of the rows of each matrix with coefficients."""
    k, m, D = E.shape
    out = np.zeros((k, D))
    for j in range(k):
        for i in range(m):
            c = coefficients[j, i]
            for a in range(D):
                out[j, a] += c * E[j, i, a]
    return out


@loop
def subtract_two(A, a, Z, s):
    """Rows a and a + 1 of A less those of Z'Z, for rows s to s + 3 of Z."""
    r0, r1 = A[a], A[a + 1]
    z0, z1, z2, z3 = Z[s], Z[s + 1], Z[s + 2], Z[s + 3]
    p0, p1, p2, p3 = z0[a], z1[a], z2[a], z3[a]
    q0, q1, q2, q3 = z0[a + 1], z1[a + 1], z2[a + 1], z3[a + 1]
    for b in range(r0.shape[0]):
        r0[b] -= p0 * z0[b] + p1 * z1[b] + p2 * z2[b] + p3 * z3[b]
        r1[b] -= q0 * z0[b] + q1 * z1[b] + q2 * z2[b] + q3 * z3[b]


@loop
def subtract_one(A, a, Z, s):
    """Row a of A less that of Z'Z, for rows s to s + 3 of Z."""
    r0 = A[a]
    z0, z1, z2, z3 = Z[s], Z[s + 1], Z[s + 2], Z[s + 3]
    p0, p1, p2, p3 = z0[a], z1[a], z2[a], z3[a]
    for b in range(r0.shape[0]):
        r0[b] -= p0 * z0[b] + p1 * z1[b] + p2 * z2[b] + p3 * z3[b]


@inner
def downdate(A, Z, scale):
    """A = scale (A - Z'Z) for a symmetric A, symmetric to the last bit."""
    m, D = Z.shape
    for s in range(0, m - 3, 4):
        for a in range(0, D - 1, 2):
            subtract_two(A, a, Z, s)
        if D % 2 == 1:
            subtract_one(A, D - 1, Z, s)
    for a in range(D):
        for s in range(m - m % 4, m):
            c = Z[s, a]
            for b in range(D):
                A[a, b] -= c * Z[s, b]
    for a in range(D):
        # Both triangles were computed, in loops that may be fused differently: one is copied onto the other.
        for b in range(a, D):
            A[a, b] *= scale
            A[b, a] = A[a, b]


@inner
def downdate_stack(A, Z, scale):
    """A = scale (A - Z'Z) for a stack of symmetric matrices."""
    for j in range(Z.shape[0]):
        downdate(A[j], Z[j], scale[j])


@inner
def solve_stack(R, Y):
    """Solve R'Z = Y in place for a stack of upper triangles R."""
    k, m, D = Y.shape
    for j in range(k):
        for i in range(m):
            row = Y[j, i]
            # Four solved rows leave row i in one pass: it is loaded and stored once for them.
            fours = i - i % 4
            for s in range(0, fours, 4):
                z0, z1, z2, z3 = Y[j, s], Y[j, s + 1], Y[j, s + 2], Y[j, s + 3]
                c0, c1, c2, c3 = R[j, s, i], R[j, s + 1, i], R[j, s + 2, i], R[j, s + 3, i]
                for a in range(D):
                    row[a] -= c0 * z0[a] + c1 * z1[a] + c2 * z2[a] + c3 * z3[a]
            for s in range(fours, i):
                z0, c0 = Y[j, s], R[j, s, i]
                for a in range(D):
                    row[a] -= c0 * z0[a]
            scale = 1.0 / R[j, i, i]
            for a in range(D):
                row[a] *= scale


@inner
def whiten_one(C, L, U):
    """Upper triangle U with U U' = C^-1, and log|C|, by way of the factor L of C; NaN if a pivot is all rounding."""
    D = C.shape[0]
    for i in range(D):
        for j in range(i + 1):
            L[i, j] = C[i, j]
    log_det = cholesky(L, D, D * 2.0**-52)
    if log_det == log_det:
        inverse_of_factor(L, D, U)
    return log_det


@kernel
def whiten_stack(C):
    """Whitening matrices of a stack of covariances, and their log-determinants: NaN where a matrix has none."""
    n, D, _ = C.shape
    L, U, log_dets = empty_matrix(D, D), empty_stack(n, D, D), empty_vector(n)
    for k in range(n):
        log_dets[k] = whiten_one(C[k], L, U[k])
    return U, log_dets


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
def less_squares_above(R, diagonal):
    """diagonal_t - sum_s R_st^2 over the rows s above t, for an upper triangle R."""
    m = R.shape[0]
    rest = diagonal.copy()
    for s in range(m):
        for t in range(s + 1, m):
            rest[t] -= R[s, t] * R[s, t]
    return rest


@inner
def mirror_upper(A):
    """Copy the upper triangle of A onto the lower one, tile by tile."""
    D = A.shape[0]
    tile = 32
    for p in range(0, D, tile):
        for q in range(p, D, tile):
            for a in range(p, min(p + tile, D)):
                for b in range(max(q, a + 1), min(q + tile, D)):
                    A[b, a] = A[a, b]


@inner
def subtract_rows(A, B, scale, start, stop, rounded):
    """Rows start to stop of the upper triangle of A = scale (A - B); a rounded copy goes into `rounded`."""
    D = A.shape[0]
    for a in range(start, stop):
        row, other, copy = A[a, a:], B[a, a:], rounded[a, a:]
        for b in range(D - a):
            row[b] = scale * (row[b] - other[b])
            copy[b] = row[b]


# -- copies, inverses and factors of small definite matrices -----------------------------------------

# Share of the mean diagonal that keeps a matrix definite whatever its condition: a hundred units of rounding.
JITTER = 1e-14


# Loops, because numba compiles its text handling, which takes seconds, for the error message of a slice assignment.
@inner
def copy_vector(source, target):
    """Copy one array to another."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@inner
def copy_matrix(source, target):
    """Copy one matrix to another."""
    for i in range(source.shape[0]):
        copy_vector(source[i], target[i])


@inner
def invert_spd(A, column):
    """Invert a symmetric positive definite A in place by sweeps; returns its log-determinant.

    The diagonal grows by JITTER of its mean first, which is below rounding unless A is singular to working precision.
    """
    q = A.shape[0]
    log_det = 0.0
    jitter = JITTER * np.trace(A) / q
    for k in range(q):
        A[k, k] += jitter
    for k in range(q):
        # Sweep of pivot k over the lower triangle. Pivots come out as in an elimination, so that their logs sum to
        # log|A|; when all are swept, the triangle holds -A^-1.
        pivot = max(A[k, k], jitter)
        log_det += np.log(pivot)
        for j in range(k):
            column[j] = A[k, j]
        column[k] = 0.0
        for j in range(k + 1, q):
            column[j] = A[j, k]
        for i in range(q):
            row = A[i]
            f = column[i] / pivot
            for j in range(i + 1):
                row[j] -= f * column[j]
        for j in range(k):
            A[k, j] = column[j] / pivot
        for j in range(k + 1, q):
            A[j, k] = column[j] / pivot
        A[k, k] = -1.0 / pivot
    for i in range(q):
        for j in range(i + 1):
            A[i, j] = -A[i, j]
            A[j, i] = A[i, j]
    return log_det


@inner
def inverse_factor(A, P):
    """Upper triangular P with P P' = A^-1 for a symmetric positive definite A, which is destroyed.

    A pivot that rounding has made too small is kept at JITTER of the mean diagonal.
    """
    q = A.shape[0]
    least = JITTER * np.trace(A) / q
    for i in range(q):
        row = A[i]
        for j in range(i + 1):
            value = row[j]
            for k in range(j):
                value -= row[k] * A[j, k]
            # The floor keeps the root real and the divisions below finite.
            row[j] = value / A[j, j] if j < i else np.sqrt(max(value, least))
    for j in range(q):
        target = P[j]
        for i in range(q):
            value = 1.0 if i == j else 0.0
            for k in range(j, i):
                value -= A[i, k] * target[k]
            target[i] = value / A[i, i] if i >= j else 0.0
