"""What a structure search works on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.keep.evidence import price
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.rows import background_of
from everlearn.mixture.state import Array, Settings, World


class Problem(NamedTuple):
    """What a search works on."""

    rows: Rows
    world: World
    ridge: Array  # (D,)
    settings: Settings
    rng: np.random.Generator
    price: float  # nats a component
    varying: int  # columns that are not constant
    tied: NDArray[np.intp]  # columns in which a value occurs twice


def problem_of(Z: Array, weights: Array, world: World, ridge: Array, settings: Settings, seed: int) -> Problem:
    """The search on given rows; its random starts follow from the seed and the row of the stream."""
    rows = Rows(Z, weights, background_of(Z, world.background))
    rng = np.random.default_rng([settings.seed & 0xFFFFFFFF, seed])
    varying = int(np.count_nonzero(np.ptp(Z, axis=0)))
    tied = np.flatnonzero((np.diff(np.sort(Z, axis=0), axis=0) == 0.0).any(axis=0))
    return Problem(rows, world, ridge, settings, rng, price(Z.shape[1], settings.diagonal), varying, tied)
