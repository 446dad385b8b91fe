"""Learning rows: the schedule of searches, the rows pending for one, and the working copy that learns meanwhile."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from everlearn.mixture.keep import schedule
from everlearn.mixture.keep.carry import copied
from everlearn.mixture.keep.reconsider import Found, reconsider
from everlearn.mixture.keep.world import frame_of_rows
from everlearn.mixture.kernels import rows as kernels
from everlearn.mixture.state import (
    Array,
    Components,
    Frame,
    Info,
    Pending,
    Reservoir,
    Settings,
    Shape,
    State,
    World,
)

# Seconds of a search's work that a row may wait for, by the share of the lag that has passed.
PACE = ((0.5, 2e-4), (0.75, 8e-4), (1.0, 5e-3))


class Prior(NamedTuple):
    """What the row kernel needs besides the components."""

    shape: Shape
    world: World


@dataclass
class Progress:
    """What can be worked out again from a state: the working copy of its components, and the search that is due."""

    working: Components | None = None
    search: Generator[None, None, Found] | None = None
    found: Found | None = None


def init(D: int, reservoir: int, settings: Settings, frame: Frame | None = None) -> State:
    """A state that has seen nothing; `frame` is given if the scale of the columns is known."""
    sample = Reservoir(np.zeros((reservoir, D), np.float32), np.zeros(reservoir), np.zeros(reservoir), 0, -np.inf)
    room = settings.warmup + schedule.lag(settings.warmup)
    return State(0, frame, None, None, None, 1.0, 0, 0, sample, _no_rows(room, D))


def _no_rows(room: int, D: int) -> Pending:
    return Pending(np.zeros((room, D)), np.zeros(room), 0)


def rows_seen(state: State) -> int:
    """Rows learned so far, pending ones included."""
    return state.n + state.pending.size


def learn(
    state: State, X: Array, weights: Array, settings: Settings, progress: Progress
) -> tuple[State, Info]:
    """Learn rows in their order; arrays of the state and `progress` change in place.

    A search that is due at row n works on the state of that row and is adopted `schedule.lag(n)` rows later, after
    learning the rows since. Until then a working copy learns them. So the model depends on the order of the rows only,
    not on how they are packed into batches.
    """
    info = Info(np.full(len(X), np.nan), np.full(len(X), np.nan))
    at = 0
    while at < len(X):
        due = schedule.next_search(state.searched, settings.warmup, len(state.reservoir.rows))
        waits = state.components is None or state.n == due
        end = due + schedule.lag(due) if waits else due
        stop = min(len(X), at + end - rows_seen(state))
        part = slice(at, stop)
        some = Info(*(values[part] for values in info))
        if waits:
            state = _learn_pending(state, X[part], weights[part], some, settings, progress)
            if rows_seen(state) == end:
                state = _adopt(state, settings, progress)
            elif rows_seen(state) >= due:
                _advance(state, settings, progress, due, stop - at)
        else:
            state = _learn_rows(state, X[part], weights[part], some, settings)
            progress.working = state.components
        at = stop
    return state, info


def working_components(state: State, settings: Settings, progress: Progress) -> Components | None:
    """Components that have learned every row: the state's own, or its copy with the pending rows."""
    if progress.working is None and state.components is not None:
        progress.working = state.components
        if state.pending.size:
            progress.working = copied(state.components)
            rows, weights, n = state.pending
            progress.working = _update(progress.working, state, rows[:n], weights[:n], _ignored(n), settings)
    return progress.working


def _update(
    components: Components, state: State, X: Array, weights: Array, info: Info, settings: Settings
) -> Components:
    """Learn rows by `components`, in place, with the frame, shape and world of the state."""
    prior = Prior(state.shape, state.world)
    size, total = kernels.learn_rows(X, weights, components, prior, state.frame, settings, info)
    return components._replace(size=size, total=total)


def learn_by(state: State, X: Array, weights: Array, settings: Settings) -> tuple[State, Info]:
    """Learn rows by the components of a state and nothing else: neither reservoir nor schedule; in place."""
    info = _ignored(len(X))
    return state._replace(components=_update(state.components, state, X, weights, info, settings)), info


def with_pending_sampled(state: State, settings: Settings) -> State:
    """The state with its pending rows offered to a copy of its reservoir."""
    rows, weights, n = state.pending
    if n == 0:
        return state
    sample = Reservoir(*(a.copy() for a in state.reservoir[:3]), *state.reservoir[3:])
    return _sampled(state._replace(reservoir=sample), rows[:n], weights[:n], settings)


def _ignored(n: int) -> Info:
    return Info(np.empty(n), np.empty(n))


def _sampled(state: State, X: Array, weights: Array, settings: Settings) -> State:
    """Offer rows to the reservoir; they count as the state's."""
    sample = state.reservoir
    size, level = kernels.sample_rows(X, weights, state.frame, sample, state.n, settings.seed)
    return state._replace(n=state.n + len(X), reservoir=sample._replace(size=size, level=level))


def _learn_rows(state: State, X: Array, weights: Array, info: Info, settings: Settings) -> State:
    components = _update(state.components, state, X, weights, info, settings)
    return _sampled(state, X, weights, settings)._replace(components=components)


def _learn_pending(
    state: State, X: Array, weights: Array, info: Info, settings: Settings, progress: Progress
) -> State:
    """Keep rows until the search is adopted; the working copy learns them, if there is one."""
    pending = state.pending
    if state.components is not None:
        if pending.size == 0:
            pending = _no_rows(schedule.lag(state.n), X.shape[1])
            progress.working = copied(state.components)
        working = working_components(state, settings, progress)
        progress.working = _update(working, state, X, weights, info, settings)
    end = pending.size + len(X)
    pending.rows[pending.size : end] = X
    pending.weights[pending.size : end] = weights
    return state._replace(pending=pending._replace(size=end))


def _input_of_search(state: State, settings: Settings) -> State:
    """The state that the search which is due works on: during warm-up, that of the first rows."""
    return state if state.components is not None else opened(state, settings.warmup, settings)


def opened(state: State, n: int, settings: Settings) -> State:
    """A state of the first n pending rows of the warm-up, in a reservoir of its own."""
    rows, weights = state.pending.rows[:n], state.pending.weights[:n]
    sample = Reservoir(*(a.copy() for a in state.reservoir[:3]), 0, -np.inf)
    new = state._replace(frame=state.frame or frame_of_rows(rows), reservoir=sample)
    return _sampled(new, rows, weights, settings)


def _advance(state: State, settings: Settings, progress: Progress, due: int, rows: int) -> None:
    """Some slices of the search that is due: more of them, the nearer its adoption."""
    if progress.found is not None:
        return
    if progress.search is None:
        progress.search = reconsider(_input_of_search(state, settings), settings, asked=False)
    passed = (rows_seen(state) - due) / schedule.lag(due)
    seconds = rows * next(pace for share, pace in PACE if passed <= share)
    end = time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            next(progress.search)
    except StopIteration as stop:
        progress.found = stop.value


def _adopt(state: State, settings: Settings, progress: Progress) -> State:
    """Finish the search that is due, let its result learn the pending rows, and go on with it."""
    base = _input_of_search(state, settings)
    found = progress.found
    if found is None:
        found = finish(progress.search or reconsider(base, settings, asked=False))
    rows, weights, n = state.pending
    late = rows[base.n - state.n : n], weights[base.n - state.n : n]
    new = base._replace(
        components=found.components, shape=found.shape, world=found.world, fine=found.fine, searched=base.n,
        known=found.known, pending=_no_rows(0, rows.shape[1]),
    )  # fmt: skip
    new = _learn_rows(new, *late, _ignored(len(late[0])), settings)
    progress.working, progress.search, progress.found = new.components, None, None
    return new


def finish(search: Generator[None, None, Found]) -> Found:
    """Work a search out to its end."""
    while True:
        try:
            next(search)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
