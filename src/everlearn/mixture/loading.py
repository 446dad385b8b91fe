"""The check of a state that came from a file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from everlearn.mixture.keep import carry, schedule
from everlearn.mixture.learn import lag_of
from everlearn.mixture.state import Model, Settings, State
from everlearn.monitoring.event_log import KINDS, MonitorState
from everlearn.persistence.schema import MOST_WEIGHT, check_state, expect_fields, require

# A priority is a weight over a uniform number, which has 53 bits.
_MOST_LOG_PRIORITY = math.log(MOST_WEIGHT) + 53 * math.log(2.0)


def check(state: Any, D: int, reservoir: int, settings: Settings) -> None:
    """Refuse a state whose arrays do not have the shapes, or whose counts the range, that learning needs."""
    sizes = check_state(state, State, {"D": D, "M": reservoir})
    _check_schedule(state, settings, reservoir)
    if state.model is not None:
        _check_model(state.model)
        room = carry.room_for(state.model.known, settings)
        require(sizes["C"] == room, "it has room for another number of components than its parameters say")
        require(sizes["Q"] == settings.parts, "its components have another number of parts")
    require(sizes["P"] == _pending_room(state, settings), "it has room for another number of pending rows")


def check_monitor(state: Any) -> None:
    """Refuse a monitor whose arrays do not fit."""
    expect_fields(
        state, MonitorState, {},
        totals="2", memory="61", rows="int64 E", kinds="int64 E", values="any E", n_events=int,
    )  # fmt: skip
    known = (state.kinds >= 0) & (state.kinds < len(KINDS))
    require(len(state.rows) > 0 and known.all(), "it has events of an unknown kind")


def _pending_room(state: State, settings: Settings) -> int:
    """Rows that may be pending: those of a search that is due, or of the warm-up."""
    if state.model is None:
        return settings.warmup + lag_of(state, settings)
    return lag_of(state, settings) if state.pending.size else 0


def _check_schedule(state: State, settings: Settings, reservoir: int) -> None:
    sample, pending, n = state.reservoir, state.pending, state.n
    require(0 <= sample.size[0] <= len(sample.rows), "it counts more sampled rows than it has")
    require(pending.size <= len(pending.rows), "it counts more pending rows than it has")
    size, offered, level = sample.size[0], sample.offered[0], sample.level[0]
    require(level < np.inf and offered >= size, "the level of its sample is not a number")
    # A level that turned nothing away would turn all away that comes, and leave nothing to search in.
    turned_away = offered > size > 0
    require(turned_away or level == -np.inf or not len(sample.rows), "the level of its sample is none of its rows'")
    _check_weights(state, settings)
    due = schedule.next_search(state.searched, settings.warmup, reservoir, settings.fading.interval)
    if state.model is None:
        require(n == 0 and state.searched == 0 and sample.size[0] == 0, "it has learned rows but has no components")
        require(
            pending.size <= settings.warmup + lag_of(state, settings),
            "its warm-up is too long",
        )
        return
    require(state.frame is not None, "it has components but no frame")
    require(n <= due and state.searched <= n, "its next search should have been made")
    # They wait for a search that is due at row n, by this schedule or by that of an earlier version.
    require(pending.size <= lag_of(state, settings), "it has more pending rows than a search waits for")


def _check_weights(state: State, settings: Settings) -> None:
    """Refuse weights that no row can have: a search would find that nothing counts, or one row alone."""
    sample, pending = state.reservoir, state.pending
    weights = pending.weights[: pending.size]
    require(((weights > 0.0) & (weights <= MOST_WEIGHT)).all(), "a pending row has a weight that cannot be")
    # Under forgetting, each row weighs more than the one before it, by a constant factor.
    most = _MOST_LOG_PRIORITY + settings.fading.rate * float(sample.offered[0])
    logs = sample.log_weights[: sample.size[0]]
    require((np.abs(logs) <= most).all() and sample.level[0] <= most, "a sampled row has a weight that cannot be")
    require(state.model is None or sample.size[0] > 0 or not len(sample.rows), "it has components but no sampled rows")


def _check_model(model: Model) -> None:
    c, K = model.components, int(model.components.size[0])
    require(1 <= K <= len(c.mass) and model.known <= K, "it counts more components than it has")
    require((c.mass[:K] > 0).all() and (c.counts[:K] > 0).all(), "a component stands for no row")
    require(c.total[0] > 0.0 and model.shape.tau > 0.0 and model.fine > 0.0, "a weight is not positive")
    require((c.factors[:K].diagonal(axis1=1, axis2=2) > 0).all(), "a component has no precision")
    # Zero for a column that has not varied: the ridge of the frame stands in for its variance.
    require((model.shape.matrix.diagonal() >= 0).all(), "the common shape has a negative variance")
