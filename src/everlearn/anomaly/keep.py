"""Guarded learning: rows that were held back are learned when they have lasted long enough to be a new normal."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.anomaly.kernels import rows as kernels
from everlearn.anomaly.state import Settings, State
from everlearn.typing import Array


class Release(NamedTuple):
    """Rows that became a new normal."""

    first: int
    last: int
    rows: int


class Held(NamedTuple):
    """Rows that were held back, in their order."""

    rows: Array  # (n, D)
    statistics: Array  # (n, V), before they were learned
    numbers: NDArray[np.int64]  # (n,)


def release(state: State, settings: Settings, mixture: Any) -> tuple[Release, Held]:
    """Let the mixture and the sample learn the rows that are held back, in place."""
    guard = state.guard
    room, count = len(guard.rows), guard.held[0]
    kept = np.arange(max(0, count - room), count) % room
    rows = guard.rows[kept]
    mixture.partial_fit(rows)
    for x in rows:
        kernels.sample_row(x, state.sample, state.clock.learned[0], settings.seed)
        state.clock.learned[0] += 1
    held = Held(rows, guard.statistics[kept], guard.numbers[kept])
    guard.held[0], guard.pressure[0] = 0, 0.0
    return Release(int(held.numbers[0]), int(held.numbers[-1]), len(rows)), held
