"""Memories that hold the rows as the present model scores them, and not as an earlier one did.

A rank says how strange a row is only among rows that the same model has scored. While a model is young, or when rows
have just become a new normal, the scores of the day are those of a model that did not know them: thousands of nats,
beside which no later fault would seem strange.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.anomaly.kernels import rescore as kernels
from everlearn.anomaly.kernels.rows import unpack
from everlearn.anomaly.state import Past, Settings, State, Task
from everlearn.typing import Array

FAR_SCALES = 5.3  # a p-value of 5e-4 beyond the top tenth: the level from which the guard learns no row as usual


def rescore_memories(state: State, settings: Settings, fresh: Past, scratch: Any) -> None:
    """Fill the memories anew with the latest rows, all of which must have been learned; in place.

    `fresh` is a past that has seen nothing, in the same units: exponential means and histories begin with it again.
    """
    rows, ring = int(state.clock.rows[0]), state.season.ring
    numbers = np.arange(max(0, rows - len(ring)), rows)
    X = ring[numbers % len(ring)]
    running = ("history", "slow", "level", "drift", "own", "joint", "last", "repeats")
    past = state.past._replace(**{name: getattr(fresh, name) for name in running})
    clock = type(state.clock)(*(count.copy() for count in state.clock))
    clock.rows[0], clock.predicted[0] = numbers[0], 0
    statistics = np.full((len(X), len(settings.views)), np.nan)
    kernels.rescore_stream(X, unpack(Task(state._replace(past=past, clock=clock), settings, scratch)), statistics)
    statistics[_far_out(statistics[:, 0])] = np.nan
    kernels.refill(state.memory, statistics, numbers, settings.strides)
    scores, handle = np.full((len(X), 1), np.nan), unpack(Task(state, settings, scratch))
    kernels.combine(statistics, handle, scores)
    kernels.refill(state.combined, scores, numbers, np.ones(1, np.int64))
    suspicious = scores > _quantile(scores, 1.0 - settings.guard_level)
    kernels.add_rows_before(scores, handle)
    scores[suspicious] = np.nan
    kernels.refill(state.lasting, scores, numbers, np.ones(1, np.int64))


def _quantile(values: Array, share: float) -> float:
    """A quantile of the values that are not NaN; infinite where there are none."""
    seen = values[~np.isnan(values)]
    return float(np.quantile(seen, share)) if len(seen) else np.inf


def _far_out(atypicality: Array) -> NDArray[np.bool_]:
    """Rows that would have been held back, had the model been there: far beyond an exponential tail.

    Beyond its top tenth the atypicality, a -log p-value, is exponential where the mixture fits. Level and scale are
    quantiles, which faults of up to a twentieth of the rows do not move far.
    """
    seen = atypicality[~np.isnan(atypicality)]
    if not len(seen):
        return np.zeros(len(atypicality), np.bool_)
    # An exponential tail halves with every ln 2 of its scale: from the top tenth to the top twentieth.
    level, beyond = np.quantile(seen, [0.9, 0.95])
    scale = max((beyond - level) / np.log(2.0), 1.0)
    return np.nan_to_num(atypicality, nan=0.0) > level + FAR_SCALES * scale


def remember_released(
    state: State, X: Array, statistics: Array, numbers: Any, settings: Settings, scratch: Any
) -> None:
    """Remember rows that have become a new normal, in place: as the model scores them that has learned them.

    What they were after the rows before them does not change with the model.
    """
    statistics, handle = statistics.copy(), unpack(Task(state, settings, scratch))
    kernels.rescore_static(X, handle, statistics)
    kernels.remember_released(statistics, numbers, handle)
