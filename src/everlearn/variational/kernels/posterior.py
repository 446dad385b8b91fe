"""On-line variational Bayes for PPCA, one model: x = Theta y + noise of precision tau, in O(nm + m^3) a row.

The posterior of the loadings is q(Theta | tau) = N(M, (tau K)^-1), that of the noise precision Ga(a, b). The latent
vector has p entries: m latent variables and, where the model has a mean, a constant 1 after them. Kept are B = M K,
transposed to (p, n), C = B B' and K^-1, from which M'M = K^-1 C K^-1 and M'x = K^-1 B x follow without a pass over M.
Forgetting by lambda takes K to lambda K and leaves M: the prior of the loadings, K0, counts as flat but for a restart.

A row is first scored, which plans what it would change, and then learned (`kernels.commit`).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import invert_spd
from everlearn.ppca.kernels.density import NOISE_SHARE
from everlearn.typing import Array

LOG_2PI = math.log(2.0 * math.pi)
K0 = 1e-3  # prior precision of the loadings, in units of the noise's
CANCELLED = 1e-6  # share of |x|^2 below which a residual is summed again cell by cell, because too few digits are left


class Row(NamedTuple):
    """A row relative to the origin."""

    x: Array  # (n,): zero in gaps
    gaps: NDArray[np.int64]  # indices of the gaps
    xx: float  # |x|^2


class Member(NamedTuple):
    """One model; views into the arrays of a bank."""

    B: Array  # (p, n): M K, transposed
    K: Array  # (p, p)
    C: Array  # (p, p): B B'
    K_inv: Array  # (p, p)
    a: Array  # (1,): shape of the noise precision
    b: Array  # (1,): its rate


class Plan(NamedTuple):
    """What learning a row would change in one model, and scratch."""

    S: Array  # (p, p): covariance of q(y)
    K: Array  # (p, p): K'
    K_inv: Array  # (p, p): K'^-1
    C: Array  # (p, p): C'
    MM: Array  # (p, p): M'M over the observed cells
    T: Array  # (p, p): scratch
    T_2: Array  # (p, p): scratch
    ybar: Array  # (p,): mean of q(y)
    Mx: Array  # (p,): M'x
    Bx: Array  # (p,): lambda B x
    K_inv_y: Array  # (p,): K^-1 ybar
    column: Array  # (p,): scratch
    row: Array  # (p,): scratch
    shift: Array  # (p,): change of the latent axes, y = shift + scale y'
    scale: Array  # (p,)
    a: Array  # (1,): a'
    b: Array  # (1,): b'
    fit: Array  # (n,): scratch for a row, shared by all plans


class PlanStack(NamedTuple):
    """Memory of many plans, in three blocks: a bank makes them once a batch."""

    matrices: Array  # (slots, J, 7, p, p)
    vectors: Array  # (slots, J, 8, p)
    noise: Array  # (slots, J, 2, 1)
    fit: Array  # (n,)


@kernel
def plan_stack(slots, J, p, n):
    """Memory for the plans of a bank."""
    return PlanStack(np.empty((slots, J, 7, p, p)), np.empty((slots, J, 8, p)), np.empty((slots, J, 2, 1)), np.empty(n))


@kernel
def plan_at(stack, slot, j):
    """The plan of one member."""
    P, V, N = stack.matrices[slot, j], stack.vectors[slot, j], stack.noise[slot, j]
    return Plan(
        P[0], P[1], P[2], P[3], P[4], P[5], P[6], V[0], V[1], V[2], V[3], V[4], V[5], V[6], V[7], N[0], N[1], stack.fit
    )  # fmt: skip


@inner
def borrow_plan(stack, slot, j):
    """`plan_at` without reference counts, for callers compiled by `inner` only."""
    P, V, N = stack.matrices[slot, j], stack.vectors[slot, j], stack.noise[slot, j]
    return Plan(
        P[0], P[1], P[2], P[3], P[4], P[5], P[6], V[0], V[1], V[2], V[3], V[4], V[5], V[6], V[7], N[0], N[1], stack.fit
    )  # fmt: skip


@kernel
def read_row(values, origin, x):
    """x = values - origin with zeros in the gaps, as a Row that shares memory with `x`."""
    n = len(values)
    count = 0
    xx = 0.0
    for i in range(n):
        x[i] = values[i] - origin[i]
        if np.isnan(x[i]):
            x[i] = 0.0
            count += 1
        xx += x[i] * x[i]
    gaps = np.empty(count, dtype=np.int64)
    if count > 0:
        count = 0
        for i in range(n):
            if np.isnan(values[i]):
                gaps[count] = i
                count += 1
    return Row(x, gaps, xx)


# -- small matrices --------------------------------------------------------------------------------


@inner
def sandwich(A, C, T, out):
    """out = A C A for symmetric A and C; T is scratch."""
    p = A.shape[0]
    for i in range(p):
        for j in range(p):
            value = 0.0
            for k in range(p):
                value += A[i, k] * C[j, k]
            T[i, j] = value
    for i in range(p):
        for j in range(i + 1):
            value = 0.0
            for k in range(p):
                value += T[i, k] * A[j, k]
            out[i, j] = value
            out[j, i] = value


@inner
def times(A, v, out):
    """out = A v."""
    for i in range(A.shape[0]):
        value = 0.0
        for k in range(v.shape[0]):
            value += A[i, k] * v[k]
        out[i] = value


@inner
def trace_of_product(A, B):
    """tr(A B) for symmetric A and B."""
    total = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[i, j] * B[i, j]
    return total


# -- planning --------------------------------------------------------------------------------------


@inner
def observe(row, B, C, K_inv, lam, plan):
    """Plan M_o'M_o, M_o'x_o and lam B_o x_o over the observed cells; x is zero in its gaps."""
    p, n = B.shape
    x, u, C_o = row.x, plan.Bx, plan.T_2
    for c in range(p):
        value = 0.0
        for i in range(n):
            value += B[c, i] * x[i]
        u[c] = value
    times(K_inv, u, plan.Mx)
    for c in range(p):
        u[c] *= lam
        for d in range(p):
            C_o[c, d] = C[c, d]
            # Few gaps: take their columns off C rather than sum the observed ones.
            for i in row.gaps:
                C_o[c, d] -= B[c, i] * B[d, i]
    # M = B' K^-1, hence M'M = K^-1 C K^-1: p x p matrices only, whatever the number of columns.
    sandwich(K_inv, C_o, plan.T, plan.MM)


@inner
def latent(tau, n_o, m, K_inv, lam, plan):
    """Plan q(y): S^-1 = I + tau M'M + n (lam K)^-1, ybar = tau S M'x less a constant's share; returns ln|S|."""
    S, MM, column = plan.S, plan.MM, plan.column
    p = S.shape[0]
    # E[Theta'Theta] = M'M + n (tau K)^-1: uncertain loadings shrink y, as a ridge
    # penalty would. K is weakened by lam first.
    spread = n_o / lam
    for i in range(p):
        for j in range(p):
            S[i, j] = tau * MM[i, j] + spread * K_inv[i, j] if i < m and j < m else 0.0
        S[i, i] += 1.0
        column[i] = tau * plan.Mx[i]
        # The constant entry is one and known: what it explains is taken off x, and with it the covariance of its
        # own loadings, the mean, with the others.
        for j in range(m, p):
            column[i] -= tau * MM[i, j] + spread * K_inv[i, j]
    log_det = -invert_spd(S, plan.row)
    # The constant entry is known: it has no variance and the value one.
    for i in range(m, p):
        S[i, i] = 0.0
    times(S, column, plan.ybar)
    for i in range(m, p):
        plan.ybar[i] = 1.0
    return log_det


@inner
def whiten(A, g, m):
    """ln|A| and g'A^-1 g over the leading m x m block of A >= I, by Cholesky in place; g becomes L^-1 g."""
    log_det, q = 0.0, 0.0
    for i in range(m):
        for j in range(i + 1):
            value = A[i, j]
            for k in range(j):
                value -= A[i, k] * A[j, k]
            # No pivot of A >= I is below one; what is, rounding has made.
            A[i, j] = value / A[j, j] if j < i else math.sqrt(max(value, 1.0))
        for k in range(i):
            g[i] -= A[i, k] * g[k]
        g[i] /= A[i, i]
        log_det += math.log(A[i, i])
        q += g[i] * g[i]
    return 2.0 * log_det, q


@inner
def log_predictive(row, tau, shape, m, K_inv, lam, plan):
    """Log density of a row: N(mu, M M' + (v/tau) I) with v = 1 + E[y'(lam K)^-1 y], the loadings' own uncertainty.

    The expectation is over the prior of y, v = 1 + tr((lam K)^-1), so that the covariance is that of the exact
    predictive distribution and the density integrates to one: the weights of a bank are products of it. With
    tau ~ Ga(shape, .) the Gaussian becomes a Student distribution; `shape` 0 stands for a known tau. Returns also
    tau |x - mu|^2.
    """
    A, MM, g = plan.T, plan.MM, plan.row
    p = A.shape[0]
    v = 1.0
    for j in range(p):
        v += K_inv[j, j] / lam
    t = tau / v
    # |x - mu|^2 = |x|^2 - 2 mu'x + |mu|^2, from products that are known already.
    d2 = row.xx
    for j in range(m, p):
        d2 += MM[j, j] - 2.0 * plan.Mx[j]
    for i in range(m):
        g[i] = plan.Mx[i]
        for j in range(m, p):
            g[i] -= MM[i, j]
        for j in range(m):
            A[i, j] = t * MM[i, j]
        A[i, i] += 1.0
    log_det, explained = whiten(A, g, m)
    # Woodbury: the distance under M M' + I/t.
    q = max(t * d2 - t * t * explained, 0.0)
    half = 0.5 * (len(row.x) - len(row.gaps))
    value = half * (math.log(t) - LOG_2PI) - 0.5 * log_det
    if shape <= 0.0:
        return value - 0.5 * q, tau * d2
    # Student's t: the precision tau ~ Ga(shape, .) integrated out, with its mean held at tau.
    value += math.lgamma(shape + half) - math.lgamma(shape) - half * math.log(shape)
    return value - (shape + half) * math.log1p(0.5 * q / shape), tau * d2


@inner
def absorb(row, member, lam, plan):
    """Plan K' = lam K + Y and its inverse, and C' as if every cell were observed: a gap counts as M ybar."""
    B, S, K_new, C_new, ybar, u, v = member.B, plan.S, plan.K, plan.C, plan.ybar, plan.Bx, plan.K_inv_y
    p = S.shape[0]
    xx = row.xx
    times(member.K_inv, ybar, v)
    # A gap counts as its expectation M ybar; what that leaves out, M S, is added by `commit_with_gaps`.
    for i in row.gaps:
        fit = 0.0
        for c in range(p):
            fit += B[c, i] * v[c]
        for c in range(p):
            u[c] += lam * B[c, i] * fit
        xx += fit * fit
    for i in range(p):
        for j in range(p):
            K_new[i, j] = lam * member.K[i, j] + S[i, j] + ybar[i] * ybar[j]
            plan.K_inv[i, j] = K_new[i, j]
            # B' = lam B + ybar x' squared out; u holds lam B x. A pass over the n columns is saved.
            C_new[i, j] = lam * lam * member.C[i, j] + u[i] * ybar[j] + ybar[i] * u[j] + xx * ybar[i] * ybar[j]
    invert_spd(plan.K_inv, plan.column)


@inner
def residual(row, B, v, fit):
    """|x_o - M_o ybar|^2 cell by cell, with v = K^-1 ybar; `fit` becomes M ybar."""
    p, n = B.shape
    x = row.x
    for i in range(n):
        fit[i] = 0.0
    for c in range(p):
        for i in range(n):
            fit[i] += v[c] * B[c, i]
    total = 0.0
    for i in range(n):
        total += (x[i] - fit[i]) ** 2
    for i in row.gaps:
        total -= fit[i] ** 2
    return max(total, 0.0)


@inner
def misfit(row, B, plan):
    """Q = |x - M ybar|^2 + tr(S M'M) - tr(R K'^-1 R') with R = x ybar' - M Y, the evidence's sum of squares."""
    S, MM, K_new_inv, ybar, Mr, z = plan.S, plan.MM, plan.K_inv, plan.ybar, plan.column, plan.row
    p = S.shape[0]
    times(MM, ybar, Mr)
    r2 = row.xx
    for i in range(p):
        r2 += ybar[i] * (Mr[i] - 2.0 * plan.Mx[i])
        Mr[i] = plan.Mx[i] - Mr[i]
    # A difference of large numbers; a pass over the row is O(np), so only where it is needed.
    if r2 < CANCELLED * row.xx:
        r2 = residual(row, B, plan.K_inv_y, plan.fit)
    # R = (x - M ybar) ybar' - M S, multiplied out so that only |x - M ybar|^2 and p x p products are needed.
    times(S, Mr, z)
    sandwich(S, MM, plan.T, plan.T_2)
    q = r2 + trace_of_product(S, MM) - trace_of_product(plan.T_2, K_new_inv)
    for i in range(p):
        for j in range(p):
            q -= (r2 * ybar[i] * ybar[j] - ybar[i] * z[j] - z[i] * ybar[j]) * K_new_inv[i, j]
    return max(q, 0.0)


@inner
def noise_floor(MM, m, n, rounding):
    """Least noise variance: a share of the mean variance of a column, and the rounding of the data."""
    total = 0.0
    for i in range(m):
        total += MM[i, i]
    return NOISE_SHARE * total / n + rounding


@inner
def evaluate(row, member, lam, rho, settings, rounding, plan):
    """Score a row and plan what learning it would change; the member itself is not changed.

    Parameters
    ----------
    row : Row
        The row.
    member : Member
        The model.
    lam, rho : float
        Forgetting factors of the loadings and of the noise.
    settings : Settings
        Known noise precision `tau`, 0 when it is learned, and its prior `a0`, `b0`.
    rounding : float
        Least noise variance.
    plan : Plan
        Filled for `commit`.

    Returns
    -------
    score : float
        Log predictive density.
    distance : float
        tau |x - mu|^2.
    tau : float
        The noise precision used.
    """
    n, m = member.B.shape[1], member.B.shape[0] - 1
    n_o = n - len(row.gaps)
    a, b, tau = member.a[0], member.b[0], settings.tau
    learned = tau <= 0.0
    if learned:
        tau = a / b
    # In this order: q(y) and the score need the products over the observed cells,
    # to which `absorb` adds the gaps in place.
    observe(row, member.B, member.C, member.K_inv, lam, plan)
    latent(tau, n_o, m, member.K_inv, lam, plan)
    score, distance = log_predictive(row, tau, a if learned else 0.0, m, member.K_inv, lam, plan)
    absorb(row, member, lam, plan)
    if learned:
        a = rho * a + (1.0 - rho) * settings.a0 + 0.5 * n_o
        b = rho * b + (1.0 - rho) * settings.b0 + 0.5 * misfit(row, member.B, plan)
        # An exact fit of a few rows would take the noise to zero, from which it does not come back.
        b = max(b, a * noise_floor(plan.MM, m, n, rounding))
    plan.a[0], plan.b[0] = a, b
    return score, distance, tau
