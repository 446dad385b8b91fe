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
from everlearn.low_rank.kernels import two_parts
from everlearn.low_rank.kernels.two_parts import Coordinates
from everlearn.typing import Array

# Principal coordinates of a group, at most.
COORDINATES = 48
# An axis is empty if its eigenvalue is at most this share of the largest: rounding of single precision.
EMPTY = 1e-6
# Rounds of expectation-maximisation from each start.
ROUNDS = 5
# Rounds after which the best starts are chosen, and how many of them go on.
FIRST_ROUNDS, GO_ON = 2, 2
# Rounds of two-means for a start, at most.
LLOYD_ROUNDS = 10
# Parts of the rows that are predicted by the others. Halves learn from too few rows to see that a group is better as
# two: with three parts digits in 256 and 784 columns gain 0.006 nats a column, and a search takes a third longer.
FOLDS = 3
# Nats by which two Gaussians must predict held-out rows better than one.
PRICE = 4.0


class Group(NamedTuple):
    """Rows by their inner products: where they are fewer than columns, all that a Gaussian of them depends on."""

    gram: Array  # (m, m), of the rows about their mean
    weights: Array  # (m,)
    D: int  # columns


def group_of(Y: Array, weights: Array) -> Group:
    """Rows whose columns have noise of about one, as a group."""
    E = np.asarray(Y - weights @ Y / weights.sum(), dtype=np.float32)
    return Group((E @ E.T).astype(np.float64), weights, Y.shape[1])


def coordinates(group: Group, learned: NDArray[np.bool_] | None = None) -> Coordinates:
    """All rows in the principal coordinates of those that are learned, or of all."""
    G, weights, D = group
    own = np.ones(len(G), np.bool_) if learned is None else learned
    share = weights[own] / weights[own].sum()
    # (x_i - c)'(x_j - c) about the mean c of the learned rows
    to_mean = G[:, own] @ share
    G = G - to_mean[:, None] - to_mean + share @ to_mean[own]
    m = len(share)
    P = min(COORDINATES, m - 1, D)
    value, V = eigh(G[np.ix_(own, own)], subset_by_index=[m - P, m - 1], check_finite=False)
    # An axis is E'v / sqrt(value) and is never formed; one without rows along it is zero.
    Z = G[:, own] @ (V / np.where(value > EMPTY * value[-1], np.sqrt(np.maximum(value, 0.0)), np.inf))
    return Coordinates(Z, np.maximum(np.diagonal(G) - (Z * Z).sum(axis=1), 0.0), weights, D)


def starts(rows: Coordinates) -> list[NDArray[np.bool_]]:
    """Ways to part a group: by its first axes, in two clusters, by the distance along the first axis, by the noise."""
    sides = [rows.Z[:, -k] > 0.0 for k in range(1, min(3, rows.Z.shape[1]) + 1)]
    far = np.abs(rows.Z[:, -1])
    return [*sides, two_means(rows, sides[0]), far > np.median(far), rows.rest > np.median(rows.rest)]


def two_means(rows: Coordinates, side: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Two clusters of rows by their distance from either mean (Lloyd), from a start.

    An axis cuts through clusters, and parts that fit their own rows too well do not give them back.
    """
    if side.all() or not side.any():  # rows that are all the same
        return side
    for _ in range(LLOYD_ROUNDS):
        means = [rows.weights[own] @ rows.Z[own] / rows.weights[own].sum() for own in (side, ~side)]
        # |z - a|^2 < |z - b|^2
        nearer = rows.Z @ (means[0] - means[1]) > (means[0] @ means[0] - means[1] @ means[1]) / 2.0
        if (nearer == side).all() or nearer.all() or not nearer.any():
            break
        side = nearer
    return side


def some(rows: Coordinates, which: NDArray[np.bool_]) -> Coordinates:
    """Some of the rows."""
    return Coordinates(rows.Z[which], rows.rest[which], rows.weights[which], rows.D)


class Folds:
    """Parts of a group of rows: how much better two Gaussians of the others predict each than one does."""

    def __init__(self, rows: Coordinates, rank: int) -> None:
        self.rank, index = rank, np.arange(len(rows.rest))
        self.learned = [index % FOLDS != k for k in range(FOLDS)]
        self.own = [some(rows, own) for own in self.learned]
        self.asked = [some(rows, ~own) for own in self.learned]
        self.ones = [
            two_parts.log_likelihood_of_one(asked, two_parts.fit(own, np.ones(len(own.rest)), rank))
            for own, asked in zip(self.own, self.asked, strict=True)
        ]


class Trial:
    """A parting of the rows, learned without each of the folds, by rounds of expectation-maximisation from a start."""

    def __init__(self, folds: Folds, start: NDArray[np.bool_]) -> None:
        self.folds, self.start, self.gain = folds, start, 0.0
        self.shares = [start[own].astype(np.float64) for own in folds.learned]
        self.gains = [0.0] * len(self.shares)
        self.under_way = [True] * len(self.shares)

    def go_on(self, rounds: int) -> Work:
        """So many rounds more, and the gain so far: -inf as soon as a part has died out."""
        folds = self.folds
        for k, (own, asked) in enumerate(zip(folds.own, folds.asked, strict=True)):
            if self.under_way[k] and self.gain > -np.inf:
                end, first, second = two_parts.em(own, self.shares[k], rounds, folds.rank)
                self.under_way[k] = end == two_parts.UNDER_WAY
                died = end == two_parts.DIED
                self.gains[k] = -np.inf if died else two_parts.log_likelihood(asked, first, second) - folds.ones[k]
                self.gain = sum(self.gains)
                yield
        return self.gain


class Verdict(NamedTuple):
    """Whether a group is better as two."""

    gain: float  # nats by which two predict held-out rows better than one; -inf where the group cannot be parted
    side: NDArray[np.bool_]  # (m,), the best parting
    gain_of_given: float  # of the parting that was given, as it is; -inf without one


def confirm(trial: Trial, group: Group) -> Work:
    """Nats by which the two Gaussians of a trial predict rows better that had no say in their axes either.

    Rows to be predicted have drawn the axes of all rows to themselves: 500 rows of one Gaussian in 784 columns seem to
    gain 0.5 nats a row by being two, where fresh rows lose 1.4; five Gaussians became 31 components.
    """
    held_out, in_sample = 0.0, 0.0
    for learned, share in zip(trial.folds.learned, trial.shares, strict=True):
        rows = coordinates(group, learned)
        yield
        own, asked = some(rows, learned), some(rows, ~learned)
        one = two_parts.fit(own, np.ones(len(own.rest)), trial.folds.rank)
        end, first, second = two_parts.em(own, share.copy(), 1, trial.folds.rank)
        if end == two_parts.DIED:
            return -np.inf
        held_out += two_parts.log_likelihood(asked, first, second) - two_parts.log_likelihood_of_one(asked, one)
        in_sample += two_parts.log_likelihood(own, first, second) - two_parts.log_likelihood_of_one(own, one)
        yield
    in_sample /= FOLDS - 1  # times that a row is learned
    # Two Gaussians of all rows predict better than those of the rows without a fold: if the gain of n rows is a - b / n
    # on fresh rows, it is a + b / n on themselves (Akaike), and grows by this much from (FOLDS - 1) / FOLDS of them.
    # That is generous, as a split gains by the rows to come: six folds without this step keep one Gaussian of 400 rows
    # whose variances fall off slowly whole, but cost digits in 784 columns 0.008 nats a column in two of three orders.
    return held_out + (in_sample - held_out) / (2.0 * FOLDS)


def judge(group: Group, rank: int, given: NDArray[np.bool_] | None = None) -> Work:
    """Part a group in two, and say by how much that predicts rows better: each fold of them by the other folds.

    In-sample likelihood is no guide where there are fewer rows than columns: wrong partings fit their own rows better
    than the right one. Rows of a single Gaussian lose by being split, about half a nat for each parameter, which is
    far more than the best of a few starts gains by chance. Partings are compared in the axes of all rows, and the best
    has to be confirmed. Work in slices; its result is a `Verdict`.
    """
    rows = coordinates(group)
    yield
    folds = Folds(rows, rank)
    yield
    trials = [Trial(folds, side) for side in starts(rows)]
    for trial in trials:
        yield from trial.go_on(FIRST_ROUNDS)
    trials = sorted(trials, key=lambda trial: -trial.gain)[:GO_ON]
    for trial in trials:
        yield from trial.go_on(ROUNDS - FIRST_ROUNDS)
    as_given = -np.inf
    if given is not None:
        trial = Trial(folds, given)
        as_given = yield from trial.go_on(1)
        yield from trial.go_on(ROUNDS - 1)
        trials.append(trial)
    # Fitted to all rows in the end; a start that held up in folds may still lose a part on the whole.
    for trial in sorted(trials, key=lambda trial: -trial.gain):
        share = trial.start.astype(np.float64)
        if trial.gain > -np.inf and two_parts.em(rows, share, ROUNDS, rank)[0] != two_parts.DIED:
            side = share > 0.5
            if side.any() and not side.all():
                confirmed = (yield from confirm(trial, group)) if trial.gain > PRICE else trial.gain
                return Verdict(trial.gain if confirmed > PRICE else confirmed, side, as_given)
        yield
    return Verdict(-np.inf, np.zeros(len(rows.rest), np.bool_), as_given)
