"""One Gaussian or two: the likelihood of rows held out, in the principal coordinates of a group of rows.

A group of m rows spans at most m - 1 directions; the rest of each row is a number, its energy. In these coordinates a
fit costs the same whether there are 300 columns or 10,000.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from everlearn.low_rank.keep.slices import Work
from everlearn.low_rank.kernels.shape import LEAST_RATIO, spiked_shape
from everlearn.typing import Array

# Principal coordinates of a group, at most.
COORDINATES = 48
# Rounds of expectation-maximisation from each start.
ROUNDS = 5
# Rounds after which the best starts are chosen, and how many of them go on.
FIRST_ROUNDS, GO_ON = 2, 2
# Parts of the rows that are predicted by the others.
FOLDS = 2
# Fewest rows of a part.
FEWEST = 4.0
# Nats by which two Gaussians must predict held-out rows better than one.
PRICE = 4.0
LOG_2PI = float(np.log(2.0 * np.pi))


class Coordinates(NamedTuple):
    """Rows of a group in principal coordinates."""

    Z: Array  # (m, P)
    rest: Array  # (m,), energy off the coordinates
    weights: Array  # (m,)
    D: int  # columns

    def some(self, rows: Array) -> Coordinates:
        """Some of the rows."""
        return Coordinates(self.Z[rows], self.rest[rows], self.weights[rows], self.D)


class Part(NamedTuple):
    """A low-rank Gaussian with isotropic noise in principal coordinates; predictive."""

    weight: float
    mean: Array  # (P,)
    directions: Array  # (r, P)
    variance: Array  # (r,), along the directions
    noise: float


def coordinates(Y: Array, weights: Array) -> Coordinates:
    """Principal coordinates of rows whose columns have noise of about one."""
    m, D = Y.shape
    E = np.asarray(Y - weights @ Y / weights.sum(), dtype=np.float32)
    # Rows are fewer than columns: the m x m Gram matrix has all that a Gaussian of these rows depends on.
    G = (E @ E.T).astype(np.float64)
    P = min(COORDINATES, m - 1, D)
    value, V = eigh(G, subset_by_index=[m - P, m - 1], check_finite=False)
    # V sqrt(value) are the rows along the principal axes; the axes themselves are never formed.
    Z = V * np.sqrt(np.maximum(value, 0.0))
    return Coordinates(Z, np.maximum(np.diagonal(G) - (Z * Z).sum(axis=1), 0.0), weights, D)


def fit(rows: Coordinates, share: Array, rank: int) -> Part:
    """The Gaussian of rows, each counted `share` times."""
    w = rows.weights * share
    N = float(w.sum())
    mean = w @ rows.Z / N
    E = np.sqrt(w)[:, None] * (rows.Z - mean)
    P = E.shape[1]
    top = min(rank, P, rows.D - 1)
    value, V = np.linalg.eigh(E.T @ E)  # all of them: for so few coordinates twice as fast as the largest alone
    scatter = np.maximum(value[::-1][:top], 0.0)
    # Off the coordinates the mean of the part is not known; of independent residuals it has 1 / N of the energy.
    trace = float((E * E).sum() + w @ rows.rest * max(1.0 - 1.0 / N, 0.0))
    s, lam = spiked_shape(N, scatter, trace, rows.D, 1.0)
    r = int(np.count_nonzero(lam > LEAST_RATIO * s))
    # Predictive: the mean is known to 1/N of the covariance.
    grow = 1.0 + 1.0 / N
    return Part(N, mean, np.ascontiguousarray(V[:, ::-1][:, :r].T), lam[:r] * grow, float(s * grow))


def log_joint(rows: Coordinates, parts: list[Part]) -> Array:
    """Log-density of each row and part, with the parts' weights, (m, parts)."""
    total = sum(part.weight for part in parts)
    out = np.empty((len(rows.rest), len(parts)))
    for k, (weight, mean, U, lam, s) in enumerate(parts):
        E = rows.Z - mean
        # U is orthonormal: along it the precision is 1/lam, off it 1/s.
        d2 = ((E * E).sum(axis=1) + rows.rest) / s - ((E @ U.T) ** 2) @ (1.0 / s - 1.0 / lam)
        log_det = (rows.D - len(lam)) * np.log(s) + np.log(lam).sum()
        out[:, k] = np.log(weight / total) - 0.5 * (d2 + log_det + rows.D * LOG_2PI)
    return out


def log_likelihood(rows: Coordinates, parts: list[Part]) -> float:
    """Weighted sum of log-densities."""
    return float(rows.weights @ np.logaddexp.reduce(log_joint(rows, parts), axis=1))


def starts(rows: Coordinates) -> list[NDArray[np.bool_]]:
    """Ways to part a group: by its first axes, by the distance along the first one, by the noise."""
    sides = [rows.Z[:, -k] > 0.0 for k in range(1, min(3, rows.Z.shape[1]) + 1)]
    far = np.abs(rows.Z[:, -1])
    return [*sides, far > np.median(far), rows.rest > np.median(rows.rest)]


def em(rows: Coordinates, side: NDArray[np.bool_], rounds: int, rank: int) -> tuple[list[Part], Array] | None:
    """Expectation-maximisation of two parts, and their responsibilities; None if one of them dies out."""
    R = np.column_stack([side, ~side]).astype(np.float64)
    parts: list[Part] = []
    for _ in range(rounds):
        if ((rows.weights @ R) < FEWEST).any():
            return None
        parts = [fit(rows, R[:, k], rank) for k in range(2)]
        joint = log_joint(rows, parts)
        before, R = R, np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
        if np.abs(before - R).max() < 1e-3:
            break
    return parts, R


class Verdict(NamedTuple):
    """Whether a group is better as two."""

    gain: float  # nats by which two predict held-out rows better than one; -inf where the group cannot be parted
    side: NDArray[np.bool_]  # (m,), the best parting
    gain_of_given: float  # of the parting that was given, as it is; -inf without one


def judge(rows: Coordinates, rank: int, given: NDArray[np.bool_] | None = None) -> Work:
    """Part a group in two, and say by how much that predicts rows better: each half of them by the other half.

    In-sample likelihood is no guide where there are fewer rows than columns: wrong partings fit their own rows better
    than the right one. Rows of a single Gaussian lose by being split, about half a nat for each parameter, which is
    far more than the best of a few starts gains by chance. Work in slices; its result is a `Verdict`.
    """
    index = np.arange(len(rows.rest))
    folds = [index % FOLDS == k for k in range(FOLDS)]
    halves = [(rows.some(~asked), rows.some(asked), ~asked) for asked in folds]
    # One Gaussian of each half, asked about the other half: what two have to beat.
    ones = [log_likelihood(asked, [fit(own, np.ones(len(own.rest)), rank)]) for own, asked, _ in halves]
    yield

    def gain(side: NDArray[np.bool_], rounds: int) -> Work:
        total = 0.0
        for (own, asked, of), one in zip(halves, ones, strict=True):
            two = em(own, side[of], rounds, rank)
            if two is None:
                return -np.inf
            total += log_likelihood(asked, two[0]) - one
            yield
        return total

    tried = []
    for side in starts(rows):
        tried.append(((yield from gain(side, FIRST_ROUNDS)), side))
    tried.sort(key=lambda one: -one[0])
    sides = [side for _, side in tried[:GO_ON]] + ([] if given is None else [given])
    gains = np.empty(len(sides))
    for i, side in enumerate(sides):
        gains[i] = yield from gain(side, ROUNDS)
    as_given = -np.inf if given is None else (yield from gain(given, 1))
    # Fitted to all rows in the end; a start that held up in halves may still lose a part on the whole.
    for i in np.argsort(-gains, kind="stable"):
        whole = em(rows, sides[i], ROUNDS, rank) if gains[i] > -np.inf else None
        yield
        if whole is not None:
            side = whole[1][:, 0] > 0.5
            if side.any() and not side.all():
                return Verdict(float(gains[i]), side, as_given)
    return Verdict(-np.inf, np.zeros(len(index), np.bool_), as_given)
