"""On-line variational Bayes for PPCA as the paper prints it: known noise, no mean, lambda from its two end points.

Hirayama, Yoshimoto and Ishii, eq. 5 to 10, in O(nm + m^3) a row. K is G/tau and K0 is G0/tau.
"""

import math

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import copy_matrix, invert_spd
from everlearn.variational.kernels.posterior import (
    B_X,
    COLUMN,
    K_INV_Y,
    K_NEW,
    K_NEW_INV,
    LOG_2PI,
    M_M,
    M_X,
    MATRICES,
    S_Y,
    VECTORS,
    Y_BAR,
    latent,
    misfit,
    observe,
    times,
)
from everlearn.variational.kernels.restart import gaps_of, gram


@kernel
def weaken(K, lam, k0, K_t, K_inv, column):
    """K_t = lam K + (1 - lam) k0 I and its inverse; returns ln|K_t| (eq. 6)."""
    m = K.shape[0]
    for i in range(m):
        for j in range(m):
            K_t[i, j] = lam * K[i, j]
        K_t[i, i] += (1.0 - lam) * k0
    copy_matrix(K_t, K_inv)
    return invert_spd(K_inv, column)


@kernel
def add_moment(K, S, ybar):
    """K += S + ybar ybar'."""
    for i in range(len(ybar)):
        for j in range(len(ybar)):
            K[i, j] += S[i, j] + ybar[i] * ybar[j]


@kernel
def log_evidence(x, gaps, xx, B, K, C, lam, k0, tau, K_t_inv, P, V, fit):
    """ln L(x, lambda), the logarithm of the denominator of eq. 5, given q(y) in the plan.

    ln L = n/2 (ln|K_t| - ln|K_t + Y|) - n/2 ln(2 pi/tau) - m/2 ln 2 pi - tr(Y)/2 - tau Q/2, the closed form for every
    lambda. The rest of the plan is overwritten.
    """
    m, n_o = len(K), len(x) - len(gaps)
    S, ybar = P[S_Y], V[Y_BAR]
    log_det = weaken(K, lam, k0, P[K_NEW], K_t_inv, V[COLUMN])
    observe(x, gaps, B, C, K_t_inv, 1.0, P, V)
    for i in range(m):
        V[M_X, i] *= lam
        for j in range(m):
            P[M_M, i, j] *= lam * lam
    times(K_t_inv, ybar, V[K_INV_Y])
    for i in range(m):
        V[K_INV_Y, i] *= lam
    add_moment(P[K_NEW], S, ybar)
    copy_matrix(P[K_NEW], P[K_NEW_INV])
    log_det -= invert_spd(P[K_NEW_INV], V[COLUMN])
    trace = 0.0
    for i in range(m):
        trace += S[i, i] + ybar[i] * ybar[i]
    q = misfit(x, gaps, xx, B, P, V, fit)
    return 0.5 * (n_o * (log_det - LOG_2PI + math.log(tau)) - m * LOG_2PI - trace - tau * q)


@kernel
def expected_latent(x, gaps, B, K, C, tau, K_inv, P, V):
    """q(y) under the posterior of the row before (eq. 3a), shared by all lambda."""
    copy_matrix(K, K_inv)
    invert_spd(K_inv, V[COLUMN])
    observe(x, gaps, B, C, K_inv, 1.0, P, V)
    latent(tau, len(x) - len(gaps), len(K), K_inv, 1.0, P, V)


@kernel
def update(x, gaps, xx, B, K, C, lam, k0, K_t_inv, P, V):
    """Eq. 7 with M0 = 0, for B = M K; a gap's loadings are weakened only."""
    m, n = B.shape
    S, ybar, u = P[S_Y], V[Y_BAR], V[B_X]
    for c in range(m):
        u[c] = 0.0
        for i in range(n):
            u[c] += B[c, i] * x[i]
    for c in range(m):
        for d in range(m):
            C[c, d] = lam * lam * C[c, d] + lam * (u[c] * ybar[d] + ybar[c] * u[d]) + xx * ybar[c] * ybar[d]
    weaken(K, lam, k0, P[K_NEW], K_t_inv, V[COLUMN])
    for c in range(m):
        for i in range(n):
            B[c, i] = lam * B[c, i] + ybar[c] * x[i]
    copy_matrix(P[K_NEW], K)
    add_moment(K, S, ybar)
    if len(gaps) > 0:
        for i in gaps:
            times(K_t_inv, B[:, i], V[COLUMN])
            times(K, V[COLUMN], V[M_X])
            for c in range(m):
                B[c, i] = V[M_X, c]
        gram(B, C)


@kernel
def learn_rows(X, B, K, C, fixed, k0, tau, prior_odds, trace):
    """Learn the rows of X in order, in place; returns the last lambda, and fills `trace` unless it is empty.

    `fixed` is the forgetting factor, negative when eq. 10 finds it; `prior_odds` is ln of p(lambda=1)/p(lambda=0).
    """
    m, n = B.shape
    P, V, K_t_inv = np.empty((MATRICES, m, m)), np.empty((VECTORS, m)), np.empty((m, m))
    x, fit, origin = np.empty(n), np.empty(n), np.zeros(n)
    lam = 1.0
    for t in range(len(X)):
        gaps, xx = gaps_of(X[t], origin, x)
        if len(gaps) < n:
            expected_latent(x, gaps, B, K, C, tau, K_t_inv, P, V)
            lam = fixed
            if fixed < 0.0:
                odds = log_evidence(x, gaps, xx, B, K, C, 1.0, k0, tau, K_t_inv, P, V, fit)
                odds -= log_evidence(x, gaps, xx, B, K, C, 0.0, k0, tau, K_t_inv, P, V, fit)
                lam = 1.0 / (1.0 + math.exp(-min(max(odds + prior_odds, -700.0), 700.0)))
            update(x, gaps, xx, B, K, C, lam, k0, K_t_inv, P, V)
        if len(trace) > 0:
            trace[t] = lam
    return lam
