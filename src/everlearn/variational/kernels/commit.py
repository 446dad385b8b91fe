"""On-line variational Bayes for PPCA, one model: what learning a planned row changes."""

import math

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_matrix, copy_vector

GAIN_TOLERANCE = 0.02  # columns observed nearly as often as the rows share one gain, which saves O(p^2) for each


@inner
def new_axes(plan, m):
    """The affine change of the latent variables that gives them mean zero and unit second moment."""
    K, shift, scale = plan.K, plan.shift, plan.scale
    # K sums the second moments of (y, 1): its last row over N is the mean of y, K_ii/N the second moment.
    N = K[m, m]
    for i in range(m):
        shift[i] = K[i, m] / N
        # The floor keeps an axis that explains nothing from dividing by zero.
        scale[i] = math.sqrt(max(K[i, i] / N - shift[i] * shift[i], 1e-12))


@inner
def change_axes(A, m, shift, scale):
    """A <- T^-1 A T^-T for y = shift + scale y'."""
    p = A.shape[0]
    for i in range(m):
        for j in range(p):
            A[i, j] = (A[i, j] - shift[i] * A[m, j]) / scale[i]
    for i in range(m):
        for j in range(p):
            A[j, i] = (A[j, i] - shift[i] * A[j, m]) / scale[i]


@inner
def change_inverse(A, m, shift, scale):
    """A^-1 <- T'A^-1 T for y = shift + scale y', given the inverse."""
    p = A.shape[0]
    # Changed rather than inverted again: O(p^2), and no digits lost.
    for i in range(p):
        for j in range(m):
            A[i, m] += A[i, j] * shift[j]
            A[i, j] *= scale[j]
    for j in range(p):
        for i in range(m):
            A[m, j] += A[i, j] * shift[i]
            A[i, j] *= scale[i]


@inner
def change_loadings(B, lam, x, plan):
    """B <- T^-1 (lam B + ybar x') in one pass."""
    p, n = B.shape
    m = p - 1
    ybar, shift, scale = plan.ybar, plan.shift, plan.scale
    for c in range(m):
        f, g, h = lam / scale[c], -lam * shift[c] / scale[c], (ybar[c] - shift[c]) / scale[c]
        for i in range(n):
            B[c, i] = f * B[c, i] + g * B[m, i] + h * x[i]
    for i in range(n):
        B[m, i] = lam * B[m, i] + x[i]


@kernel
def slow_columns(row, seen, N, p, filled):
    """Columns that a row does not observe, or that earlier rows observed less often, with their gains.

    A column's posterior has precision K n_i/N for the n_i rows that observed it, so that its gain is larger by
    (N + p)/(n_i + p). A gap teaches nothing: gain 0, and `filled` is NaN there.
    """
    n = len(row.x)
    copy_vector(row.x, filled)
    for i in row.gaps:
        filled[i] = np.nan
    columns, gains = np.empty(n, dtype=np.int64), np.empty(n)
    count = 0
    for i in range(n):
        gain = 0.0 if np.isnan(filled[i]) else (N + p) / (seen[i] + p)
        if abs(gain - 1.0) > GAIN_TOLERANCE:
            columns[count], gains[count] = i, gain
            count += 1
    return columns[:count], gains


@inner
def change_column(x, b, gain, lam, K_inv, plan, e):
    """e = (gain - 1) R_i for one column b of B, and its share in C'; returns x_i or what stands for it."""
    S, C_new, ybar, mean, fast = plan.S, plan.C, plan.ybar, plan.row, plan.column
    p = len(b)
    fit = 0.0
    for c in range(p):
        mean[c] = 0.0
        for d in range(p):
            mean[c] += K_inv[c, d] * b[d]
        fit += mean[c] * ybar[c]
    # The expectation in place of the gap: then e = S M_i with gain 0, and the loadings of the column stay as they are.
    if np.isnan(x):
        x = fit
    for c in range(p):
        R = (x - fit) * ybar[c]
        for d in range(p):
            R -= S[c, d] * mean[d]
        e[c] = (gain - 1.0) * R
        fast[c] = lam * b[c] + x * ybar[c]
    for c in range(p):
        for d in range(p):
            C_new[c, d] += fast[c] * e[d] + e[c] * fast[d] + e[c] * e[d]
    return x


@kernel
def commit_with_gaps(row, member, seen, lam, plan):
    """Learn a row where columns differ in how often they are observed."""
    B, filled, shift, scale = member.B, plan.fit, plan.shift, plan.scale
    p, n = B.shape
    m = p - 1
    for i in range(n):
        seen[i] = lam * seen[i] + 1.0
    # A gap does not count as an observation.
    for i in row.gaps:
        seen[i] -= 1.0
    columns, gains = slow_columns(row, seen, plan.K[m, m], p, filled)
    E = np.empty((len(columns), p))
    for k in range(len(columns)):
        i = columns[k]
        # Corrections are computed before B changes and added after it.
        filled[i] = change_column(filled[i], B[:, i], gains[k], lam, member.K_inv, plan, E[k])
    change_loadings(B, lam, filled, plan)
    for k in range(len(columns)):
        for c in range(m):
            B[c, columns[k]] += (E[k, c] - shift[c] * E[k, m]) / scale[c]
        B[m, columns[k]] += E[k, m]


@inner
def commit(row, member, seen, lam, gappy, plan):
    """Carry out a plan in place, and bring the latent axes back to mean zero and unit second moment."""
    m = member.B.shape[0] - 1
    # The axes are changed in the same pass over B that adds the row, which is what a row costs.
    new_axes(plan, m)
    if gappy:
        commit_with_gaps(row, member, seen, lam, plan)
    else:
        change_loadings(member.B, lam, row.x, plan)
    change_axes(plan.K, m, plan.shift, plan.scale)
    change_axes(plan.C, m, plan.shift, plan.scale)
    change_inverse(plan.K_inv, m, plan.shift, plan.scale)
    copy_matrix(plan.K, member.K)
    copy_matrix(plan.C, member.C)
    copy_matrix(plan.K_inv, member.K_inv)
    member.a[0], member.b[0] = plan.a[0], plan.b[0]
