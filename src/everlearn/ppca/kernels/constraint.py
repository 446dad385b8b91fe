"""The natural constraint on online EM for probabilistic PCA: the R-step of NAT-oEM.

`state` is an `everlearn.ppca.state.State`; its reference holds the parameters theta* and their Fisher information F.
"""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import copy_matrix, copy_vector, invert_spd
from everlearn.ppca.kernels.density import dot
from everlearn.typing import Array

STRONGEST = 1e100  # limit of a weight, so that its products stay finite
HUGE = 1e100  # parameters beyond this have overflowed
# A loop that both stores and sums is vectorised only where its arrays lie far enough apart, which small ones may not.
# From this size on they do, and the last bits of the sum do not depend on addresses.
SAFE_SIZE = 64


class Fisher(NamedTuple):
    """Diagonal of the Fisher information of one row about the parameters."""

    mu: Array  # (d,)
    W: Array  # (d, q)
    sigma2: Array  # (1,)


@inner
def fisher(model, body, F, A):
    """Diagonal Fisher information of one row about mu, W and sigma2, into F (see `everlearn.ppca.keep.fisher`).

    With `body` what the body of the paper prints in place of it. A (d, q) is scratch.
    """
    W, s, M_inv = model.W, model.sigma2, model.M_inv
    d, q = W.shape
    dot(W, M_inv, A)
    for i in range(d):
        a, w, F_w = A[i], W[i], F.W[i]
        aw = 0.0
        aa = 0.0
        for j in range(q):
            aw += a[j] * w[j]
            aa += a[j] * a[j]
        # (C^-1)_ii by Woodbury.
        c = (1.0 - aw) / s
        # Eq. 28, the diagonal of C^-1; the body prints that of C^-2.
        F.mu[i] = (c - aa) / s if body else c
        twice = 2.0 if body else 1.0
        for j in range(q):
            # Eq. 29: (W'C^-1 W)_jj (C^-1)_ii + (C^-1 W)_ij^2, where W'C^-1 W = I - s M^-1 and C^-1 W = A.
            F_w[j] = twice * ((1.0 - s * M_inv[j, j]) * c + a[j] * a[j])
    if body:
        F.sigma2[0] = (d - q) / s + np.trace(M_inv)
    else:
        # Eq. 32, |C^-1|_F^2/2: d - q eigenvalues 1/s, the others those of M^-1.
        F.sigma2[0] = 0.5 * ((d - q) / (s * s) + frobenius(M_inv, M_inv))


@inner
def take_reference(model, body, reference, A):
    """Make the parameters as they are the reference, with their Fisher information."""
    copy_vector(model.mu, reference.mu)
    copy_matrix(model.W, reference.W)
    reference.sigma2[0] = model.sigma2
    fisher(model, body, Fisher(reference.F_mu, reference.F_W, reference.F_sigma2), A)
    reference.is_active[0] = True


@inner
def frobenius(A, B):
    """Frobenius inner product, the sum of the products of the entries."""
    total = 0.0
    for i in range(A.shape[0]):
        a, b = A[i], B[i]
        for j in range(A.shape[1]):
            total += a[j] * b[j]
    return total


@inner
def proximal_mean(beta, state):
    """Proximal step of mu: weighted mean of m and the reference; returns |m - mu|^2."""
    m, mu, mu_ref, F = state.m, state.mu, state.reference.mu, state.reference.F_mu
    s = state.sigma2[0]
    for i in range(m.shape[0]):
        # Curvature of -Q in mu_i is 1/s and that of the constraint beta F_i: the minimiser is their weighted mean.
        w = s * beta * F[i]
        mu[i] = m[i] + w / (1.0 + w) * (mu_ref[i] - m[i])
    total = 0.0
    for i in range(m.shape[0]):
        total += (m[i] - mu[i]) ** 2
    return total


@kernel
def proximal_entries(weight, state):
    """Proximal step of W where S2 = I: each entry a mean of S1 and the reference, weighted by the curvatures.

    The share of the reference is t F/(1 + t F) with t = `weight`. Returns tr(S1 W').
    """
    v, r, f = state.S1.ravel(), state.reference.W.ravel(), state.reference.F_W.ravel()
    w = state.W.ravel()
    cross = 0.0
    for e in range(w.shape[0]):
        t = weight * f[e]
        value = v[e] + t / (1.0 + t) * (r[e] - v[e])
        w[e] = value
        cross += v[e] * value
    return cross if state.W.size >= SAFE_SIZE else frobenius(state.S1, state.W)


@inner
def proximal_rows(weight, state, scratch):
    """Proximal step of W for any S2: row i solves (S2 + t diag(F_i)) w = S1_i + t F_i w*_i, t = `weight`.

    O(d q^3). Each system is scaled to a unit diagonal first, because t F may outweigh S2 by any factor. Returns
    tr(S1 W').
    """
    S1, S2, W, W_ref, F = state.S1, state.S2, state.W, state.reference.W, state.reference.F_W
    A, column, unit = scratch.T, scratch.column, scratch.row.v
    d, q = W.shape
    for i in range(d):
        # Scale to a unit diagonal; the floor only guards statistics of zero.
        for j in range(q):
            unit[j] = 1.0 / np.sqrt(max(S2[j, j] + weight * F[i, j], 1.0 / STRONGEST))
        for j in range(q):
            for k in range(q):
                A[j, k] = S2[j, k] * unit[j] * unit[k]
            A[j, j] += weight * F[i, j] * unit[j] * unit[j]
        invert_spd(A, column)
        for j in range(q):
            column[j] = unit[j] * S1[i, j] + unit[j] * weight * F[i, j] * W_ref[i, j]
        for j in range(q):
            value = 0.0
            for k in range(q):
                value += A[j, k] * column[k]
            W[i, j] = unit[j] * value
    return frobenius(S1, W)


@inner
def proximal_noise(A, d, beta, state):
    """Proximal step of s: the root v of A - d v - 2 beta F v^2 (v - s*) between A/d and s*.

    By Newton's method from the last s, kept inside the bracket by bisection.
    """
    s_ref = state.reference.sigma2[0]
    # -Q is d/2 ln v + A/(2v); the derivative of the whole, times -2 v^2, is the cubic. It falls from >= 0 at the lower
    # end to <= 0 at the upper one, so that the root lies between them: no step can make the noise negative.
    strength = 2.0 * beta * state.reference.F_sigma2[0]
    low, high = min(A / d, s_ref), max(A / d, s_ref)
    v = min(max(state.sigma2[0], low), high)
    for _ in range(60):
        value = A - d * v - strength * v * v * (v - s_ref)
        if value > 0.0:
            low = v
        else:
            high = v
        last = v
        v += value / (d + strength * v * (3.0 * v - 2.0 * s_ref))
        # Newton's step left the bracket, which holds exactly one root: halve it instead.
        if not low < v < high:
            v = 0.5 * (low + high)
        if abs(v - last) <= 4e-16 * v:
            break
    return v


@inner
def proximal_step(beta, expanded, state, scratch):
    """R-step: minimise -Q + beta/2 |theta - theta*|^2 in the metric F of the reference, in place.

    mu and W are those that minimise at the last noise variance; then the noise variance, which is returned. After
    parameter expansion S2 = I, so that each entry of W is found by itself. Leaves W'W in scratch.T.
    """
    square = proximal_mean(beta, state)
    weight = min(state.sigma2[0] * beta, STRONGEST)
    cross = proximal_entries(weight, state) if expanded else proximal_rows(weight, state, scratch)
    W, T = state.W, scratch.T
    dot(W.T, W, T)
    A = state.S0[0] + square - 2.0 * cross + (np.trace(T) if expanded else frobenius(state.S2, T))
    return proximal_noise(max(A, 0.0), W.shape[0], beta, state)


@inner
def paper_weight(weight, clip, info):
    """beta/F as printed, or at most one; counts those above it."""
    # Above one the step passes its reference, and the distance grows from row to row.
    if weight > 1.0:
        info.overshot[0] += 1
        if clip:
            return 1.0
    return weight


@inner
def paper_step(beta, s, state, settings, info):
    """R-step as printed, theta - beta/F (theta - theta*), eq. 16 to 18, in place on mu and W.

    Returns the noise variance that `s` becomes; NaN on overflow.
    """
    m, mu, W, reference, clip = state.m, state.mu, state.W, state.reference, settings.clip
    finite = True
    for i in range(W.shape[0]):
        weight = paper_weight(beta * settings.unit_mu / reference.F_mu[i], clip, info)
        mu[i] = m[i] - weight * (m[i] - reference.mu[i])
        finite = finite and abs(mu[i]) < HUGE
        for j in range(W.shape[1]):
            weight = paper_weight(beta * settings.unit_W / reference.F_W[i, j], clip, info)
            W[i, j] -= weight * (W[i, j] - reference.W[i, j])
            finite = finite and abs(W[i, j]) < HUGE
    weight = paper_weight(beta * settings.unit_sigma2 / reference.F_sigma2[0], clip, info)
    s -= weight * (s - reference.sigma2[0])
    return s if finite and abs(s) < HUGE else np.nan
