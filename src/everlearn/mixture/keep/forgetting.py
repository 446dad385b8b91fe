"""Forgetting by a fixed factor, and by one that is found: a bank of mixtures that remember differently long."""

from __future__ import annotations

import math

import numpy as np

from everlearn.mixture.state import Fading, Reservoir
from everlearn.typing import Array

# Components fade in steps of about this share: rows inside a step weigh the same.
STEP = 0.02
# Sampled rows of a smaller weight, relative to the heaviest, take no part in a search.
FADED = 1e-3
# Rows between two searches are at least this many times those of the warm-up.
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


def sample_weights(reservoir: Reservoir, n: int, fading: Fading) -> tuple[Array, Array, float]:
    """Slots of the sample that still count at row n, their weights, and how many times as many rows they stand for."""
    age = fading.rate * n
    own = np.exp(reservoir.log_weights[: reservoir.size] - age)
    stands_for = np.maximum(own, np.exp(reservoir.level - age))
    kept = np.arange(len(own))
    if fading.rate:
        kept = np.flatnonzero(stands_for > FADED * stands_for.max())
    own, stands_for = own[kept], stands_for[kept]
    ratio = float(stands_for.sum() / own.sum())
    # A level far below all weights is that of rows long forgotten: what still counts is all there.
    ratio = ratio if ratio > 1.0 + 1e-6 else 1.0
    return kept, stands_for / ratio, ratio


def shifted(sample: Reservoir, by: float) -> Reservoir:
    """The same sample in arrays of its own, with `by` added to the logarithms of all weights."""
    rows, log_weights, keys, size, level = sample
    return Reservoir(rows.copy(), log_weights + by, keys + by, size, level + by)
