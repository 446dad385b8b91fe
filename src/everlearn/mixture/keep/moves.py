"""Split and merge moves of the structure search: proposals with the exact change of the evidence bound."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.keep.evidence import ALPHA, Fit, entropies, evidence, weights_normaliser
from everlearn.mixture.kernels import fitting as kernels
from everlearn.mixture.kernels.em import Moments, Rows
from everlearn.mixture.state import Array, Shape, World

# Rows with a smaller share take no part in a component's split.
SHARE = 0.02
# Fewest rows that a component is split with, and that each half keeps.
MIN_ROWS, MIN_HALF = 6.0, 1.5
# Steps of local EM: for every start, for the best of them, for the winner.
STEPS, BEST, MORE_STEPS, LAST_STEPS = 2, 3, 6, 10
# Local EM stops below this gain in nats.
TOLERANCE = 0.02
# Weight of the prior shape in the evidence, at most: more would forbid components thinner than the others.
MAX_TAU = 2.0

Mask = NDArray[np.bool_]


class Split(NamedTuple):
    """A division of a component: evidence gained, and the share of the first half in each row."""

    gain: float
    share: Array  # (m,)


def propose_split(
    rows: Rows, fit: Fit, k: int, world: World, rng: np.random.Generator
) -> Generator[None, None, Split | None]:
    """Best division of component k, or None; yields between slices of work.

    Splitting r_k into r_k s and r_k (1 - s) changes the evidence bound by an amount that only the rows of component k
    decide, so all splits can be judged by themselves and done together.
    """
    idx = np.flatnonzero(fit.R[:, k] > SHARE)
    r = rows.weights[idx] * fit.R[idx, k]
    if r.sum() < MIN_ROWS or len(idx) < MIN_ROWS:
        return None
    shape = evidence_shape(fit.shape)
    some = Rows(np.ascontiguousarray(rows.Z[idx]), r, np.full(len(idx), -np.inf))
    one = np.ones((len(idx), 1))
    whole = kernels.moments_of(some, one)
    before = evidence(some, one, whole, shape, world)
    tried: list[tuple[float, int, Array]] = []
    for mask in _starts(some, whole, shape, rng):
        if min(r[mask].sum(), r[~mask].sum()) < 2.0:
            continue
        R = np.where(mask[:, None], [0.95, 0.05], [0.05, 0.95])
        tried.append((_halves(some, R, shape, world, STEPS), -len(tried), R))
        yield
    best = (-math.inf, 0, one)
    for _, order, R in sorted(tried, key=lambda one: one[:2], reverse=True)[:BEST]:
        best = max(best, (_halves(some, R, shape, world, MORE_STEPS), order, R), key=lambda one: one[:2])
        yield
    if best[0] == -math.inf:
        return None
    gain = _halves(some, best[2], shape, world, LAST_STEPS) - before
    share = np.full(len(rows.Z), 0.5)
    share[idx] = best[2][:, 0]
    return Split(gain, share)


def evidence_shape(shape: Shape) -> Shape:
    """The prior of the evidence: the common shape with at most MAX_TAU rows."""
    return shape._replace(tau=min(shape.tau, MAX_TAU))


def _halves(some: Rows, R: Array, shape: Shape, world: World, steps: int) -> float:
    """Evidence of two halves after some EM steps, which change R in place."""
    moments = kernels.em(some, R, shape, steps, TOLERANCE)
    if moments.counts.min() < MIN_HALF:
        return -math.inf
    return evidence(some, R, moments, shape, world)


def _starts(some: Rows, whole: Moments, shape: Shape, rng: np.random.Generator) -> Iterator[Mask]:
    """First divisions to try, as masks of the rows."""
    Z, r = some.Z, some.weights
    n, D = whole.counts[0], Z.shape[1]
    covariance = whole.scatters[0] / n + np.diag(shape.ridge)
    scale = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    E = (Z - whole.means[0]) / scale
    P = E @ vectors / np.sqrt(np.maximum(values, 1e-12))
    # Along the longest axis, and along the axis with two humps: least kurtosis.
    yield P[:, -1] > 0.0
    humped = int(np.argmin(r @ P**4))
    if humped != D - 1:
        yield P[:, humped] > 0.0
    # The farthest row and what is near it; two rows at random; tails against the core.
    d2 = (P * P).sum(axis=1)
    far = int(np.argmax(d2 * (r > 0.5)))
    yield ((P - P[far]) ** 2).sum(axis=1) < d2
    a, b = rng.choice(len(Z), 2, replace=False, p=r / r.sum())
    yield ((P - P[a]) ** 2).sum(axis=1) < ((P - P[b]) ** 2).sum(axis=1)
    yield d2 > 1.6 * D
    if D > 1:
        # The column with two humps, and the one with the longest tails.
        kurtosis = r @ E**4
        yield E[:, int(np.argmin(kurtosis))] > 0.0
        yield np.abs(E[:, int(np.argmax(kurtosis))]) > 1.0
    yield from _ties(Z)


def _ties(Z: Array) -> list[Mask]:
    """For the two columns where that halves the rows best: those with the most frequent value against the rest."""
    found = []
    for j in range(Z.shape[1]):
        values, place, counts = np.unique(Z[:, j], return_inverse=True, return_counts=True)
        top = int(np.argmax(counts))
        share = counts[top] / len(Z)
        if len(values) > 1 and 0.05 < share < 0.95:
            found.append((abs(share - 0.5), j, place == top))
    return [mask for _, _, mask in sorted(found, key=lambda item: item[:2])[:2]]


def split_responsibilities(fit: Fit, chosen: list[int], splits: list[Split | None]) -> Array:
    """R with the chosen components divided."""
    parts = []
    for k in range(fit.size):
        split = splits[k] if k in chosen else None
        share = fit.R[:, k]
        parts += [share] if split is None else [share * split.share, share * (1.0 - split.share)]
    return np.ascontiguousarray(np.column_stack(parts))


def merge_gains(rows: Rows, fit: Fit, world: World) -> Array:
    """Change of the evidence bound for every pair i < j that may be merged; -inf for the others, (K, K)."""
    R, (counts, means, scatters) = fit.R, fit.moments
    K, shape = fit.size, evidence_shape(fit.shape)
    pairs = _candidates(rows, fit, world)
    i, j = pairs.T
    n = counts[i] + counts[j]
    d = means[i] - means[j]
    between = (counts[i] * counts[j] / n)[:, None, None] * d[:, :, None] * d[:, None, :]
    mean = (counts[i, None] * means[i] + counts[j, None] * means[j]) / n[:, None]
    joined = kernels.log_marginals(Moments(n, mean, scatters[i] + scatters[j] + between), shape, world.background)
    alone = kernels.log_marginals(fit.moments, shape, world.background)
    lgamma = np.vectorize(math.lgamma)
    local = joined + lgamma(ALPHA + n) - lgamma(ALPHA) if len(n) else joined
    single = alone + lgamma(ALPHA + counts) - lgamma(ALPHA)
    gains = np.full((K, K), -np.inf)
    change = weights_normaliser(K - 1, counts.sum()) - weights_normaliser(K, counts.sum())
    own = np.array([rows.weights @ entropies(R[:, [k]]) for k in range(K)])
    for p, (a, b) in enumerate(pairs):
        gain = local[p] - single[a] - single[b] + change
        if gain > -50.0:  # entropy can only be lost
            both = rows.weights @ entropies((R[:, a] + R[:, b])[:, None])
            gains[a, b] = gain + both - own[a] - own[b]
    return gains


def _candidates(rows: Rows, fit: Fit, world: World) -> NDArray[np.intp]:
    """Pairs that share rows, or are among the two nearest neighbours."""
    counts, means, _ = fit.moments
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
