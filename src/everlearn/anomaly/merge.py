"""Two detectors into one."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.anomaly.kernels.memory import remember
from everlearn.anomaly.learn import refreshed
from everlearn.anomaly.state import Memory, Sample, Settings, State
from everlearn.typing import Array


def merged(first: State, second: State, settings: Settings, mixture: Any) -> State:
    """What two detectors know together; the arguments do not change.

    Sample and memories are those of both, in proportion to the rows behind them. Time cannot be merged: past, season,
    held and far rows are those of the first, which goes on in its own stream.
    """
    state = _copied(first)
    n, m = int(first.clock.learned[0]), int(second.clock.learned[0])
    _take_sample(state.sample, second.sample, n, m, settings.seed)
    _take_memory(state.memory, second.memory)
    _take_memory(state.combined, second.combined)
    assert state.lasting is not None  # states of old files have got one when they were read
    assert second.lasting is not None
    _take_memory(state.lasting, second.lasting)
    state.clock.learned[0] = n + m
    state.clock.next_sample[0] = n + m
    return refreshed(state, settings, mixture)


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return type(value)(*(_copied(part) for part in value))
    return value.copy()


def _take_sample(sample: Sample, other: Sample, n: int, m: int, seed: int) -> None:
    """Replace rows of the sample so that both streams are in it by their lengths, in place."""
    rng = np.random.default_rng([seed, n, m])
    rows = np.concatenate([_shuffled(s, rng) for s in (sample, other)])
    from_first = np.arange(len(rows)) < sample.size[0]
    room = len(sample.rows)
    if len(rows) > room:
        # In proportion to the rows learned: a uniform sample of both streams together has as many of each.
        share = round(room * n / (n + m))
        kept = np.concatenate([rows[from_first][:share], rows[~from_first][: room - share]])
        rows = kept if len(kept) == room else rng.permutation(rows)[:room]
    # Mixed, as the first places are those that are scored anew.
    sample.rows[: len(rows)] = rng.permutation(rows)
    sample.size[0] = len(rows)


def _shuffled(sample: Sample, rng: np.random.Generator) -> Array:
    return rng.permutation(sample.rows[: sample.size[0]])


def _take_memory(memory: Memory, other: Memory) -> None:
    """Remember half of the other's values after one's own, in place; a memory that is not full takes all that fit."""
    room = memory.ring.shape[1]
    for i in range(len(memory.size)):
        size = other.size[i]
        kept = min(size, max(room // 2, room - memory.size[i]))
        # The newest values in their order: a full ring begins at its head, one that is not full at zero.
        order = (other.head[i] - kept + np.arange(kept)) % room if size == room else np.arange(size - kept, size)
        for value in other.ring[i, order]:
            remember(memory, i, value)
