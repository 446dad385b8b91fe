"""Expectation-maximisation on a sample of rows, its leave-one-out score and its evidence."""

import math
from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.mixture.kernels.covariance import LOG_2PI, covariance_factor, invert_factor, posterior_scatter
from everlearn.mixture.kernels.rows import squared_distance

# Responsibilities below this are left out of the moments, and a component this many nats below the best of a row has
# such a one: its distance need not be known further.
SMALL, NEGLIGIBLE = 1e-6, 14.0
TINY = 1e-300


class Moments(NamedTuple):
    """Weighted moments of K components."""

    counts: np.ndarray  # (K,)
    means: np.ndarray  # (K, D)
    scatters: np.ndarray  # (K, D, D)


class Gaussians(NamedTuple):
    """Components as an E-step needs them."""

    means: np.ndarray  # (K, D)
    factors: np.ndarray  # (K, D, D), inverse Cholesky factors of the covariances
    heights: np.ndarray  # (K,), log count - log|2 pi Sigma| / 2
    log_dets: np.ndarray  # (K,), log|B|


class Rows(NamedTuple):
    """The rows of a search."""

    Z: np.ndarray  # (m, D)
    weights: np.ndarray  # (m,)
    background: np.ndarray  # (m,), log joint of the broad Gaussian of all rows


@kernel
def moments_of(rows, R):
    """Weighted counts, means and scatter matrices of the components with responsibilities R, (m, K)."""
    Z, weights = rows.Z, rows.weights
    (m, D), K = Z.shape, R.shape[1]
    counts, means, scatters = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
    for t in range(m):
        for k in range(K):
            r = weights[t] * R[t, k]
            if r > SMALL:
                counts[k] += r
                for i in range(D):
                    means[k, i] += r * Z[t, i]
    for k in range(K):
        for i in range(D):
            means[k, i] /= max(counts[k], TINY)
    e = np.empty(D)
    for t in range(m):
        for k in range(K):
            r = weights[t] * R[t, k]
            if r > SMALL:
                S = scatters[k]
                for i in range(D):
                    e[i] = Z[t, i] - means[k, i]
                for i in range(D):
                    c, row = r * e[i], S[i]
                    for j in range(i + 1):
                        row[j] += c * e[j]
    for k in range(K):
        for i in range(D):
            for j in range(i):
                scatters[k, j, i] = scatters[k, i, j]
    return Moments(counts, means, scatters)


@kernel
def gaussians_of(moments, shape):
    """Posterior-mean Gaussians of the components: Sigma = B (1 + 1/N) / (tau + N - 1)."""
    K, D = moments.means.shape
    factors, heights, log_dets = np.empty((K, D, D)), np.empty(K), np.empty(K)
    B = np.empty((D, D))
    for k in range(K):
        count = moments.counts[k]
        posterior_scatter(count, moments.scatters[k], shape, B)
        log_dets[k] = invert_factor(B, factors[k])
        scale = covariance_factor(count, shape.tau)
        factors[k] /= np.sqrt(scale)
        heights[k] = math.log(max(count, TINY)) - 0.5 * (D * (LOG_2PI + math.log(scale)) + log_dets[k])
    return Gaussians(moments.means, factors, heights, log_dets)


@kernel
def expect(rows, gaussians, R, log_joints, start, stop):
    """Responsibilities of some rows into R and their unnormalised log-density into `log_joints`.

    R holds those of the step before, or zeros: the component that had most of a row is tried first, so that the sum of
    squares of most others can be left after a few columns.

    The background takes its share of the rows that it explains better than any component: an outlier then spoils no
    covariance. Of the other rows it takes none, so that the moments of one component are those of its rows.
    """
    D, K = rows.Z.shape[1], len(gaussians.heights)
    e, joint = np.empty(D), np.empty(K)
    heights = gaussians.heights
    for t in range(start, stop):
        x, top, best = rows.Z[t], rows.background[t], 0
        for k in range(1, K):
            if R[t, k] > R[t, best]:
                best = k
        for step in range(K):
            k = best if step == 0 else (step - 1 if step <= best else step)
            limit = 2.0 * (heights[k] - top + NEGLIGIBLE)
            d2 = squared_distance(gaussians.factors[k], gaussians.means[k], x, e, limit) if limit > 0.0 else 0.0
            joint[k] = heights[k] - 0.5 * d2 if limit > 0.0 else -np.inf
            top = max(top, joint[k])
        s, high = math.exp(rows.background[t] - top), -np.inf
        for k in range(K):
            high = max(high, joint[k])
            v = joint[k] - top
            joint[k] = math.exp(v) if v > -NEGLIGIBLE else 0.0
            s += joint[k]
        own = s if rows.background[t] > high else s - math.exp(rows.background[t] - top)
        for k in range(K):
            R[t, k] = joint[k] / own
        log_joints[t] = top + math.log(s)


@kernel
def em(rows, R, shape, steps, tolerance):
    """EM steps on few rows, changing R in place; returns the moments of the last R."""
    m = len(rows.Z)
    log_joints, last = np.empty(m), -np.inf
    moments = moments_of(rows, R)
    for _ in range(steps):
        expect(rows, gaussians_of(moments, shape), R, log_joints, 0, m)
        moments = moments_of(rows, R)
        value = np.sum(rows.weights * log_joints)
        if value - last < tolerance:
            break
        last = value
    return moments


@kernel
def leave_one_out(rows, R, moments, gaussians, shape, out, start):
    """Log-density of some rows from `start` on, each judged by components without it, given R; `out` says how many.

    With r the share of a row, N' = N - r, q = e'B^-1 e and a = r N / N', the rank-one formulas give
    ``log|B'| = log|B| + log(1 - a q)`` and the distance ``(N / N')^2 q / (1 - a q)``: one E-step's cost. The ridge
    that the row itself adds to B stays, which changes less than the ridge's share of the variance. Diagonal covariances
    have these formulas for each column.
    """
    tau = shape.tau
    D, K = rows.Z.shape[1], len(moments.counts)
    e, joint = np.empty(D), np.empty(K)
    total = np.sum(rows.weights)
    for i in range(len(out)):
        t = start + i
        one = min(rows.weights[t], 1.0)
        top = rows.background[t]
        for k in range(K):
            N, r = moments.counts[k], one * R[t, k]
            left = N - r
            joint[k] = -np.inf
            if r < 1e-9 or left < 1e-3 * N or left < 1e-6:
                continue
            d2 = squared_distance(gaussians.factors[k], gaussians.means[k], rows.Z[t], e, np.inf)
            a, whole, scale = r * N / left, covariance_factor(N, tau), covariance_factor(left, tau)
            q, log_rest = 0.0, 0.0
            if shape.diagonal:
                for j in range(D):
                    own = (gaussians.factors[k, j, j] * e[j]) ** 2 * whole
                    rest = max(1.0 - a * own, 1e-12)
                    q += own / rest
                    log_rest += math.log(rest)
            else:
                rest = max(1.0 - a * d2 * whole, 1e-12)
                q, log_rest = d2 * whole / rest, math.log(rest)
            distance = q * (N / left) ** 2 / scale
            log_det = gaussians.log_dets[k] + log_rest
            joint[k] = math.log(left) - 0.5 * (D * (LOG_2PI + math.log(scale)) + log_det + distance)
            top = max(top, joint[k])
        # Components that the row changes nothing in come last: the early exit then leaves most of them.
        for k in range(K):
            if one * R[t, k] < 1e-9:
                limit = 2.0 * (gaussians.heights[k] - top + NEGLIGIBLE)
                if limit > 0.0:
                    d2 = squared_distance(gaussians.factors[k], gaussians.means[k], rows.Z[t], e, limit)
                    joint[k] = gaussians.heights[k] - 0.5 * d2
                    top = max(top, joint[k])
        s = math.exp(rows.background[t] - top)
        for k in range(K):
            v = joint[k] - top
            s += math.exp(v) if v > -NEGLIGIBLE else 0.0
        out[i] = top + math.log(s) - math.log(max(total - one, 1e-6))


@kernel
def log_marginals(moments, shape, background):
    """Log marginal likelihood of the rows of each component, given R: the normal-inverse-Wishart evidence.

    ``-(N-1) D/2 log pi + log Gamma_D((v+N-1)/2) / Gamma_D(v/2) + v/2 log|P| - (v+N-1)/2 log|P + S + N ridge|
    - D/2 log N + log N(mean; all rows)`` with P = tau (C + ridge) and v = D + 1 + tau. With diagonal covariances it is
    the product over columns of the same with D = 1.
    """
    K, D = moments.means.shape
    out, B, F, e = np.empty(K), np.empty((D, D)), np.empty((D, D)), np.empty(D)
    tau = shape.tau
    v = (1.0 if shape.diagonal else D) + 1.0 + tau
    posterior_scatter(0.0, np.zeros((D, D)), shape, B)
    prior = 0.5 * v * invert_factor(B, F)
    for k in range(K):
        N = moments.counts[k]
        dof = max(N - 1.0, 0.0)
        posterior_scatter(N, moments.scatters[k], shape, B)
        value = prior - 0.5 * (v + dof) * invert_factor(B, F)
        value -= 0.5 * D * (dof * math.log(math.pi) + math.log(max(N, 1.0)))
        for i in range(D):
            fewer = 0 if shape.diagonal else i
            value += math.lgamma(0.5 * (v + dof - fewer)) - math.lgamma(0.5 * (v - fewer))
        d2 = squared_distance(background.factor, background.centre, moments.means[k], e, np.inf)
        out[k] = value + (background.height - 0.5 * d2) * min(N, 1.0)
    return out
