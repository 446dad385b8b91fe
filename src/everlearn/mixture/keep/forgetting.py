"""Forgetting: what a factor means for components, searches and the sample of rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.state import Fading, Reservoir
from everlearn.typing import Array

# Components fade in steps of about this share: rows inside a step weigh the same.
STEP = 0.02
# Sampled rows of a smaller weight, relative to the heaviest, take no part in a search.
FADED = 1e-3
# Rows between two searches where nothing is forgotten: row counts that double decide.
NEVER = 2**60


def fading_of(factor: float, warmup: int) -> Fading:
    """What a forgetting factor means for rows, components and searches.

    A row that came a rows ago weighs factor**a. Searches come every 1 / (1 - factor) rows, the length of the memory.
    """
    if factor == 1.0:
        return Fading(0.0, 1, 1.0, NEVER)
    memory = 1.0 / (1.0 - factor)
    every = max(1, int(STEP * memory))
    return Fading(-math.log(factor), every, factor**every, max(round(memory), warmup))


class Weights(NamedTuple):
    """What the rows of a sample count for now."""

    slots: NDArray[np.intp]  # (m,), those that still count
    weights: Array  # (m,), one for a row that stands for `ratio` rows of weight one
    ratio: float  # rows that each stands for


def sample_weights(reservoir: Reservoir, fading: Fading) -> Weights:
    """Weights of the sampled rows; those that are nearly forgotten are left out."""
    age = fading.rate * max(int(reservoir.offered[0]) - 1, 0)
    own = np.exp(reservoir.log_weights[: reservoir.size[0]] - age)
    stands_for = np.maximum(own, np.exp(reservoir.level[0] - age))
    slots = np.arange(len(own))
    if fading.rate:
        slots = np.flatnonzero(stands_for > FADED * stands_for.max())
        own, stands_for = own[slots], stands_for[slots]
    ratio = float(stands_for.sum() / own.sum())
    # A level far below all weights is that of rows long forgotten: what still counts is all there.
    ratio = ratio if ratio > 1.0 + 1e-6 else 1.0
    return Weights(slots, stands_for / ratio, ratio)
