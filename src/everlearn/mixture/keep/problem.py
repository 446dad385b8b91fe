"""What a structure search works on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.keep.evidence import price
from everlearn.mixture.keep.world import DISTINCT
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.wide import background_of
from everlearn.mixture.state import Array, Settings, World

# Rows may be copies if there are at most so many, on average, of each.
MOST_COPIES = 10


class Problem(NamedTuple):
    """What a search works on."""

    rows: Rows
    world: World
    ridge: Array  # (D,)
    settings: Settings
    rng: np.random.Generator
    price: float  # nats a component
    varying: int  # columns that are not constant
    constant: NDArray[np.intp]  # the other ones
    tied: NDArray[np.intp]  # columns in which a value occurs twice
    is_part: bool = False  # whether the stream had other rows, too


def distinct_rows(Z: Array, weights: Array) -> tuple[Array, Array, float]:
    """Rows in an order of their own, so that a search does not depend on that of the stream; copies are one row.

    Returns rows, weights and the factor by which the weights became less. A row that was sent twice, or has weight two,
    counts for two, but is no evidence for two: the weights sum up to the effective number of rows, (sum w)^2 / sum w^2,
    if that is less.
    """
    order = _sorted_by(Z.T)
    Z, weights = np.ascontiguousarray(Z[order]), weights[order]
    equal = (Z[1:] == Z[:-1]) | (np.isnan(Z[1:]) & np.isnan(Z[:-1]))
    first = np.flatnonzero(np.concatenate([[True], ~equal.all(axis=1)]))
    if len(first) < len(Z) <= MOST_COPIES * len(first) and _are_copies(Z[first]):
        Z, weights = Z[first], np.add.reduceat(weights, first)
    # By sums over the columns: the order of the columns does not matter, either.
    order = _sorted_by((np.nansum(Z, axis=1), np.nansum(Z * Z, axis=1)))
    Z, weights = np.ascontiguousarray(Z[order]), weights[order]
    copies = max(1.0, float((weights @ weights) / weights.sum()))
    return Z, weights / copies, copies


def _sorted_by(keys: Array | tuple[Array, ...]) -> NDArray[np.intp]:
    """Order by the first key, where that is equal by the second, and so on."""
    order = np.argsort(keys[0], kind="stable")
    # The other keys, which of many columns take long to sort by, matter only where the first has ties; NaN is one.
    return order if (np.diff(keys[0][order]) > 0.0).all() else np.lexsort(keys[::-1])


def _are_copies(distinct: Array) -> bool:
    """Whether rows that were equal are copies: rows of a lattice are equal by chance.

    Copies if some column has hardly a value twice among the distinct rows, so that who agrees in it agrees in all. In a
    single column that says nothing, and few rows that come again and again are the states of a machine.
    """
    values = np.array([len(np.unique(column)) for column in distinct.T])
    return bool(np.count_nonzero(values > 1) > 1 and values.max() > DISTINCT * len(distinct))


def problem_of(
    Z: Array, weights: Array, world: World, ridge: Array, settings: Settings, seed: int, *, is_part: bool = False
) -> Problem:
    """The search on given rows; its random starts follow from the two seeds."""
    constant = np.flatnonzero(np.ptp(Z, axis=0) == 0.0)
    # In columns that do not vary the background is as narrow as the components: they are no evidence.
    variances = 4.0 * (world.covariance.diagonal() + ridge)[constant]
    narrower = 0.5 * float(np.log(variances / ridge[constant]).sum())
    rows = Rows(Z, weights, background_of(Z, world.background) + narrower, float(weights.sum()))
    rng = np.random.default_rng([settings.seed & 0xFFFFFFFF, seed])
    varying = Z.shape[1] - len(constant)
    tied = np.flatnonzero((np.diff(np.sort(Z, axis=0), axis=0) == 0.0).any(axis=0))
    cost = price(Z.shape[1], settings.diagonal)
    return Problem(rows, world, ridge, settings, rng, cost, varying, constant, tied, is_part)
