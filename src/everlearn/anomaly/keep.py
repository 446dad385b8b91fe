"""Guarded learning: rows that were held back are learned when they have lasted long enough to be a new normal."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everlearn.anomaly.kernels import rows as kernels
from everlearn.anomaly.state import Settings, State


class Release(NamedTuple):
    """Rows that became a new normal."""

    first: int
    last: int
    rows: int


def release(state: State, settings: Settings, mixture: Any) -> Release:
    """Learn the rows that are held back, in place: by the mixture, the sample, and the memories of the statistics."""
    guard = state.guard
    room, held = len(guard.rows), guard.held[0]
    kept = np.arange(max(0, held - room), held) % room
    rows = np.ascontiguousarray(guard.rows[kept])
    mixture.partial_fit(rows)
    for x in rows:
        kernels.sample_row(x, state.sample, state.clock.learned[0], settings.seed)
        state.clock.learned[0] += 1
    kernels.remember_rows(guard.statistics[kept], state)
    found = Release(int(guard.numbers[kept[0]]), int(guard.numbers[kept[-1]]), len(rows))
    guard.held[0], guard.pressure[0] = 0, 0.0
    return found
