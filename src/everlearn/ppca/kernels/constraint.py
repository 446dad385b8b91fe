"""The natural constraint on online EM for probabilistic PCA (NAT-oEM's R-step), and how its arrays are laid out.

`state` is the tuple (m, S1, S2, mu, W, M_inv, scalars), `reference` is (mu, W, F_mu, F_W, scalars).
"""

import numpy as np

from everlearn.gaussian.kernels.ppca import copy_matrix, copy_vector, fisher
from everlearn.linalg.compile import kernel

# What `scalars` of a state holds: rows learned, S0, noise variance, ln|M|, columns that were never observed.
K, S0, SIGMA2, LOG_DET, UNSEEN = 0, 1, 2, 3, 4
STATE_SCALARS = 5
# What `scalars` of a reference holds: whether there is one, its noise variance, the Fisher information about it.
ACTIVE, REF_SIGMA2, F_SIGMA2 = 0, 1, 2
REFERENCE_SCALARS = 3
# What `rates` holds: scale and exponent of the gain, scale and exponent of the constraint's strength, and for the
# paper's constraint what turns 1/F from the model's unit into the data's, for mu, W and sigma2.
GAIN, GAIN_EXPONENT, STRENGTH, STRENGTH_EXPONENT, UNIT_MU, UNIT_W, UNIT_SIGMA2 = 0, 1, 2, 3, 4, 5, 6
RATES = 7
# What `counts` counts: weights of the paper's constraint above one, noise variances that were not positive, rows whose
# constraint was left out because it overflowed.
OVERSHOT, NOT_POSITIVE, OVERFLOWED = 0, 1, 2
COUNTS = 3

STRONGEST = 1e100  # limit of a weight
# A loop that both stores and sums runs vectorised only where its arrays lie far enough apart, which small ones may not;
# from this size on they do, and the sum's last bits do not depend on addresses.
SAFE_SIZE = 64
HUGE = 1e100  # parameters beyond this have overflowed


@kernel
def take_reference(body, state, reference, A):
    """Hold on to the parameters as they are, with their Fisher information."""
    _, _, _, mu, W, M_inv, scalars = state
    mu_ref, W_ref, F_mu, F_W, ref_scalars = reference
    copy_vector(mu, mu_ref)
    copy_matrix(W, W_ref)
    ref_scalars[F_SIGMA2] = fisher(W, scalars[SIGMA2], M_inv, body, A, F_mu, F_W)
    ref_scalars[REF_SIGMA2] = scalars[SIGMA2]
    ref_scalars[ACTIVE] = 1.0


@kernel
def inner(A, B):
    """Sum of the products of the entries."""
    total = 0.0
    for i in range(A.shape[0]):
        a, b = A[i], B[i]
        for j in range(A.shape[1]):
            total += a[j] * b[j]
    return total


@kernel
def pull_mean(m, mu, s, beta, reference):
    """Proximal step of mu: weighted mean of m and the reference; returns |m - mu|^2."""
    mu_ref, F_mu = reference[0], reference[2]
    for i in range(m.shape[0]):
        w = s * beta * F_mu[i]
        mu[i] = m[i] + w / (1.0 + w) * (mu_ref[i] - m[i])
    total = 0.0
    for i in range(m.shape[0]):
        total += (m[i] - mu[i]) ** 2
    return total


@kernel
def pull_loadings(V, weight, reference, W):
    """Proximal step of W: each entry a mean of the M-step's V and the reference's, weighted by the curvatures.

    The share of the reference is t F/(1 + t F) with t = `weight`. Returns tr(V W').
    """
    v, r, f, w = V.ravel(), reference[1].ravel(), reference[3].ravel(), W.ravel()
    cross = 0.0
    for e in range(w.shape[0]):
        t = weight * f[e]
        value = v[e] + t / (1.0 + t) * (r[e] - v[e])
        w[e] = value
        cross += v[e] * value
    return cross if W.size >= SAFE_SIZE else inner(V, W)


@kernel
def pull_noise(A, d, beta, s, reference_scalars):
    """Proximal step of s: the root v of A - d v - 2 beta F v^2 (v - s*) between A/d and s*.

    By Newton's method from the last s, kept inside the bracket by bisection.
    """
    s_ref = reference_scalars[REF_SIGMA2]
    strength = 2.0 * beta * reference_scalars[F_SIGMA2]
    low, high = min(A / d, s_ref), max(A / d, s_ref)
    v = min(max(s, low), high)
    for _ in range(60):
        value = A - d * v - strength * v * v * (v - s_ref)
        if value > 0.0:
            low = v
        else:
            high = v
        last = v
        v += value / (d + strength * v * (3.0 * v - 2.0 * s_ref))
        if not low < v < high:
            v = 0.5 * (low + high)
        if abs(v - last) <= 4e-16 * v:
            break
    return v


@kernel
def proximal_step(beta, V, expanded, state, reference, T):
    """R-step: minimise -Q + beta/2 |theta - theta*|^2 in the metric F of the reference; returns the noise variance.

    V are the loadings of the M-step. After parameter expansion S1 = V and S2 = I, so that each entry of W is found by
    itself; without it the curvature S2/s of Q in W counts with its mean.
    """
    m, S1, S2, mu, W, _, scalars = state
    s = scalars[SIGMA2]
    square = pull_mean(m, mu, s, beta, reference)
    curvature = 1.0 if expanded else np.trace(S2) / S2.shape[0]
    cross = pull_loadings(V, min(s * beta / curvature, STRONGEST), reference, W)
    if not expanded:
        cross = inner(S1, W)
    np.dot(W.T, W, T)
    A = scalars[S0] + square - 2.0 * cross + (np.trace(T) if expanded else inner(S2, T))
    return pull_noise(max(A, 0.0), W.shape[0], beta, s, reference[4])


@kernel
def paper_weight(weight, clip, counts):
    """beta/F as printed, or at most one; counts those above it."""
    if weight > 1.0:
        counts[OVERSHOT] += 1
        if clip:
            return 1.0
    return weight


@kernel
def paper_step(beta, rates, clip, s, state, reference, counts):
    """R-step as printed, theta - beta/F (theta - theta*), eq. 16 to 18; returns the noise variance, NaN on overflow."""
    m, mu, W = state[0], state[3], state[4]
    mu_ref, W_ref, F_mu, F_W, scalars = reference
    finite = True
    for i in range(W.shape[0]):
        mu[i] = m[i] - paper_weight(beta * rates[UNIT_MU] / F_mu[i], clip, counts) * (m[i] - mu_ref[i])
        finite = finite and abs(mu[i]) < HUGE
        for j in range(W.shape[1]):
            weight = paper_weight(beta * rates[UNIT_W] / F_W[i, j], clip, counts)
            W[i, j] -= weight * (W[i, j] - W_ref[i, j])
            finite = finite and abs(W[i, j]) < HUGE
    s -= paper_weight(beta * rates[UNIT_SIGMA2] / scalars[F_SIGMA2], clip, counts) * (s - scalars[REF_SIGMA2])
    return s if finite and abs(s) < HUGE else np.nan
