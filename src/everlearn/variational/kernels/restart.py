"""Variational PPCA from the few rows since a restart: all of them at once, in rounds of variational EM."""

import math
from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_matrix, invert_spd
from everlearn.typing import Array
from everlearn.variational.kernels.posterior import latent, observe, read_row, residual, times, trace_of_product

ROUNDS = 3  # of variational EM for each new row; the rounds of the rows before count, too


class Prior(NamedTuple):
    """What a restarted model starts from: natural parameters of its loadings and of its noise."""

    B: Array  # (p, n)
    K: Array  # (p, p)
    a: Array  # (1,)
    b: Array  # (1,)


@inner
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
def replay(rows, origin, prior, member, tau, rounding, plan):
    """Variational EM over `rows`, begun at the member as it is, in place; parameter expansion after every round.

    `plan` is scratch. A known `tau` is positive.
    """
    B, K_inv = member.B, member.K_inv
    p, n = B.shape
    m = p - 1
    B_new, x = np.empty((p, n)), np.empty(n)
    for _ in range(ROUNDS):
        precision = tau if tau > 0.0 else member.a[0] / member.b[0]
        copy_matrix(prior.B, B_new)
        copy_matrix(prior.K, plan.K)
        # The loadings and the mean use up np degrees of freedom of the noise.
        squares, cells = 0.0, -n * p
        for r in range(len(rows)):
            row = read_row(rows[r], origin, x)
            # E-step of one row under the loadings of the round before; B_new and plan.K collect the natural parameters.
            observe(row, B, member.C, K_inv, 1.0, plan)
            latent(precision, n - len(row.gaps), m, K_inv, 1.0, plan)
            add_row(row, member, plan, B_new)
            times(K_inv, plan.ybar, plan.K_inv_y)
            squares += residual(row, B, plan.K_inv_y, plan.fit) + trace_of_product(plan.S, plan.MM)
            cells += n - len(row.gaps)
        # M-step.
        member.a[0] = prior.a[0] + 0.5 * max(cells, 0)
        member.b[0] = max(prior.b[0] + 0.5 * squares, member.a[0] * rounding)
        copy_matrix(B_new, B)
        copy_matrix(plan.K, member.K)
        expand(member, plan.T)


@inner
def add_row(row, member, plan, B_new):
    """Add a row's expected statistics: Y to plan.K, x ybar' to B_new, and in a gap the expectation M Y."""
    B, K_inv, S, K_new, ybar, mean = member.B, member.K_inv, plan.S, plan.K, plan.ybar, plan.row
    p, n = B.shape
    for c in range(p):
        for i in range(n):
            B_new[c, i] += ybar[c] * row.x[i]
        for d in range(p):
            K_new[c, d] += S[c, d] + ybar[c] * ybar[d]
    for i in row.gaps:
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


@inner
def expand(member, L):
    """Parameter expansion in place: latent axes of mean zero and unit covariance, so that K = N I; C and K^-1 follow.

    y = shift + L y' with L L' the covariance of the latent variables that K holds; M <- M T, K <- T^-1 K T^-T.
    """
    B, K, K_inv = member.B, member.K, member.K_inv
    p, n = B.shape
    m = p - 1
    N = K[m, m]
    for c in range(m):
        for d in range(c + 1):
            value = (K[c, d] - K[c, m] * K[d, m] / N) / N
            for e in range(d):
                value -= L[c, e] * L[d, e]
            # The floor keeps an axis that explains nothing from dividing by zero.
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
    gram(B, member.C)


@inner
def derive(member, column):
    """C = B B' and K^-1, in place; `column` is scratch."""
    gram(member.B, member.C)
    copy_matrix(member.K, member.K_inv)
    invert_spd(member.K_inv, column)
