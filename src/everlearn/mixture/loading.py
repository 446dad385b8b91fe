"""A state in a file: without the room that its arrays keep for what may come, and distrusted when it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.keep import carry, schedule
from everlearn.mixture.state import Components, Model, Pending, Reservoir, Settings, State
from everlearn.monitoring.event_log import KINDS, MAX_EVENTS, MonitorState
from everlearn.persistence.schema import check_state, expect_fields, require


def packed(state: State) -> State:
    """The state with arrays as long as what is in use."""
    return _resized(state, _sizes_in_use(state))


def unpacked(state: Any, D: int, reservoir: int, settings: Settings) -> State:
    """The state with room for what may come, as learning keeps it; refused where it does not fit."""
    check_state(state, State, {"D": D})
    _check(state, settings, reservoir)
    room = 0
    if state.model is not None:
        room = carry.room_for(state.model.known, settings)
        require(state.model.components.size[0] <= room, "it has more components than its parameters allow")
    return _resized(state, (room, reservoir, _pending_room(state, settings)))


def packed_monitor(state: MonitorState) -> MonitorState:
    """The monitor without the room of events that have not happened."""
    n = state.n_events
    return state._replace(rows=state.rows[:n], kinds=state.kinds[:n], values=state.values[:n])


def unpacked_monitor(state: Any) -> MonitorState:
    """The monitor with room for events; refused where its arrays do not fit."""
    expect_fields(
        state, MonitorState, {},
        totals="2", memory="4", rows="int64 E", kinds="int64 E", values="any E", n_events=int,
    )  # fmt: skip
    known = (state.kinds >= 0) & (state.kinds < len(KINDS))
    require(len(state.rows) <= MAX_EVENTS and known.all(), "it has events of an unknown kind, or too many")
    require(len(state.rows) >= min(state.n_events, MAX_EVENTS), "it counts more events than it has")
    rings = (np.zeros(MAX_EVENTS, values.dtype) for values in state[2:5])
    out = MonitorState(*state[:2], *rings, state.n_events)
    for ring, values in zip(out[2:5], state[2:5], strict=True):
        ring[: len(values)] = values
    return out


def _pending_room(state: State, settings: Settings) -> int:
    """Rows that may be pending: those of a search that is due, or of the warm-up."""
    if state.model is None:
        return settings.warmup + schedule.lag(settings.warmup)
    return schedule.lag(state.n) if state.pending.size else 0


def _sizes_in_use(state: State) -> tuple[int, int, int]:
    K = 0 if state.model is None else int(state.model.components.size[0])
    return K, int(state.reservoir.size[0]), state.pending.size


def _resized(state: State, rooms: tuple[int, int, int]) -> State:
    """The same state with room for so many components, sampled rows and pending rows."""
    K, M, P = _sizes_in_use(state)

    def sized(values: NDArray[Any], used: int, room: int) -> NDArray[Any]:
        out = np.zeros((room, *values.shape[1:]), values.dtype)
        out[:used] = values[:used]
        return out

    sample, pending, model = state.reservoir, state.pending, state.model
    if model is not None:
        size, total, *arrays = model.components
        own = Components(size, total, *(sized(values, K, rooms[0]) for values in arrays))
        model = model._replace(components=own)
    kept = (sized(values, M, rooms[1]) for values in sample[:3])
    waiting = (sized(values, P, rooms[2]) for values in pending[:2])
    return state._replace(model=model, reservoir=Reservoir(*kept, *sample[3:]), pending=Pending(*waiting, pending.size))


# -- rules that concern several fields ---------------------------------------------------------------


def _check(state: State, settings: Settings, reservoir: int) -> None:
    sample, pending, n = state.reservoir, state.pending, state.n
    require(0 <= sample.size[0] <= min(len(sample.rows), reservoir), "it counts more sampled rows than it has")
    require(pending.size <= len(pending.rows), "it counts more pending rows than it has")
    require(sample.level[0] < np.inf and sample.offered[0] >= sample.size[0], "the level of its sample is not a number")
    due = schedule.next_search(state.searched, settings.warmup, reservoir)
    if state.model is None:
        require(n == 0 and state.searched == 0 and sample.size[0] == 0, "it has learned rows but has no components")
        require(pending.size <= settings.warmup + schedule.lag(settings.warmup), "its warm-up is too long")
        return
    require(state.frame is not None, "it has components but no frame")
    require(n <= due and state.searched <= n, "its next search should have been made")
    limit = schedule.lag(n) if n == due else 0
    require(pending.size <= limit, "it has pending rows where no search is due")
    _check_model(state.model)


def _check_model(model: Model) -> None:
    c, K = model.components, int(model.components.size[0])
    require(1 <= K <= len(c.mass) and model.known <= K, "it counts more components than it has")
    require((c.mass[:K] > 0).all() and (c.counts[:K] > 0).all(), "a component stands for no row")
    require(c.total[0] > 0.0 and model.shape.tau > 0.0 and model.fine > 0.0, "a weight is not positive")
    require((c.factors[:K].diagonal(axis1=1, axis2=2) > 0).all(), "a component has no precision")
    require((model.shape.matrix.diagonal() > 0).all(), "the common shape has no variance")
