"""A group of rows in principal coordinates as one Gaussian or as two, by expectation-maximisation."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.linalg.eigen import eigen
from everlearn.low_rank.kernels.shape import LEAST_RATIO, spiked_shape
from everlearn.typing import Array

# Fewest rows of a part.
FEWEST = 4.0
# Responsibilities that change by less than this have converged.
SETTLED = 1e-3
LOG_2PI = float(np.log(2.0 * np.pi))
# How a run of `em` ended.
DIED, CONVERGED, UNDER_WAY = 0, 1, 2


class Coordinates(NamedTuple):
    """Rows of a group in principal coordinates."""

    Z: Array  # (m, P)
    rest: Array  # (m,), energy off the coordinates
    weights: Array  # (m,)
    D: int  # columns


class Part(NamedTuple):
    """A low-rank Gaussian with isotropic noise in principal coordinates; predictive."""

    weight: float
    mean: Array  # (P,)
    directions: Array  # (r, P)
    variance: Array  # (r,), along the directions
    noise: float


@kernel
def fit(rows, share, rank):
    """The Gaussian of rows, each counted `share` times."""
    w = rows.weights * share
    N = w.sum()
    mean = (w / N) @ rows.Z
    E = np.sqrt(w).reshape(-1, 1) * (rows.Z - mean)
    scatter = E.T @ E
    value, V = eigen(scatter)
    top = min(rank, len(value), rows.D - 1)
    # Off the coordinates the mean of the part is not known; of independent residuals it has 1 / N of the energy.
    trace = np.trace(scatter) + w @ rows.rest * max(1.0 - 1.0 / N, 0.0)
    s, lam = spiked_shape(N, np.maximum(value[:top], 0.0), trace, rows.D, 1.0)
    r = np.count_nonzero(lam > LEAST_RATIO * s)
    # Predictive: the mean is known to 1/N of the covariance.
    grow = 1.0 + 1.0 / N
    return Part(N, mean, V[:r].copy(), lam[:r] * grow, s * grow)


@kernel
def log_densities(rows, part):
    """Log-density of each row under a part."""
    E = rows.Z - part.mean
    # The directions are orthonormal: along them the precision is 1 / variance, off them 1 / noise.
    along = E @ part.directions.T
    gain = 1.0 / part.noise - 1.0 / part.variance
    height = np.log(part.variance).sum() + (rows.D - len(gain)) * np.log(part.noise) + rows.D * LOG_2PI
    out = np.empty(len(rows.rest))
    for i in range(len(out)):
        d2 = rows.rest[i]
        for k in range(E.shape[1]):
            d2 += E[i, k] * E[i, k]
        d2 /= part.noise
        for k in range(len(gain)):
            d2 -= along[i, k] * along[i, k] * gain[k]
        out[i] = -0.5 * (d2 + height)
    return out


@kernel
def log_joint(rows, first, second):
    """Log-density of each row and part, with the parts' weights, (m, 2)."""
    total = first.weight + second.weight
    out = np.empty((len(rows.rest), 2))
    out[:, 0] = log_densities(rows, first) + np.log(first.weight / total)
    out[:, 1] = log_densities(rows, second) + np.log(second.weight / total)
    return out


@kernel
def log_likelihood_of_one(rows, part):
    """Weighted sum of log-densities under one Gaussian."""
    return rows.weights @ log_densities(rows, part)


@kernel
def log_likelihood(rows, first, second):
    """Weighted sum of log-densities under two."""
    joint = log_joint(rows, first, second)
    total = 0.0
    for i in range(len(joint)):
        total += rows.weights[i] * np.logaddexp(joint[i, 0], joint[i, 1])
    return total


@kernel
def em(rows, share, rounds, rank):
    """Rounds of expectation-maximisation of two parts; how they ended, and the parts.

    `share` is each row's responsibility of the first part, and is changed in place. Where a part has too few rows to
    go on, the parts are those of the round before, or empty.
    """
    first = second = Part(0.0, np.empty(0), np.empty((0, 0)), np.empty(0), 1.0)
    for _ in range(rounds):
        mass = rows.weights @ share
        if mass < FEWEST or rows.weights.sum() - mass < FEWEST:
            return DIED, first, second
        first, second = fit(rows, share, rank), fit(rows, 1.0 - share, rank)
        joint = log_joint(rows, first, second)
        change = 0.0
        for i in range(len(share)):
            new = 1.0 / (1.0 + np.exp(joint[i, 1] - joint[i, 0]))
            change = max(change, abs(new - share[i]))
            share[i] = new
        if change < SETTLED:
            return CONVERGED, first, second
    return UNDER_WAY, first, second
