"""On-line variational Bayes for PPCA as the paper prints it: known noise, no mean, lambda from the evidence of the row.

Hirayama, Yoshimoto and Ishii, eq. 5 to 10, in O(n m^2 + m^3) a row. K is G/tau and K0 is G0/tau. `state` is an
`everlearn.variational.state.PaperState`, updated in place.
"""

import math
from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_matrix, invert_spd
from everlearn.typing import Array
from everlearn.variational.kernels.posterior import (
    LOG_2PI,
    latent,
    misfit,
    observe,
    plan_at,
    plan_stack,
    read_row,
    times,
)
from everlearn.variational.kernels.restart import gram

# How lambda is found: the constant of the settings, eq. 10 (its two end points), or the mean of its posterior (eq. 9).
FIXED, END_POINTS, POSTERIOR = 0, 1, 2
# The posterior mean is an integral over ln lambda down to e^-24, in cells of width `CELL`, each by Gauss and Legendre's
# rule of eight points; cells whose ends lie `NEGLIGIBLE` nats below the top are left out.
CELLS, CELL, NEGLIGIBLE = 48, 0.5, 35.0
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


class Weakened(NamedTuple):
    """The past after forgetting: q^lambda p0^(1 - lambda), eq. 6."""

    B: Array  # (m, n): lam B + (1 - lam) k0 M0'
    K: Array  # (m, m): lam K + (1 - lam) k0 I
    C: Array  # (m, m): B B'
    K_inv: Array  # (m, m)


@inner
def weaken(state, lam, settings, past, plan):
    """Fill `past`; returns ln|K_t|."""
    m, n = state.B.shape
    # Eq. 6: q^lambda p0^(1 - lambda) of two Gaussians is a Gaussian whose natural parameters are the weighted sum.
    rest = (1.0 - lam) * settings.k0
    for i in range(m):
        for j in range(m):
            past.K[i, j] = lam * state.K[i, j]
            past.C[i, j] = lam * lam * state.C[i, j]
        past.K[i, i] += rest
        for j in range(n):
            past.B[i, j] = lam * state.B[i, j] + rest * settings.M0[i, j]
    # Without a prior mean B B' only scales, which saves the O(n m^2).
    if settings.has_mean:
        gram(past.B, past.C)
    copy_matrix(past.K, past.K_inv)
    return invert_spd(past.K_inv, plan.column)


@inner
def add_moment(K, plan):
    """K += S + ybar ybar'."""
    S, ybar = plan.S, plan.ybar
    for i in range(len(ybar)):
        for j in range(len(ybar)):
            K[i, j] += S[i, j] + ybar[i] * ybar[j]


@inner
def log_evidence(row, state, lam, settings, past, plan):
    """ln L(x, lambda), the logarithm of the denominator of eq. 5, given q(y) in the plan.

    ln L = n/2 (ln|K_t| - ln|K_t + Y|) - n/2 ln(2 pi/tau) - m/2 ln 2 pi - tr(Y)/2 - tau Q/2, the closed form for every
    lambda. The rest of the plan is overwritten.
    """
    m, n_o = len(state.K), len(row.x) - len(row.gaps)
    S, ybar, tau = plan.S, plan.ybar, settings.tau
    log_det = weaken(state, lam, settings, past, plan)
    observe(row, past.B, past.C, past.K_inv, 1.0, plan)
    times(past.K_inv, ybar, plan.K_inv_y)
    copy_matrix(past.K, plan.K)
    add_moment(plan.K, plan)
    copy_matrix(plan.K, plan.K_inv)
    log_det -= invert_spd(plan.K_inv, plan.column)
    trace = 0.0
    for i in range(m):
        trace += S[i, i] + ybar[i] * ybar[i]
    q = misfit(row, past.B, plan)
    return 0.5 * (n_o * (log_det - LOG_2PI + math.log(tau)) - m * LOG_2PI - trace - tau * q)


@inner
def expected_latent(row, state, settings, past, plan):
    """q(y) under the posterior of the row before (eq. 3a), shared by all lambda."""
    copy_matrix(state.K, past.K_inv)
    invert_spd(past.K_inv, plan.column)
    observe(row, state.B, state.C, past.K_inv, 1.0, plan)
    latent(settings.tau, len(row.x) - len(row.gaps), len(state.K), past.K_inv, 1.0, plan)


@inner
def end_points(row, state, settings, past, plan):
    """lambda by eq. 10: the posterior probability of lambda = 1 against lambda = 0."""
    odds = log_evidence(row, state, 1.0, settings, past, plan)
    odds -= log_evidence(row, state, 0.0, settings, past, plan)
    # Beyond 700 nats exp overflows; the answer is 0 or 1 long before.
    return 1.0 / (1.0 + math.exp(-min(max(odds + settings.prior_odds, -700.0), 700.0)))


@kernel
def posterior_mean(row, state, settings, past, plan):
    """E[lambda | x] by eq. 9 over all of (0, 1), with the prior density p(lambda) ~ exp(prior_odds lambda).

    In s = ln lambda, whose scale suits both the evidence for a change, far below one, and that against it. The
    density below e^-24 counts as a point.
    """
    heights = np.empty(CELLS + 1)
    for c in range(CELLS + 1):
        lam = math.exp(-c * CELL)
        # -c CELL is the log of the Jacobian: d lambda = lambda ds.
        heights[c] = log_evidence(row, state, lam, settings, past, plan) + settings.prior_odds * lam - c * CELL
    top = heights.max()
    total, mean = math.exp(heights[CELLS] - top), math.exp(heights[CELLS] - CELLS * CELL - top)
    for c in range(CELLS):
        # The integrand is smooth over a cell: both ends far below the top mean that all of it is.
        if max(heights[c], heights[c + 1]) < top - NEGLIGIBLE:
            continue
        for k in range(len(NODES)):
            s = -CELL * (c + 0.5 + 0.5 * NODES[k])
            lam = math.exp(s)
            height = log_evidence(row, state, lam, settings, past, plan) + settings.prior_odds * lam + s
            weight = 0.5 * CELL * WEIGHTS[k] * math.exp(height - top)
            total += weight
            mean += weight * lam
    return mean / total


@inner
def update(row, state, lam, settings, past, plan):
    """Eq. 7 in place, for B = M K; a gap's loadings are weakened only."""
    B, K, C = state.B, state.K, state.C
    m, n = B.shape
    x, ybar, u = row.x, plan.ybar, plan.Bx
    weaken(state, lam, settings, past, plan)
    for c in range(m):
        u[c] = 0.0
        for i in range(n):
            u[c] += past.B[c, i] * x[i]
    for c in range(m):
        for d in range(m):
            C[c, d] = past.C[c, d] + u[c] * ybar[d] + ybar[c] * u[d] + row.xx * ybar[c] * ybar[d]
        for i in range(n):
            B[c, i] = past.B[c, i] + ybar[c] * x[i]
    copy_matrix(past.K, K)
    add_moment(K, plan)
    if len(row.gaps) > 0:
        # The mean of these loadings stays: B = M K has to follow the new K.
        for i in row.gaps:
            times(past.K_inv, B[:, i], plan.column)
            times(K, plan.column, plan.Mx)
            for c in range(m):
                B[c, i] = plan.Mx[c]
        gram(B, C)


@kernel
def learn_rows(X, state, settings, forgetting):
    """Learn the rows of X in order, in place; `forgetting` is filled with the lambda in use after each row."""
    m, n = state.B.shape
    plan = plan_at(plan_stack(1, 1, m, n), 0, 0)
    past = Weakened(np.empty((m, n)), np.empty((m, m)), np.empty((m, m)), np.empty((m, m)))
    x, origin = np.empty(n), np.zeros(n)
    lam = 1.0
    for t in range(len(X)):
        row = read_row(X[t], origin, x)
        if len(row.gaps) < n:
            expected_latent(row, state, settings, past, plan)
            lam = settings.fixed
            if settings.rule == END_POINTS:
                lam = end_points(row, state, settings, past, plan)
            elif settings.rule == POSTERIOR:
                lam = posterior_mean(row, state, settings, past, plan)
            update(row, state, lam, settings, past, plan)
        forgetting[t] = lam
