"""From a fit to the sampled rows back to components that stand for all rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everlearn.mixture.keep.evidence import Fit, n_parameters
from everlearn.mixture.kernels.covariance import inverse_factor
from everlearn.mixture.kernels.em import Moments
from everlearn.mixture.kernels.rows import refresh_all
from everlearn.mixture.state import Array, Components, Settings, Shape

# Components that may be created between two searches.
SPARE = 12
# Nats beyond one a parameter by which a sample of a component may differ from it: chance in one of 2,000 at D = 2.
CHANCE = 8.0
# An old component goes to a new one whole if the new one has this share of its sampled rows.
PURE = 0.9


class Stock(NamedTuple):
    """Moments that stand for all rows."""

    mass: Array  # (K,)
    counts: Array  # (K,)
    means: Array  # (K, D)
    scatter: Array  # (K, D, D)


def components_of(stock: Stock, total: float, shape: Shape, room: int, parts: int = 0) -> Components:
    """Components with room for more, refreshed; with an axis each, and `parts` Gaussians along it, if any."""
    stock = _without_empty(stock, total)
    K, D = stock.means.shape
    A = D if parts else 0
    new = Components(
        np.array([K]), np.array([total]), np.zeros(1, np.int64), stock.mass, stock.counts, np.zeros(K),
        stock.means, np.zeros((K, D)), stock.scatter, np.zeros((K, D, D)), np.zeros(K),
        np.zeros((K, A)), np.zeros((K, parts, 3)), np.zeros((K, 3)),
    )  # fmt: skip
    new = with_room(new, room)
    refresh_all(new, shape)
    return new


def with_room(components: Components, room: int) -> Components:
    """The same components in arrays with room for `room` of them, which may be fewer than before."""
    K = int(components.size[0])

    def roomy(values: Array) -> Array:
        out = np.zeros((room, *values.shape[1:]))
        out[:K] = values[:K]
        return out

    return Components(*components[:3], *map(roomy, components[3:]))


def _without_empty(stock: Stock, total: float) -> Stock:
    """A component that no row belongs to, as happens where their number is given, gets a trace in the middle."""
    trace = max(1e-6 * total, 1e-9)
    empty = ~(stock.counts > trace)
    if not empty.any():
        return stock
    middle = stock.means[~empty].mean(axis=0) if not empty.all() else np.zeros(stock.means.shape[1])
    mass, counts = (np.where(empty, trace, values) for values in stock[:2])
    return Stock(
        mass, counts, np.where(empty[:, None], middle, stock.means), np.where(empty[:, None, None], 0.0, stock.scatter)
    )


def room_for(known: int, settings: Settings) -> int:
    """Components that arrays have room for when a search has found `known`."""
    return known if settings.fixed else min(known + SPARE, max(settings.most, known))


def copied(components: Components) -> Components:
    """The same components in arrays of their own."""
    return Components._make(values.copy() for values in components)


def stock_of_sample(fit: Fit, ratio: float) -> Stock:
    """The sample's own moments, each of its rows standing for `ratio` rows."""
    counts, means, scatters = fit.moments
    return Stock(counts * ratio, counts.copy(), means.copy(), scatters.copy())


def stock_of_components(components: Components) -> Stock:
    """The moments of all rows, after a refresh."""
    K = int(components.size[0])
    lower = np.tril(components.scatter[:K])  # what lies above the diagonal means nothing
    scatter = lower + np.tril(lower, -1).transpose(0, 2, 1)
    return Stock(components.mass[:K].copy(), components.counts[:K].copy(), components.means[:K].copy(), scatter)


def worth_of_other_rows(sampled: Array, old: Components, settings: Settings) -> float:
    """Nats of value that components with the statistics of all rows have over the same ones with those of the sample.

    A Gaussian of p parameters learned from N rows loses p / 2N nats of a new row. The value of a search, leave-one-out
    on the sample, has this loss for the n sampled rows of a component, where `carry` leaves one for N: over n rows that
    is p / 2 (1 - n / N) nats less.
    """
    counts = old.counts[: len(sampled)]
    share = np.minimum(sampled / np.maximum(counts, 1e-12), 1.0)
    return 0.5 * n_parameters(old.means.shape[1], settings.diagonal) * float((1.0 - share).sum())


def is_unmoved(start: Array, fit: Fit) -> bool:
    """Whether every old component kept its sampled rows, so that the search has found nothing to change."""
    flow = start.T @ fit.R
    if flow.shape[0] != flow.shape[1]:
        return False
    own = flow.max(axis=1) / np.maximum(flow.sum(axis=1), 1e-12)
    return bool((own > PURE).all() and len(set(flow.argmax(axis=1))) == len(flow))


def carry(stock: Stock, old: Stock, Z: Array, weights: Array, start: Array, fit: Fit) -> Stock:
    """Keep the statistics of all rows where the sample does not contradict them.

    An old component whose sampled rows went to one new component goes there whole; what else the new one has is
    estimated from its sampled rows. The sum stands if the sample's Gaussian differs from it by no more than chance
    allows, N KL <= p + CHANCE for p parameters (the expectation is p / 2); else the sample's moments stand with the
    sample's count, so that coming rows soon outweigh them.
    """
    flow = start.T @ (fit.R * weights[:, None])
    target, held = flow.argmax(axis=1), np.maximum(flow.sum(axis=1), 1e-12)
    whole = flow.max(axis=1) > PURE * held
    ratio = stock.mass.sum() / max(stock.counts.sum(), 1e-12)
    mass, count, means, scatter = (values.copy() for values in stock)
    for k in range(fit.size):
        own = np.flatnonzero(whole & (target == k))
        if not len(own):
            continue
        rest = weights * fit.R[:, k] * (1.0 - start[:, own].sum(axis=1))
        parts = [Stock(*(values[own] for values in old))]
        if rest.sum() > 1e-3 * stock.counts[k]:
            parts.append(_stock_of_rows(Z, rest, ratio))
        total = sum_of(Stock(*(np.concatenate(values) for values in zip(*parts, strict=True))))
        if total.counts[0] > 1.2 * stock.counts[k] and _agree(fit.moments, k, total, fit.shape):
            mass[k], count[k], means[k], scatter[k] = (values[0] for values in total)
    return Stock(mass, count, means, scatter)


def _stock_of_rows(Z: Array, weights: Array, ratio: float) -> Stock:
    n = weights.sum()
    mean = weights @ Z / n
    E = Z - mean
    return Stock(np.array([n * ratio]), np.array([n]), mean[None], ((E * weights[:, None]).T @ E)[None])


def sum_of(parts: Stock) -> Stock:
    """Moments of all parts together, as one component; each weighs as its mass."""
    # Masses say how many rows a part stands for and weigh the moments; counts say how sure the moments are and add up.
    mass = parts.mass.sum()
    mean = parts.mass @ parts.means / mass
    E = parts.means - mean
    each = parts.scatter / np.maximum(parts.counts, 1e-9)[:, None, None] + E[:, :, None] * E[:, None, :]
    count = parts.counts.sum()
    scatter = np.tensordot(parts.mass / mass, each, 1) * count
    return Stock(np.array([mass]), np.array([count]), mean[None], scatter[None])


def _agree(sample: Moments, k: int, total: Stock, shape: Shape) -> bool:
    """Whether the sampled rows of component k may come from a Gaussian with the moments of all."""
    ridge, diagonal = shape.ridge, shape.diagonal
    D = len(ridge)
    own = sample.scatters[k] / max(sample.counts[k], 1.0) + np.diag(ridge)
    all_rows = total.scatter[0] / total.counts[0] + np.diag(ridge)
    if diagonal:
        own, all_rows = np.diag(np.diag(own)), np.diag(np.diag(all_rows))
    # N KL(sample, all): half the likelihood ratio statistic, which is p/2 in the mean for p parameters.
    F, log_det = inverse_factor(all_rows)
    d = F @ (sample.means[k] - total.means[0])
    divergence = 0.5 * (np.sum((F @ own) * F) - D + log_det - np.linalg.slogdet(own)[1] + d @ d)
    return bool(sample.counts[k] * divergence <= n_parameters(D, diagonal) + CHANCE)
