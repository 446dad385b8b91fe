"""EM that divides the rows of one component into two halves: the trials of a split, many to a call.

The steps are those of `em` with two components. One kernel for all of them saves what a call costs, which for the 60
rows of one component of many is ten times the arithmetic; and as the moments of the two halves add up to those of the
component, only those of the smaller half are summed over rows.
"""

import math
from typing import NamedTuple

import numpy as np

from everlearn.linalg.arrays import empty_matrix, empty_stack, empty_vector, zero_matrix, zero_vector
from everlearn.linalg.blas import square_rows
from everlearn.linalg.compile import inlined, kernel
from everlearn.mixture.kernels.covariance import (
    LOG_2PI,
    covariance_factor,
    invert_factor,
    log_determinant,
    posterior_scatter,
)
from everlearn.mixture.kernels.distances import LANES, NEGLIGIBLE, distances_of_eight, transpose_eight
from everlearn.mixture.kernels.em import ALPHA, SMALL, TINY, gamma_ratio, mean_density
from everlearn.mixture.kernels.entropies import less_log

# Shares of the two halves in a row, to begin with.
DIVIDED = 0.95, 0.05
# Ways to divide a component at first.
STARTS = 7


class Whole(NamedTuple):
    """The component that is divided, and what its halves are judged by."""

    Z: np.ndarray  # (n, D), its rows as deviations from its mean
    weights: np.ndarray  # (n,), of its rows: their shares in the component
    total: float  # of the weights
    mean: np.ndarray  # (D,)
    scatter: np.ndarray  # (D, D)


class Effort(NamedTuple):
    """How long EM goes on, and what it must leave."""

    steps: int
    tolerance: float  # a gain of log-likelihood below which it stops
    least: float  # rows of a half, at least


class Halves(NamedTuple):
    """Moments of the two halves, about the mean of the whole, and their Gaussians."""

    counts: np.ndarray  # (2,)
    means: np.ndarray  # (2, D)
    scatters: np.ndarray  # (2, D, D)
    factors: np.ndarray  # (2, D, D)
    heights: np.ndarray  # (2,)
    B: np.ndarray  # (D, D), room


class Lanes(NamedTuple):
    """Eight rows, and their distances to the halves."""

    X: np.ndarray  # (D, 8)
    E: np.ndarray  # (D, 8), room
    distances: np.ndarray  # (2, 8)


@kernel
def first_divisions(E, P, weights, a, b, shares, counts):
    """Divisions to try: shares of the first half, (STARTS, n), and its rows, none where that is another's division.

    Along the longest axis; along the one with two humps, which has the least kurtosis; the farthest row and what is
    near it; rows a and b, and what is near each; tails against the core; by the column with two humps; by the one with
    the longest tails. E are the rows of the component about its mean in standard deviations of the columns, P the same
    as principal components of variance one, both (n, D).
    """
    n, D = E.shape
    d2, humps, tails = empty_vector(n), zero_vector(D), zero_vector(D)
    far, farthest = 0, -1.0
    for t in range(n):
        d2[t] = 0.0
        for i in range(D):
            square, own = P[t, i] * P[t, i], E[t, i] * E[t, i]
            d2[t] += square
            humps[i] += weights[t] * square * square
            tails[i] += weights[t] * own * own
        if weights[t] > 0.5 and d2[t] > farthest:
            far, farthest = t, d2[t]
    humped, flat, long = np.argmin(humps), np.argmin(tails), np.argmax(tails)
    counts[:] = 0.0
    for t in range(n):
        to_far, to_a, to_b = 0.0, 0.0, 0.0
        for i in range(D):
            to_far += P[t, i] * P[far, i]
            to_a += P[t, i] * P[a, i]
            to_b += P[t, i] * P[b, i]
        # |p - a| < |p - b| without the deviations: 2 p'(a - b) > |a|^2 - |b|^2.
        put_share(0, t, P[t, D - 1] > 0.0, weights, shares, counts)
        put_share(1, t, humped < D - 1 and P[t, humped] > 0.0, weights, shares, counts)
        put_share(2, t, 2.0 * to_far > d2[far], weights, shares, counts)
        put_share(3, t, 2.0 * (to_a - to_b) > d2[a] - d2[b], weights, shares, counts)
        put_share(4, t, d2[t] > 1.6 * D, weights, shares, counts)
        put_share(5, t, D > 1 and E[t, flat] > 0.0, weights, shares, counts)
        put_share(6, t, D > 1 and abs(E[t, long]) > 1.0, weights, shares, counts)


@inlined
def put_share(start, t, first, weights, shares, counts):
    """Give most of row t to one of the halves."""
    shares[start, t] = DIVIDED[0] if first else DIVIDED[1]
    counts[start] += weights[t] if first else 0.0


@kernel
def evidence_of_divisions(whole, shape, background, shares, effort, out):
    """Evidence of divisions after EM steps, into `out`; -inf where a half keeps too few rows.

    A row of `shares`, (S, n), is a division: the share of the first half in each row of the component; EM changes it in
    place.
    """
    n, D = whole.Z.shape
    halves = Halves(
        empty_vector(2), empty_matrix(2, D), empty_stack(2, D, D), empty_stack(2, D, D), empty_vector(2),
        empty_matrix(D, D),
    )  # fmt: skip
    gathered = empty_matrix(n, D)
    blocks = empty_stack((n + LANES - 1) // LANES, D, LANES)
    for b in range(blocks.shape[0]):
        transpose_eight(whole.Z, b * LANES, blocks[b])
    E, distances = empty_matrix(D, LANES), empty_matrix(2, LANES)
    posterior_scatter(0.0, zero_matrix(D, D), shape, halves.B)
    prior = log_determinant(halves.B)
    for s in range(shares.shape[0]):
        last = -np.inf
        take_moments(whole, shares[s], gathered, halves)
        for _ in range(effort.steps):
            take_gaussians(shape, halves)
            value = 0.0
            for b in range(blocks.shape[0]):
                lanes = Lanes(blocks[b], E, distances)
                distances_of_eight(halves.means, halves.factors, 0, lanes)
                distances_of_eight(halves.means, halves.factors, 1, lanes)
                value += share_eight(b * LANES, whole.weights, halves.heights, distances, shares[s])
            take_moments(whole, shares[s], gathered, halves)
            if value - last < effort.tolerance:
                break
            last = value
        out[s] = -np.inf
        if min(halves.counts[0], halves.counts[1]) >= effort.least:
            out[s] = evidence(whole, shape, background, prior, shares[s], halves)


@inlined
def take_moments(whole, share, gathered, halves):
    """Moments of both halves: the smaller one from its rows, the other one is what that leaves of the whole."""
    n, D = whole.Z.shape
    count = 0.0
    for t in range(n):
        count += whole.weights[t] * share[t]
    small = 0 if count <= 0.5 * whole.total else 1
    large = 1 - small
    mean, scatter, rest = halves.means[small], halves.scatters[small], halves.scatters[large]
    mean[:] = 0.0
    count, m = 0.0, 0
    for t in range(n):
        r = whole.weights[t] * (share[t] if small == 0 else 1.0 - share[t])
        if r > SMALL:
            count += r
            root = math.sqrt(r)
            for i in range(D):
                gathered[m, i] = root * whole.Z[t, i]
                mean[i] += r * whole.Z[t, i]
            m += 1
    halves.counts[small], halves.counts[large] = count, whole.total - count
    for i in range(D):
        mean[i] /= max(count, TINY)
        # Deviations from the mean of the whole add up to nothing.
        halves.means[large, i] = -mean[i] * count / max(whole.total - count, TINY)
    scatter[:] = 0.0
    if m > 0:
        square_rows(1.0, gathered[:m], 1.0, 0, D, scatter)
    other = halves.means[large]
    for i in range(D):
        for j in range(i + 1):
            squares = scatter[j, i]
            scatter[i, j] = squares - count * mean[i] * mean[j]
            rest[i, j] = whole.scatter[i, j] - squares - (whole.total - count) * other[i] * other[j]


@inlined
def take_gaussians(shape, halves):
    """`em.gaussians_of` the two halves."""
    D = halves.means.shape[1]
    for k in range(2):
        count = halves.counts[k]
        posterior_scatter(count, halves.scatters[k], shape, halves.B)
        log_det = invert_factor(halves.B, halves.factors[k])
        scale = covariance_factor(count, shape.tau)
        for i in range(D):
            for j in range(i + 1):
                halves.factors[k, i, j] /= math.sqrt(scale)
        halves.heights[k] = math.log(max(count, TINY)) - 0.5 * (D * (LOG_2PI + math.log(scale)) + log_det)


@inlined
def share_eight(first, weights, heights, distances, share):
    """Shares of the first half in eight rows from their distances; returns the log-likelihood of the rows."""
    value = 0.0
    for t in range(first, min(first + LANES, len(share))):
        a, b = heights[0] - 0.5 * distances[0, t - first], heights[1] - 0.5 * distances[1, t - first]
        less = -abs(a - b)
        worse = math.exp(less) if less > -NEGLIGIBLE else 0.0
        share[t] = (1.0 if a >= b else worse) / (1.0 + worse)
        value += weights[t] * (max(a, b) + math.log(1.0 + worse))
    return value


@kernel
def evidence(whole, shape, background, prior, share, halves):
    """`fitting.evidence_of` the two halves."""
    D = halves.means.shape[1]
    value = math.lgamma(2.0 * ALPHA) - 2.0 * math.lgamma(ALPHA) - math.lgamma(2.0 * ALPHA + whole.total)
    for k in range(2):
        count, mean = halves.counts[k], halves.means[k]
        posterior_scatter(count, halves.scatters[k], shape, halves.B)
        value += gamma_ratio(count, D, prior, log_determinant(halves.B), shape)
        value += math.lgamma(ALPHA + count)
        for i in range(D):
            mean[i] += whole.mean[i]
        value += mean_density(count, mean, background, halves.B[0])
        for i in range(D):
            mean[i] -= whole.mean[i]
    for t in range(len(share)):
        value += whole.weights[t] * (less_log(share[t]) + less_log(1.0 - share[t]))
    return value
