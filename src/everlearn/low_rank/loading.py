"""The check of a state that came from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.low_rank.learn import lag, next_search
from everlearn.low_rank.state import Settings, State
from everlearn.persistence.schema import MOST_WEIGHT, check_state, require


def check(state: Any, D: int, settings: Settings) -> None:
    """Refuse a state whose arrays do not have the shapes, or whose counts the range, that learning needs."""
    sizes = check_state(state, State, {"D": D, "Q": settings.rank, "W": settings.quota, "M": settings.reservoir})
    pending = state.pending
    if state.model is None:
        require(state.n == 0 and state.searched == 0, "it has learned rows but has no components")
        require(sizes["P"] == settings.warmup and pending.size < settings.warmup, "its warm-up is too long")
        weights = pending.weights[: pending.size]
        require(((weights > 0.0) & (weights <= MOST_WEIGHT)).all(), "a pending row has a weight that cannot be")
        return
    require(state.frame is not None and state.prior_noise > 0.0, "it has components but no scale")
    due = next_search(state, settings)
    require(state.searched <= state.n <= due, "its next search should have been made")
    # Rows are pending only while a search is under way, fewer than it is adopted after.
    room = lag(due, settings) if pending.size else sizes["P"]
    require(pending.size == 0 or state.n == due, "it has pending rows but no search")
    require(pending.size <= max(room - 1, 0) and sizes["P"] == room, "its search should have been adopted")
    weights = pending.weights[: pending.size]
    require(((weights > 0.0) & (weights <= MOST_WEIGHT)).all(), "a pending row has a weight that cannot be")
    model = state.model
    c, waiting, room, sample = model.components, model.waiting, model.room, model.reservoir
    require(1 <= sizes["K"] and sizes["H"] == settings.room, "it has another room for strange rows")
    require((c.used <= min(settings.rank, max(D - 1, 0))).all(), "a component uses more directions than it has")
    require((c.n > 0.0).all() and c.mass.sum() > 0.0, "a component stands for no row")
    require((waiting.size < settings.quota).all(), "more rows wait than may")
    require(room.size[0] <= max(settings.room - 1, 0), "more rows are in the room than may")
    require(sample.size[0] <= len(sample.keys) and sample.level[0] < np.inf, "it counts more sampled rows than it has")
    require(sample.offered[0] >= sample.size[0], "it was offered fewer rows than it has sampled")
    norms = np.einsum("kqd,kqd->kq", c.directions, c.directions)
    used = np.arange(settings.rank) < c.used[:, None]
    require((np.abs(norms[used] - 1.0) < 1e-3).all(), "a direction is no unit vector")
    require((c.scatter[used] > 0.0).all(), "there is no scatter along a direction")
