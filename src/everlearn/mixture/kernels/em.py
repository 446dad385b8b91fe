"""Expectation-maximisation on a sample of rows, its leave-one-out score and its evidence."""

import math
from typing import NamedTuple

import numpy as np

from everlearn.linalg.arrays import (
    empty_indices,
    empty_matrix,
    empty_stack,
    empty_vector,
    zero_matrix,
    zero_stack,
    zero_vector,
)
from everlearn.linalg.blas import square_rows
from everlearn.linalg.compile import inlined, kernel
from everlearn.linalg.dense import mirror_upper
from everlearn.mixture.kernels.covariance import (
    LOG_2PI,
    covariance_factor,
    invert_factor,
    log_determinant,
    posterior_scatter,
)
from everlearn.mixture.kernels.distances import LANES, NEGLIGIBLE, joints_of_eight, room_for
from everlearn.mixture.kernels.parts import Shape
from everlearn.mixture.kernels.rows import squared_distance

# Responsibilities below this are left out of the moments.
SMALL = 1e-6
TINY = 1e-300
# Dirichlet parameter of the mixture weights.
ALPHA = 1.0
# A component that is so many nats below the best one of a row will not have a share of it within some steps of EM.
FAR = 40.0
# A smaller share of a row changes nothing in its component when the row is left out.
OWN = 1e-9
# Rows of a component that are gathered for one matrix product.
GATHERED = 256


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
    total: float  # weight of all rows of the search, of which these may be some


class Parts(NamedTuple):
    """Components as leave-one-out needs them."""

    moments: Moments
    gaussians: Gaussians
    shape: Shape
    own_share: float  # of the common shape, tau times, that a row of weight one has made


def parts_of(rows, moments, gaussians, shape, made=1.0):
    """Components as leave-one-out of these rows needs them; the rows have made the part `made` of the common shape."""
    return Parts(moments, gaussians, shape, made * shape.tau / max(rows.total, 1.0))


@kernel
def moments_of(rows, R):
    """Weighted counts, means and scatter matrices of the components with responsibilities R, (m, K)."""
    bounds, own, shares = rows_by_component(rows.weights, R)
    return moments_by_component(rows.Z, bounds, own, shares)


@kernel
def moments_by_component(Z, bounds, own, shares):
    """Moments of components from the rows of each, as `rows_by_component` gives them.

    The rows of a component are gathered, so that one product makes its scatter.
    """
    K, D = len(bounds) - 1, Z.shape[1]
    counts, means, scatters = zero_vector(K), zero_matrix(K, D), zero_stack(K, D, D)
    E = empty_matrix(GATHERED, D)
    for k in range(K):
        count, mean = 0.0, means[k]
        for a in range(bounds[k], bounds[k + 1]):
            row, share = Z[own[a]], shares[a]
            count += share
            for i in range(D):
                mean[i] += share * row[i]
        counts[k] = count
        for i in range(D):
            mean[i] /= max(count, TINY)
        for first in range(bounds[k], bounds[k + 1], GATHERED):
            last = min(first + GATHERED, bounds[k + 1])
            for a in range(first, last):
                # Roots of the weights, so that the product of the gathered rows
                # with themselves is the weighted scatter.
                row, out, root = Z[own[a]], E[a - first], math.sqrt(shares[a])
                for i in range(D):
                    out[i] = root * (row[i] - mean[i])
            square_rows(1.0, E[: last - first], 1.0, 0, D, scatters[k])
        mirror_upper(scatters[k])
    return Moments(counts, means, scatters)


@kernel
def rows_by_component(weights, R):
    """Rows of each component, as a sparse matrix: those of component k, and its shares in them, are from bounds[k] on.

    R is read along its rows: columns of it, one for each of 50 components, would be read from another cache line each.
    """
    m, K = R.shape
    bounds, at = empty_indices(K + 1), empty_indices(K)
    for k in range(K + 1):
        bounds[k] = 0
    for t in range(m):
        for k in range(K):
            bounds[k + 1] += weights[t] * R[t, k] > SMALL
    for k in range(K):
        at[k] = bounds[k]
        bounds[k + 1] += bounds[k]
    own, shares = empty_indices(bounds[K]), empty_vector(bounds[K])
    for t in range(m):
        for k in range(K):
            share = weights[t] * R[t, k]
            if share > SMALL:
                own[at[k]], shares[at[k]] = t, share
                at[k] += 1
    return bounds, own, shares


@kernel
def gaussians_of(moments, shape):
    """Posterior-mean Gaussians of the components: Sigma = B (1 + 1/N) / (tau + N - 1)."""
    K, D = moments.means.shape
    factors, heights, log_dets = empty_stack(K, D, D), empty_vector(K), empty_vector(K)
    B = empty_matrix(D, D)
    for k in range(K):
        count = moments.counts[k]
        posterior_scatter(count, moments.scatters[k], shape, B)
        log_dets[k] = invert_factor(B, factors[k])
        scale = covariance_factor(count, shape.tau)
        for i in range(D):
            for j in range(i + 1):
                factors[k, i, j] /= math.sqrt(scale)
        heights[k] = math.log(max(count, TINY)) - 0.5 * (D * (LOG_2PI + math.log(scale)) + log_dets[k])
    return Gaussians(moments.means, factors, heights, log_dets)


@inlined
def share_row(joints, high, lane, behind, out):
    """Responsibilities of a row from its log joints, of which `high` is the largest; returns its log-density."""
    top = max(high, behind)
    s = math.exp(behind - top)
    own = s if behind > high else 0.0
    # The exponential stands where it cannot be taken before the comparison: LLVM would take all of them.
    for k in range(len(out)):
        v = joints[k, lane] - top
        out[k] = 0.0
        if v > -NEGLIGIBLE:
            out[k] = math.exp(v)
            s += out[k]
            own += out[k]
    own = 1.0 / own
    for k in range(len(out)):
        out[k] *= own
    return top + math.log(s)


@inlined
def mark_near(joints, least, lane, near):
    """Ones where the log joint of a row is above `least`, zeros elsewhere."""
    for k in range(len(near)):
        near[k] = 1.0 if joints[k, lane] > least else 0.0


@kernel
def expect(rows, gaussians, R, log_joints, start, stop, near):
    """Responsibilities of some rows into R and their unnormalised log-density into `log_joints`.

    `near`, (m, K) or (0, K), becomes one where a component is at most FAR nats below the best.

    The background takes its share of the rows that it explains better than any component: an outlier then spoils no
    covariance. Of the other rows it takes none, so that the moments of one component are those of its rows.
    """
    room = room_for(len(gaussians.heights), rows.Z.shape[1])
    far = FAR if len(near) else NEGLIGIBLE
    for first in range(start, stop, LANES):
        joints_of_eight(rows, gaussians, R, first, far, room)
        for t in range(first, min(first + LANES, stop)):
            if len(near):
                mark_near(room.joints, max(room.top[t - first], rows.background[t]) - FAR, t - first, near[t])
            log_joints[t] = share_row(room.joints, room.top[t - first], t - first, rows.background[t], R[t])


@inlined
def joint_without(r, weight, joint, x, k, parts):
    """Log joint of a row with component k once it is left out, from that with it.

    Its share r goes from the component, its weight from the shape that all components share.
    """
    moments, gaussians, shape, own_share = parts
    D, N = x.shape[0], moments.counts[k]
    left = N - r
    # Nothing is left of the component but this row: it says nothing of it.
    if left < 1e-3 * N or left < 1e-6:
        return -np.inf
    whole, scale = covariance_factor(N, shape.tau), covariance_factor(left, shape.tau)
    a, q, log_rest = r * N / left + weight * own_share, 0.0, 0.0
    if shape.diagonal:
        for j in range(D):
            own = (gaussians.factors[k, j, j] * (x[j] - gaussians.means[k, j])) ** 2 * whole
            rest = max(1.0 - a * own, 1e-12)
            q += own / rest
            log_rest += math.log(rest)
    else:
        # q = e'B^-1 e from the log joint that is known already.
        own = 2.0 * (gaussians.heights[k] - joint) * whole
        rest = max(1.0 - a * own, 1e-12)
        q, log_rest = own / rest, math.log(rest)
    distance = q * (N / left) ** 2 / scale
    return math.log(left) - 0.5 * (D * (LOG_2PI + math.log(scale)) + gaussians.log_dets[k] + log_rest + distance)


@inlined
def leave_out_row(t, lane, rows, R, parts, joints):
    """Log-density of row t by components without it, unnormalised, from its log joints with them."""
    top, weight = rows.background[t], rows.weights[t]
    for k in range(R.shape[1]):
        if weight * R[t, k] >= OWN:
            joints[k, lane] = joint_without(weight * R[t, k], weight, joints[k, lane], rows.Z[t], k, parts)
            top = max(top, joints[k, lane])
    # Components that have no share of the row know it by the common shape: where they may come to matter.
    least = top - NEGLIGIBLE
    for k in range(R.shape[1]):
        if weight * R[t, k] < OWN and joints[k, lane] > least:
            joints[k, lane] = joint_without(0.0, weight, joints[k, lane], rows.Z[t], k, parts)
            top = max(top, joints[k, lane])
    if top == -np.inf:
        return top
    # The background is not made of single rows: it stays as it is.
    s = math.exp(rows.background[t] - top)
    for k in range(R.shape[1]):
        if joints[k, lane] > top - NEGLIGIBLE:
            joints[k, lane] = math.exp(joints[k, lane] - top)
            s += joints[k, lane]
    return top + math.log(s)


@kernel
def leave_one_out(rows, R, parts, out, start, near):
    """Log-density of some rows from `start` on, each judged by components without it, given R; `out` says how many.

    `near` is filled as in `expect`.

    With r the share of a row, N' = N - r, q = e'B^-1 e and a = r N / N', the rank-one formulas give
    ``log|B'| = log|B| + log(1 - a q)`` and the distance ``(N / N')^2 q / (1 - a q)``: one E-step's cost. The shape
    that components share is made of the rows, too: a row takes its part of it along, which adds tau / rows to a, also
    of components that have no share of the row. Without that, common shapes of many columns fit the rows that they are
    judged by, and a row that is left out of its component is explained by another. A row of weight two is left out
    whole: with its copy inside, the model would know it. The ridge that the row itself adds to B stays, which changes
    less than the ridge's share of the variance. Diagonal covariances have these formulas for each column.
    """
    room = room_for(R.shape[1], rows.Z.shape[1])
    far = FAR if len(near) else NEGLIGIBLE
    for first in range(start, start + len(out), LANES):
        joints_of_eight(rows, parts.gaussians, R, first, far, room)
        for t in range(first, min(first + LANES, start + len(out))):
            if len(near):
                mark_near(room.joints, max(room.top[t - first], rows.background[t]) - FAR, t - first, near[t])
            top = leave_out_row(t, t - first, rows, R, parts, room.joints)
            out[t - start] = top - math.log(max(rows.total - rows.weights[t], 1e-6))


@kernel
def log_marginals(moments, shape, background):
    """Log marginal likelihood of the rows of each component, given R: the normal-inverse-Wishart evidence.

    ``-(N-1) D/2 log pi + log Gamma_D((v+N-1)/2) / Gamma_D(v/2) + v/2 log|P| - (v+N-1)/2 log|P + S + N ridge|
    - D/2 log N + log N(mean; all rows)`` with P = tau (C + ridge) and v = D + 1 + tau. With diagonal covariances it is
    the product over columns of the same with D = 1.
    """
    K, D = moments.means.shape
    out, B, e = empty_vector(K), empty_matrix(D, D), empty_vector(D)
    posterior_scatter(0.0, zero_matrix(D, D), shape, B)
    prior = log_determinant(B)
    for k in range(K):
        N = moments.counts[k]
        posterior_scatter(N, moments.scatters[k], shape, B)
        value = gamma_ratio(N, D, prior, log_determinant(B), shape)
        out[k] = value + mean_density(N, moments.means[k], background, e)
    return out


@inlined
def gamma_ratio(N, D, prior, posterior, shape):
    """`log_marginals` of one component but for its mean, from the log-determinants of P and of P + S + N ridge."""
    v = (1.0 if shape.diagonal else D) + 1.0 + shape.tau
    dof = max(N - 1.0, 0.0)
    value = 0.5 * v * prior - 0.5 * (v + dof) * posterior
    value -= 0.5 * D * (dof * math.log(math.pi) + math.log(max(N, 1.0)))
    for i in range(D):
        fewer = 0 if shape.diagonal else i
        value += math.lgamma(0.5 * (v + dof - fewer)) - math.lgamma(0.5 * (v - fewer))
    return value


@inlined
def mean_density(N, mean, background, e):
    """Log-density of the mean of a component: its prior is the law of the rows, as far as the component has a row."""
    d2 = squared_distance(background.factor, background.centre, mean, e, np.inf)
    return (background.height - 0.5 * d2) * min(N, 1.0)
