"""Variational PPCA from the few rows since a change: all of them at once, in rounds of variational EM."""

import math

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import copy_matrix, invert_spd
from everlearn.variational.kernels.posterior import (
    K_INV_Y,
    K_NEW,
    M_M,
    ROW,
    S_Y,
    SCRATCH,
    Y_BAR,
    latent,
    observe,
    residual,
    times,
    trace_of_product,
)

ROUNDS = 3


@kernel
def gram(B, C):
    """C = B B'."""
    p, n = B.shape
    for c in range(p):
        for d in range(c + 1):
            value = 0.0
            for i in range(n):
                value += B[c, i] * B[d, i]
            C[c, d] = value
            C[d, c] = value


@kernel
def gaps_of(row, origin, x):
    """x = row - origin with zeros in the gaps; returns their indices and |x|^2."""
    n = len(row)
    count = 0
    xx = 0.0
    for i in range(n):
        x[i] = row[i] - origin[i]
        if np.isnan(x[i]):
            x[i] = 0.0
            count += 1
        xx += x[i] * x[i]
    gaps = np.empty(count, dtype=np.int64)
    if count > 0:
        count = 0
        for i in range(n):
            if np.isnan(row[i]):
                gaps[count] = i
                count += 1
    return gaps, xx


@kernel
def replay(rows, origin, prior_B, prior_K, prior_noise, B, K, C, K_inv, noise, tau, rounding, P, V, fit):
    """Variational EM over `rows`, begun at the model as it is; parameter expansion after every round.

    The model is changed in place; P and V are a plan, used as scratch. A known `tau` is positive.
    """
    p, n = B.shape
    m = p - 1
    B_new, x = np.empty((p, n)), np.empty(n)
    for _ in range(ROUNDS):
        precision = tau if tau > 0.0 else noise[0] / noise[1]
        copy_matrix(prior_B, B_new)
        copy_matrix(prior_K, P[K_NEW])
        squares, cells = 0.0, -n * p
        for r in range(len(rows)):
            gaps, _ = gaps_of(rows[r], origin, x)
            observe(x, gaps, B, C, K_inv, 1.0, P, V)
            latent(precision, n - len(gaps), m, K_inv, 1.0, P, V)
            add_row(x, gaps, B, K_inv, P, V, B_new)
            times(K_inv, V[Y_BAR], V[K_INV_Y])
            squares += residual(x, gaps, B, V[K_INV_Y], fit) + trace_of_product(P[S_Y], P[M_M])
            cells += n - len(gaps)
        noise[0] = prior_noise[0] + 0.5 * max(cells, 0)
        noise[1] = max(prior_noise[1] + 0.5 * squares, noise[0] * rounding)
        copy_matrix(B_new, B)
        copy_matrix(P[K_NEW], K)
        expand(B, K, C, K_inv, P[SCRATCH])


@kernel
def add_row(x, gaps, B, K_inv, P, V, B_new):
    """Add a row's expected statistics: Y to K, x ybar' to B, and in a gap the expectation M Y."""
    S, K_new, ybar, mean = P[S_Y], P[K_NEW], V[Y_BAR], V[ROW]
    p, n = B.shape
    for c in range(p):
        for i in range(n):
            B_new[c, i] += ybar[c] * x[i]
        for d in range(p):
            K_new[c, d] += S[c, d] + ybar[c] * ybar[d]
    for i in gaps:
        fit = 0.0
        for c in range(p):
            mean[c] = 0.0
            for d in range(p):
                mean[c] += K_inv[c, d] * B[d, i]
            fit += mean[c] * ybar[c]
        for c in range(p):
            B_new[c, i] += fit * ybar[c]
            for d in range(p):
                B_new[c, i] += S[c, d] * mean[d]


@kernel
def expand(B, K, C, K_inv, L):
    """Parameter expansion: latent axes of mean zero and unit covariance, so that K = N I; C and K^-1 follow.

    y = shift + L y' with L L' the covariance of the latent variables that K holds; M <- M T, K <- T^-1 K T^-T.
    """
    p, n = B.shape
    m = p - 1
    N = K[m, m]
    for c in range(m):
        for d in range(c + 1):
            value = (K[c, d] - K[c, m] * K[d, m] / N) / N
            for e in range(d):
                value -= L[c, e] * L[d, e]
            L[c, d] = value / L[d, d] if d < c else math.sqrt(max(value, 1e-12))
        L[c, m] = K[c, m] / N
    for c in range(m):
        for i in range(n):
            value = B[c, i] - L[c, m] * B[m, i]
            for d in range(c):
                value -= L[c, d] * B[d, i]
            B[c, i] = value / L[c, c]
    for c in range(p):
        for d in range(p):
            K[c, d] = N if c == d else 0.0
            K_inv[c, d] = 1.0 / N if c == d else 0.0
    gram(B, C)


@kernel
def derive(B, K, C, K_inv, column):
    """C = B B' and K^-1."""
    gram(B, C)
    copy_matrix(K, K_inv)
    invert_spd(K_inv, column)
