"""On-line variational Bayes for PPCA, one model: x = Theta y + noise of precision tau, in O(nm + m^3) a row.

The posterior of the loadings is q(Theta | tau) = N(M, (tau K)^-1), that of the noise Ga(a, b). The latent vector has p
entries: m latent variables and, where the model has a mean, a constant 1 after them. Kept are B = M K, transposed to
(p, n), C = B B' and K^-1, from which M'M = K^-1 C K^-1 and M'x = K^-1 B x follow without a pass over M. Forgetting by
lambda takes K to lambda K and leaves M: the prior of the loadings, K0, is taken as flat but for a new beginning.

A row is first scored, which plans what it would change, and then learned. The plan of a model is a stack of p x p
matrices and one of p vectors, whose places have names below.
"""

import math

from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import invert_spd
from everlearn.ppca.kernels.density import NOISE_SHARE

LOG_2PI = math.log(2.0 * math.pi)
K0 = 1e-3  # prior precision of the loadings, in units of the noise's
CANCELLED = 1e-6  # share of |x|^2 below which a residual is summed anew, cell by cell
GAIN_TOLERANCE = 0.02  # columns observed nearly as often as the rows take the short way

# Matrices of a plan: q(y)'s covariance; K', its inverse; C'; M'M; scratch.
S_Y, K_NEW, K_NEW_INV, C_NEW, M_M, SCRATCH, SCRATCH_2 = 0, 1, 2, 3, 4, 5, 6
# Vectors of a plan: q(y)'s mean; M'x; lam B x; K^-1 ybar; a' and b'; scratch; the change of the latent axes.
Y_BAR, M_X, B_X, K_INV_Y, NOISE, COLUMN, ROW, SHIFT, SCALE = 0, 1, 2, 3, 4, 5, 6, 7, 8
MATRICES, VECTORS = 7, 9


@kernel
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


@kernel
def times(A, v, out):
    """out = A v."""
    for i in range(A.shape[0]):
        value = 0.0
        for k in range(v.shape[0]):
            value += A[i, k] * v[k]
        out[i] = value


@kernel
def quadratic(v, A):
    """v'A v."""
    total = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += v[i] * A[i, j] * v[j]
    return total


@kernel
def trace_of_product(A, B):
    """tr(A B) for symmetric A and B."""
    total = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            total += A[i, j] * B[i, j]
    return total


@kernel
def observe(x, gaps, B, C, K_inv, lam, P, V):
    """Plan M_o'M_o, M_o'x_o and lam B_o x_o over the observed cells; x is zero in its gaps."""
    p, n = B.shape
    u, Mx, C_o = V[B_X], V[M_X], P[SCRATCH_2]
    for c in range(p):
        value = 0.0
        for i in range(n):
            value += B[c, i] * x[i]
        u[c] = value
    times(K_inv, u, Mx)
    for c in range(p):
        u[c] *= lam
        for d in range(p):
            C_o[c, d] = C[c, d]
            for i in gaps:
                C_o[c, d] -= B[c, i] * B[d, i]
    sandwich(K_inv, C_o, P[SCRATCH], P[M_M])


@kernel
def latent(tau, n_o, m, K_inv, lam, P, V):
    """Plan q(y): S^-1 = I + tau M'M + n (lam K)^-1, ybar = tau S M'x less a constant's share; returns ln|S|."""
    S, MM, column = P[S_Y], P[M_M], V[COLUMN]
    p = S.shape[0]
    spread = n_o / lam
    for i in range(p):
        for j in range(p):
            S[i, j] = tau * MM[i, j] + spread * K_inv[i, j] if i < m and j < m else 0.0
        S[i, i] += 1.0
        column[i] = tau * V[M_X, i]
        for j in range(m, p):
            column[i] -= tau * MM[i, j] + spread * K_inv[i, j]
    log_det = -invert_spd(S, V[ROW])
    for i in range(m, p):
        S[i, i] = 0.0
    times(S, column, V[Y_BAR])
    for i in range(m, p):
        V[Y_BAR, i] = 1.0
    return log_det


@kernel
def whiten(A, g, m):
    """ln|A| and g'A^-1 g over the leading m x m block, by Cholesky in place; g becomes L^-1 g."""
    log_det, q = 0.0, 0.0
    for i in range(m):
        for j in range(i + 1):
            value = A[i, j]
            for k in range(j):
                value -= A[i, k] * A[j, k]
            A[i, j] = value / A[j, j] if j < i else math.sqrt(max(value, 1.0))
        for k in range(i):
            g[i] -= A[i, k] * g[k]
        g[i] /= A[i, i]
        log_det += math.log(A[i, i])
        q += g[i] * g[i]
    return 2.0 * log_det, q


@kernel
def log_predictive(tau, shape, xx, n_o, m, K_inv, lam, P, V):
    """Log density of a row: N(mu, M M' + (v/tau) I) with v = 1 + E[y'(lam K)^-1 y], the loadings' own uncertainty.

    With tau ~ Ga(shape, .) the Gaussian becomes a Student distribution; `shape` 0 stands for a known tau. Returns also
    tau |x - mu|^2.
    """
    A, MM, g = P[SCRATCH], P[M_M], V[ROW]
    p = A.shape[0]
    t = tau / (1.0 + (trace_of_product(P[S_Y], K_inv) + quadratic(V[Y_BAR], K_inv)) / lam)
    d2 = xx
    for j in range(m, p):
        d2 += MM[j, j] - 2.0 * V[M_X, j]
    for i in range(m):
        g[i] = V[M_X, i]
        for j in range(m, p):
            g[i] -= MM[i, j]
        for j in range(m):
            A[i, j] = t * MM[i, j]
        A[i, i] += 1.0
    log_det, explained = whiten(A, g, m)
    q = max(t * d2 - t * t * explained, 0.0)
    half = 0.5 * n_o
    value = half * (math.log(t) - LOG_2PI) - 0.5 * log_det
    if shape <= 0.0:
        return value - 0.5 * q, tau * d2
    value += math.lgamma(shape + half) - math.lgamma(shape) - half * math.log(shape)
    return value - (shape + half) * math.log1p(0.5 * q / shape), tau * d2


@kernel
def absorb(gaps, xx, B, K, C, K_inv, lam, P, V):
    """Plan K' = lam K + Y and its inverse, and C' as if every cell were observed: a gap counts as M ybar."""
    S, K_new, C_new, ybar, u, v = P[S_Y], P[K_NEW], P[C_NEW], V[Y_BAR], V[B_X], V[K_INV_Y]
    p = S.shape[0]
    times(K_inv, ybar, v)
    for i in gaps:
        fit = 0.0
        for c in range(p):
            fit += B[c, i] * v[c]
        for c in range(p):
            u[c] += lam * B[c, i] * fit
        xx += fit * fit
    for i in range(p):
        for j in range(p):
            K_new[i, j] = lam * K[i, j] + S[i, j] + ybar[i] * ybar[j]
            P[K_NEW_INV, i, j] = K_new[i, j]
            C_new[i, j] = lam * lam * C[i, j] + u[i] * ybar[j] + ybar[i] * u[j] + xx * ybar[i] * ybar[j]
    invert_spd(P[K_NEW_INV], V[COLUMN])


@kernel
def residual(x, gaps, B, v, fit):
    """|x_o - M_o ybar|^2 cell by cell, with v = K^-1 ybar; `fit` becomes M ybar."""
    p, n = B.shape
    for i in range(n):
        fit[i] = 0.0
    for c in range(p):
        for i in range(n):
            fit[i] += v[c] * B[c, i]
    total = 0.0
    for i in range(n):
        total += (x[i] - fit[i]) ** 2
    for i in gaps:
        total -= fit[i] ** 2
    return max(total, 0.0)


@kernel
def misfit(x, gaps, xx, B, P, V, fit):
    """Q = |x - M ybar|^2 + tr(S M'M) - tr(R K'^-1 R') with R = x ybar' - M Y, the evidence's sum of squares."""
    S, MM, K_new_inv, ybar, Mr, z = P[S_Y], P[M_M], P[K_NEW_INV], V[Y_BAR], V[COLUMN], V[ROW]
    p = S.shape[0]
    times(MM, ybar, Mr)
    r2 = xx
    for i in range(p):
        r2 += ybar[i] * (Mr[i] - 2.0 * V[M_X, i])
        Mr[i] = V[M_X, i] - Mr[i]
    if r2 < CANCELLED * xx:
        r2 = residual(x, gaps, B, V[K_INV_Y], fit)
    times(S, Mr, z)
    sandwich(S, MM, P[SCRATCH], P[SCRATCH_2])
    q = r2 + trace_of_product(S, MM) - trace_of_product(P[SCRATCH_2], K_new_inv)
    for i in range(p):
        for j in range(p):
            q -= (r2 * ybar[i] * ybar[j] - ybar[i] * z[j] - z[i] * ybar[j]) * K_new_inv[i, j]
    return max(q, 0.0)


@kernel
def noise_floor(MM, m, n, rounding):
    """Least noise variance: a share of the mean variance of a column, and the rounding of the data."""
    total = 0.0
    for i in range(m):
        total += MM[i, i]
    return NOISE_SHARE * total / n + rounding


@kernel
def evaluate(x, gaps, xx, B, K, C, K_inv, noise, lam, rho, tau, prior, rounding, P, V, fit):
    """Score a row and plan what learning it would change.

    Parameters
    ----------
    x, gaps, xx : arrays and float
        The row with zeros in its gaps, the gaps' indices, and |x|^2.
    B, K, C, K_inv, noise : arrays
        The model; not changed.
    lam, rho : float
        Forgetting factors of the loadings and of the noise.
    tau : float
        Noise precision if it is known, else 0.
    prior : array of shape (2,)
        a0 and b0 of the noise.
    rounding : float
        Least noise variance.
    P, V, fit : arrays
        The plan, filled for `commit`, and scratch for a row.

    Returns
    -------
    score : float
        Log predictive density.
    distance : float
        tau |x - mu|^2.
    tau : float
        The noise precision used.
    """
    n, m = B.shape[1], B.shape[0] - 1
    n_o = n - len(gaps)
    learned = tau <= 0.0
    if learned:
        tau = noise[0] / noise[1]
    observe(x, gaps, B, C, K_inv, lam, P, V)
    latent(tau, n_o, m, K_inv, lam, P, V)
    score, distance = log_predictive(tau, noise[0] if learned else 0.0, xx, n_o, m, K_inv, lam, P, V)
    absorb(gaps, xx, B, K, C, K_inv, lam, P, V)
    V[NOISE, 0], V[NOISE, 1] = noise[0], noise[1]
    if learned:
        a = rho * noise[0] + (1.0 - rho) * prior[0] + 0.5 * n_o
        b = rho * noise[1] + (1.0 - rho) * prior[1] + 0.5 * misfit(x, gaps, xx, B, P, V, fit)
        V[NOISE, 0], V[NOISE, 1] = a, max(b, a * noise_floor(P[M_M], m, n, rounding))
    return score, distance, tau
