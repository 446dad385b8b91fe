"""Split and merge moves of the structure search: proposals with the exact change of the evidence bound."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from everlearn.mixture.keep.evidence import Fit, weights_normaliser
from everlearn.mixture.keep.problem import Problem
from everlearn.mixture.kernels import fitting as kernels
from everlearn.mixture.kernels.division import (
    DIVIDED,
    STARTS,
    Effort,
    Whole,
    evidence_of_divisions,
    first_divisions,
)
from everlearn.mixture.kernels.em import ALPHA, TINY, Moments, Rows
from everlearn.mixture.kernels.entropies import entropies, joint_entropies
from everlearn.mixture.state import Array, Background, Shape, World

# Rows with a smaller share take no part in a component's split.
SHARE = 0.02
# Fewest rows that a component is split with, that each half begins with, and that it keeps.
MIN_ROWS, LEAST, MIN_HALF = 6.0, 2.0, 1.5
# Steps of local EM: for every start, for the best of them, for the winner.
STEPS, BEST, MORE_STEPS, LAST_STEPS = 2, 3, 6, 10
# Where the best start has lost so many nats and the price of a component after its first steps, or so many after more
# of them, none follow: of 6,572 proposals on the 36 sets of benchmarks/mixture_quality.py that the defaults were chosen
# on, 1,189 were hopeful at last, and none of these had lost more than 17 and the price, or 15.
HOPELESS = 30.0
# Splits and merges that lose less evidence than this are tried: leave-one-out decides.
SLACK = 5.0
# Local EM stops below this gain in nats.
TOLERANCE = 0.02
# Weight of the prior shape in the evidence, at most: more would forbid components thinner than the others.
MAX_TAU = 2.0
# Multiplications of a slice: about 0.3 ms.
SLICE = 1_500_000

Mask = NDArray[np.bool_]


class Split(NamedTuple):
    """A division of a component: what it gains, by the rows of the component alone, and how it divides them."""

    gain: float  # of evidence
    value: float  # of leave-one-out likelihood, less the price of a component
    share: Array  # (m,), of the first half in each row


def propose_split(problem: Problem, fit: Fit, k: int) -> Generator[None, None, Split | None]:
    """Best division of component k, or None; yields between slices of work.

    Splitting r_k into r_k s and r_k (1 - s) changes the evidence bound by an amount that only the rows of component k
    decide, so all splits can be judged by themselves and done together.
    """
    rows = problem.rows
    idx = np.flatnonzero(fit.R[:, k] > SHARE)
    r = rows.weights[idx] * fit.R[idx, k]
    if r.sum() < MIN_ROWS or len(idx) < MIN_ROWS:
        return None
    shape, background = evidence_shape(fit.shape), problem.world.background
    trials = Trials(whole_of(np.ascontiguousarray(rows.Z[idx]), r), shape, background)
    before = trials.evidence_of_whole()
    yield
    shares = _starts(trials.whole, shape, problem)
    yield
    if not len(shares):
        return None
    # Few steps for all starts, more for the best ones: most of the work goes where the winner is.
    values = yield from trials.evidence(shares, STEPS)
    if values.max() - before < -HOPELESS - problem.price:
        return None
    shares = shares[np.argsort(-values, kind="stable")[:BEST]]
    values = yield from trials.evidence(shares, MORE_STEPS)
    if values.max() - before < -HOPELESS:
        return None
    best = shares[[int(np.argmax(values))]]
    values = yield from trials.evidence(best, LAST_STEPS)
    gain = float(values[0]) - before
    if gain <= -SLACK:
        return None
    share = np.full(len(rows.Z), 0.5)
    share[idx] = best[0]
    own = fit.R[:, k]
    halves = np.column_stack([own * share, own * (1.0 - share)])
    change = kernels.change_left_out(rows, np.ascontiguousarray(own[:, None]), halves, fit.left_out, fit.shape)
    yield
    return Split(gain, change - problem.price, share)


def whole_of(Z: Array, weights: Array) -> Whole:
    """A component that has rows Z with these shares of theirs."""
    total = float(weights.sum())
    mean = weights @ Z / total
    E = Z - mean
    return Whole(E, weights, total, mean, (E * weights[:, None]).T @ E)


class Trials(NamedTuple):
    """Divisions of the rows of a component, tried by EM."""

    whole: Whole
    shape: Shape
    background: Background

    def evidence_of_whole(self) -> float:
        """Evidence of the component undivided: there is no choice of labels."""
        whole = self.whole
        moments = Moments(np.array([whole.total]), whole.mean[None], whole.scatter[None])
        return float(kernels.log_marginals(moments, self.shape, self.background)[0])

    def evidence(self, shares: Array, steps: int) -> Generator[None, None, Array]:
        """Evidence of divisions after EM steps, which change `shares`, (S, n), in place; yields between slices."""
        n, D = self.whole.Z.shape
        out, effort = np.empty(len(shares)), Effort(steps, TOLERANCE, MIN_HALF)
        step = max(1, SLICE // (steps * (n + D) * D * D))
        for at in range(0, len(shares), step):
            part = slice(at, at + step)
            evidence_of_divisions(self.whole, self.shape, self.background, shares[part], effort, out[part])
            yield
        return out


def evidence_shape(shape: Shape) -> Shape:
    """The prior of the evidence: the common shape with at most MAX_TAU rows."""
    return shape._replace(tau=min(shape.tau, MAX_TAU))


def _starts(whole: Whole, shape: Shape, problem: Problem) -> Array:
    """First divisions to try, each of which gives both halves some rows: shares of the first half, (S, n)."""
    covariance = whole.scatter / whole.total + np.diag(shape.ridge)
    scale = np.sqrt(covariance.diagonal())
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    a, b = _two_rows(whole.weights / whole.weights.sum(), problem.rng)
    shares, counts = np.empty((STARTS, len(whole.Z))), np.empty(STARTS)
    E = whole.Z / scale
    P = E @ (vectors / np.sqrt(np.maximum(values, 1e-12)))
    first_divisions(E, P, whole.weights, a, b, shares, counts)
    ties = _ties(whole.Z, problem.tied)
    if ties:
        shares = np.concatenate([shares, np.where(ties, *DIVIDED)])
        counts = np.concatenate([counts, [whole.weights @ mask for mask in ties]])
    return shares[(counts >= LEAST) & (counts <= whole.total - LEAST)]


def _two_rows(p: Array, rng: np.random.Generator) -> tuple[int, int]:
    """Two different rows by chance, with probabilities p; `rng.choice` takes five times as long."""
    a, b = _drawn(p, rng.random(2))
    if a == b:
        p = p.copy()
        p[a] = 0.0
        b = _drawn(p, rng.random(1))[0]
    return int(a), int(b)


def _drawn(p: Array, uniform: Array) -> NDArray[np.intp]:
    """Places of a law p, which need not be normalised, by its inverse distribution function."""
    sums = np.cumsum(p)
    return np.searchsorted(sums / sums[-1], uniform, side="right")


def _ties(Z: Array, columns: NDArray[np.intp]) -> list[Mask]:
    """For the two columns where that halves the rows best: those with the most frequent value against the rest."""
    found = []
    for j in columns:
        values, place, counts = np.unique(Z[:, j], return_inverse=True, return_counts=True)
        top = int(np.argmax(counts))
        share = counts[top] / len(Z)
        if len(values) > 1 and 0.05 < share < 0.95:
            found.append((abs(share - 0.5), j, place == top))
    return [mask for _, _, mask in sorted(found, key=lambda item: item[:2])[:2]]


def split_responsibilities(fit: Fit, splits: dict[int, Split]) -> Array:
    """R with some components divided."""
    parts = []
    for k in range(fit.size):
        split, share = splits.get(k), fit.R[:, k]
        parts += [share] if split is None else [share * split.share, share * (1.0 - split.share)]
    return np.ascontiguousarray(np.column_stack(parts))


def parents_of_halves(K: int, divided: list[int]) -> list[list[int]]:
    """Of each component after a split the one that it was, or was a part of."""
    return [[k] for k in range(K) for _ in range(2 if k in divided else 1)]


def merge_gains(problem: Problem, fit: Fit) -> Array:
    """Change of the evidence bound for every pair i < j that may be merged; -inf for the others, (K, K)."""
    rows, world, (counts, means, scatters) = problem.rows, problem.world, fit.moments
    K, shape = fit.size, evidence_shape(fit.shape)
    pairs = _candidates(rows, fit, world)
    i, j = pairs.T
    n = np.maximum(counts[i] + counts[j], TINY)  # of two to which no row belongs, too: they are joined
    d = means[i] - means[j]
    # Scatter of a union: both scatters, and n_i n_j/(n_i + n_j) times the squared distance of the means.
    between = (counts[i] * counts[j] / n)[:, None, None] * d[:, :, None] * d[:, None, :]
    mean = (counts[i, None] * means[i] + counts[j, None] * means[j]) / n[:, None]
    joined = kernels.log_marginals(Moments(n, mean, scatters[i] + scatters[j] + between), shape, world.background)
    single = kernels.log_marginals(fit.moments, shape, world.background) + gammaln(ALPHA + counts)
    change = weights_normaliser(K - 1, counts.sum()) - weights_normaliser(K, counts.sum())
    # Marginal likelihoods and the Dirichlet-multinomial of the labels, for K - 1 components in place of K.
    gain = joined + gammaln(ALPHA + n) + math.lgamma(ALPHA) - single[i] - single[j] + change
    # Entropy can only be lost: it is worked out where something is left without it.
    near = gain > -50.0
    own = entropies(rows, fit.R)
    lost = joint_entropies(rows, fit.R, pairs[near]) - own[i[near]] - own[j[near]]
    gains = np.full((K, K), -np.inf)
    gains[i[near], j[near]] = gain[near] + lost
    return gains


def merge_value(problem: Problem, fit: Fit, pair: tuple[int, int]) -> float:
    """Change of the value when two components are joined, by their rows alone."""
    old = np.ascontiguousarray(fit.R[:, list(pair)])
    new = old.sum(axis=1, keepdims=True)
    return float(kernels.change_left_out(problem.rows, old, new, fit.left_out, fit.shape)) + problem.price


def _candidates(rows: Rows, fit: Fit, world: World) -> NDArray[np.intp]:
    """Pairs that share rows, or are among the two nearest neighbours."""
    counts, means, _ = fit.moments
    # Only pairs that may gain are looked at in full: far components without common rows do not.
    overlap = fit.R.T @ (fit.R * rows.weights[:, None])
    spread = np.diag(world.covariance) + fit.shape.ridge
    distance = ((means[:, None] - means[None]) ** 2 / spread).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    limit = np.sort(distance, axis=1)[:, min(1, fit.size - 1)]
    near = distance <= limit[:, None]
    close = near | near.T | (overlap > 0.005 * np.minimum(counts[:, None], counts[None]))
    return np.argwhere(np.triu(close, 1))


def merge_responsibilities(fit: Fit, pairs: list[tuple[int, int]]) -> Array:
    """R with the components of each pair joined."""
    R = fit.R.copy()
    for i, j in pairs:
        R[:, i] += R[:, j]
    gone = {j for _, j in pairs}
    return np.ascontiguousarray(R[:, [k for k in range(fit.size) if k not in gone]])


def parents_of_unions(K: int, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Of each component after a merge the one or two that it was."""
    joined = dict(pairs)
    return [[k, joined[k]] if k in joined else [k] for k in range(K) if k not in joined.values()]
