"""Learning rows: the schedule of searches, the rows pending for one, and the working copy that learns meanwhile."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from everlearn.base.interrupts import HeldInterrupts, checkpoint
from everlearn.linalg import parallel
from everlearn.linalg.backend_torch import TorchDevice
from everlearn.mixture import blocks
from everlearn.mixture.blocks import Work, learn_rows
from everlearn.mixture.keep import schedule
from everlearn.mixture.keep.carry import copied
from everlearn.mixture.keep.reconsider import reconsider
from everlearn.mixture.keep.world import frame_of_rows
from everlearn.mixture.kernels import rows as kernels
from everlearn.mixture.kernels.rows import Task
from everlearn.mixture.state import (
    Array,
    Frame,
    Model,
    Pending,
    Reservoir,
    Settings,
    State,
)
from everlearn.monitoring.event_log import UNWATCHED, Watch

# Seconds of a search's work that a row may wait for, by the share of the lag that has passed.
PACE = ((0.5, 3e-4), (0.75, 1.2e-3), (0.875, 4e-3), (1.0, 1.2e-2))
# Products of fewer columns than this gain little from a second BLAS thread, which on a busy machine they wait for: with
# two threads the worst row of 65 columns took 290 ms and with one 110 (benchmarks/latency.py, two cores); a search of
# two rows of 512 columns beside two other programs 27 s of CPU, nearly all of it waiting, and 1.5 s with one.
THREADED_COLUMNS = 1024


class Prepared(NamedTuple):
    """A task that has been unpacked for the kernel, and what it was made of: while that stays, it is used again."""

    model: Model
    reservoir: Reservoir | None
    watch: Watch
    until: int  # rows up to this one go to the model without a thought of searches
    work: Work


@dataclass
class Progress:
    """What can be worked out again from a state: the working copy of its model, and the search that is due."""

    working: Model | None = None
    search: Generator[None, None, Model] | None = None
    found: Model | None = None
    prepared: Prepared | None = None
    watch: Watch = UNWATCHED  # log of the rows that are learned next
    device: TorchDevice | None = None  # where they are learned if it pays

    def __reduce__(self) -> tuple[Any, ...]:
        # A search under way is a generator, which Python cannot copy: in a copy or pickle of the model it begins again
        # from the state, and comes to the same result.
        return Progress, ()


def init(D: int, reservoir: int, settings: Settings, frame: Frame | None = None) -> State:
    """A state that has seen nothing; `frame` is given if the scale of the columns is known."""
    state = State(0, frame, None, 0, empty_reservoir(reservoir, D), no_rows(0, D))
    return state._replace(pending=no_rows(settings.warmup + lag_of(state, settings), D))


def empty_reservoir(room: int, D: int) -> Reservoir:
    """A reservoir to which nothing was offered; without room it takes nothing."""
    rows, numbers = np.zeros((room, D), np.float32), np.zeros(room)
    none = np.zeros(1, np.int64)
    return Reservoir(rows, numbers, numbers.copy(), none, np.array([-np.inf]), none.copy())


def no_rows(room: int, D: int) -> Pending:
    """No pending rows yet, with room for some."""
    return Pending(np.zeros((room, D)), np.zeros(room), 0)


def lag_of(state: State, settings: Settings) -> int:
    """Rows between the search that is due at the state's row and its adoption.

    Where no rows are kept, none may wait for a search either: it is worked out at once.
    """
    if not len(state.reservoir.rows):
        return 0
    return schedule.lag(settings.warmup if state.model is None else state.n, settings.fading.interval)


def next_search(state: State, settings: Settings) -> int:
    """Row at which the next search is due; where rows are pending, one is due at the state's own.

    That need not be what the schedule says: the state may come from a file of a version with another one.

    Where no rows are kept it cannot find what came while there was no room for new components: then one is due when
    the room is used up.
    """
    if state.model is not None and state.pending.size:
        return state.n
    reservoir = len(state.reservoir.rows)
    due = schedule.next_search(state.searched, settings.warmup, reservoir, settings.fading.interval)
    if settings.parts and state.model is not None and _is_full(state.model):
        due = min(due, max(state.n, state.searched + schedule.apart(state.searched)))
    return due


def _is_full(model: Model) -> bool:
    """Whether there is no room left of what a search gave."""
    room = len(model.components.mass)
    return int(model.components.size[0]) == room > model.known


def adopts_within(state: State, n_rows: int, settings: Settings, progress: Progress) -> bool:
    """Whether a search is worked out to its end within so many rows: the only part of learning that takes long."""
    ready = progress.prepared
    if (
        ready is not None
        and ready.model is state.model
        and state.n + n_rows <= ready.until
        and not (settings.parts and _is_full(ready.model))
    ):
        return False
    due = next_search(state, settings)
    at_due = state if state.n == due else state._replace(n=due)
    return rows_seen(state) + n_rows >= due + lag_of(at_due, settings)


def rows_seen(state: State) -> int:
    """Rows learned so far, pending ones included."""
    return state.n + state.pending.size


def learn(state: State, X: Array, weights: Array, settings: Settings, progress: Progress) -> tuple[State, Array]:
    """Learn rows in their order; arrays of the state and `progress` change in place.

    Returns what each row told before it was learned, too, (2, n): its log-density in the units of the data, NaN during
    the warm-up, and its squared distance to the nearest component.

    A search that is due at row n works on the state of that row and is adopted `schedule.lag(n)` rows later, after
    learning the rows since. Until then a working copy learns them. So the model depends on the order of the rows only,
    not on how they are packed into batches.
    """
    n, at = len(X), 0
    told = np.empty((2, n))
    ready = progress.prepared
    # The way of most rows of a long stream: no search is due.
    if (
        ready is not None
        and state.n + n <= ready.until
        and ready.model is state.model
        and ready.reservoir is state.reservoir
        and ready.watch is progress.watch
        and not (settings.parts and _is_full(state.model))
    ):
        # Not by `learn_rows`: for a single row every call counts.
        if n >= blocks.ROWS and blocks.pay(X, ready.work):
            at = blocks.learn_in_blocks(X, weights, ready.work, told, progress.device)
        elif n == 1 and X.flags.c_contiguous:
            at = ready.work.learn_contiguous(X, weights, ready.work.handle, told)
        else:
            at = kernels.learn_rows(X, weights, ready.work.handle, told)
        # Not by _replace nor by State(), which take a twentieth of the time that a single row takes.
        state = tuple.__new__(State, (state.n + at, *state[1:]))
    while at < n:
        due = next_search(state, settings)
        # From the row at which a search is due until its adoption, rows are kept beside the state that it works on.
        waits = state.model is None or state.n == due
        lag = lag_of(state, settings) if waits else 0
        end = due + lag
        stop = min(n, at + end - rows_seen(state))
        if stop - at == n:  # all rows, often a single one: to cut them out would take longer than to learn them
            rows, own, some = X, weights, told
        else:
            rows, own, some = X[at:stop], weights[at:stop], np.empty((2, stop - at))
        if waits:
            state = _learn_pending(state, rows, own, some, lag, settings, progress)
            seen = rows_seen(state)
            if seen == end:
                state = _adopt(state, settings, progress)
            elif seen >= due and progress.found is None:
                _advance(state, settings, progress, (seen - due) / lag, stop - at)
        else:
            assert state.model is not None
            progress.working = state.model
            rule = settings._replace(stops=settings.parts > 0)
            work = work_of(state.model, state.frame, rule, state.reservoir, progress.watch)
            progress.prepared = Prepared(state.model, state.reservoir, progress.watch, due, work)
            stop = at + learn_rows(rows, own, work, some, progress.device)
            state = state._replace(n=state.n + stop - at)
        if some is not told:
            told[:, at:stop] = some[:, : stop - at]
        at = stop
    return state, told


def working_model(state: State, settings: Settings, progress: Progress) -> Model | None:
    """The model that has learned every row: the state's own, or its copy with the pending rows."""
    if progress.working is None and state.model is not None:
        progress.working = state.model
        rows, weights, n = state.pending
        if n:
            progress.working = with_own_components(state.model)
            update(progress.working, state.frame, rows[:n], weights[:n], settings)
    return progress.working


def with_own_components(model: Model) -> Model:
    """The same model, with components in arrays of their own."""
    return model._replace(components=copied(model.components))


def snapshot(state: State) -> State:
    """A copy of all that learning changes in place; frame, shape and world are exchanged, and are shared."""
    model = None if state.model is None else with_own_components(state.model)
    rows, weights, n = state.pending
    return State(
        state.n, state.frame, model, state.searched, _own(state.reservoir), Pending(rows.copy(), weights.copy(), n)
    )


def update(
    model: Model,
    frame: Frame | None,
    X: Array,
    weights: Array,
    settings: Settings,
    reservoir: Reservoir | None = None,
) -> None:
    """Learn rows by the components of a model, in place, and offer them to the reservoir, if there is one."""
    learn_rows(X, weights, work_of(model, frame, settings, reservoir), np.empty((2, len(X))))


def work_of(
    model: Model,
    frame: Frame | None,
    settings: Settings,
    reservoir: Reservoir | None = None,
    watch: Watch = UNWATCHED,
) -> Work:
    """The work of learning rows by a model, unpacked once for many calls."""
    assert frame is not None
    reservoir = empty_reservoir(0, len(frame.centre)) if reservoir is None else reservoir
    components = model.components
    along = components.along if components.along.shape[1] else None
    C, D = components.means.shape
    room = kernels.block_for(C, D, False)
    task = Task(components, model.shape, model.world.background, frame, reservoir, settings, along, watch, room)
    handle = kernels.unpack(task)
    return Work(handle, kernels.learn_contiguous(handle), model, frame, settings)


def with_pending_sampled(state: State, settings: Settings) -> State:
    """The state with its pending rows offered to a copy of its reservoir."""
    rows, weights, n = state.pending
    if n == 0:
        return state
    return _sampled(state, rows[:n], weights[:n], settings)


def _own(sample: Reservoir) -> Reservoir:
    """The same sample in arrays of its own."""
    rows, log_weights, keys, size, level, offered = sample
    return Reservoir(rows.copy(), log_weights.copy(), keys.copy(), size.copy(), level.copy(), offered.copy())


def _sampled(state: State, X: Array, weights: Array, settings: Settings) -> State:
    """Offer rows to a copy of the reservoir; they count as the state's."""
    sample = _own(state.reservoir)
    kernels.sample_rows(X, weights, state.frame, sample, settings)
    return state._replace(n=state.n + len(X), reservoir=sample)


def _learn_pending(
    state: State, X: Array, weights: Array, told: Array, lag: int, settings: Settings, progress: Progress
) -> State:
    """Keep rows until the search is adopted, `lag` at most; the working copy learns them, if there is one."""
    pending = state.pending
    if state.model is not None:
        if pending.size == 0:
            pending = no_rows(lag, X.shape[1])
            progress.working = with_own_components(state.model)
        working = working_model(state, settings, progress)
        assert working is not None
        ready = progress.prepared
        if ready is None or ready.model is not working or ready.watch is not progress.watch:
            work = work_of(working, state.frame, settings, None, progress.watch)
            ready = progress.prepared = Prepared(working, None, progress.watch, 0, work)
        learn_rows(X, weights, ready.work, told, progress.device)
    else:
        told[:] = np.nan
        # Without a density there is nothing to watch; the rows are counted.
        if progress.watch.counts[0] >= 0:
            progress.watch.counts[0] += len(X)
    end = pending.size + len(X)
    pending.rows[pending.size : end] = X
    pending.weights[pending.size : end] = weights
    return State(*state[:-1], Pending(pending.rows, pending.weights, end))


def _input_of_search(state: State, settings: Settings) -> State:
    """The state that the search which is due works on: during warm-up, that of the first rows."""
    return state if state.model is not None else opened(state, settings.warmup, settings)


def opened(state: State, n: int, settings: Settings) -> State:
    """A state of the first n pending rows of the warm-up, in a reservoir of its own, even where none will be kept."""
    rows, weights = state.pending.rows[:n], state.pending.weights[:n]
    if not len(state.reservoir.rows):
        state = state._replace(reservoir=empty_reservoir(len(state.pending.rows), rows.shape[1]))
    return _sampled(state._replace(frame=state.frame or frame_of_rows(rows)), rows, weights, settings)


def search_threads(n_columns: int) -> AbstractContextManager[None]:
    """A section for slices of a search, in which BLAS has one thread where more do not pay."""
    return parallel.one_blas_thread() if n_columns < THREADED_COLUMNS else nullcontext()


def _advance(state: State, settings: Settings, progress: Progress, passed: float, rows: int) -> None:
    """Some slices of the search that is due: more of them once half of the lag has passed."""
    if progress.search is None:
        progress.search = reconsider(_input_of_search(state, settings), settings)
    seconds = rows * next(pace for share, pace in PACE if passed <= share)
    # Of this thread, so that a busy machine does not leave the work to the row that adopts.
    now = time.thread_time()
    end, slice_seconds = now + seconds, 0.0
    try:
        with search_threads(state.pending.rows.shape[1]):
            # The next slice takes about as long as the last one.
            while now + 0.5 * slice_seconds < end:
                next(progress.search)
                now, slice_seconds = time.thread_time(), time.thread_time() - now
    except StopIteration as stop:
        progress.found = stop.value


def _adopt(state: State, settings: Settings, progress: Progress) -> State:
    """Finish the search that is due, let its result learn the pending rows, and go on with it."""
    base = _input_of_search(state, settings)
    found = progress.found
    if found is None:
        found = finish(progress.search or reconsider(base, settings), state.pending.rows.shape[1])
    rows, weights, n = state.pending
    # During the warm-up the search has seen the first rows itself; those that came since are left to learn.
    first = base.n - state.n
    update(found, base.frame, rows[first:n], weights[first:n], settings, base.reservoir)
    progress.working, progress.search, progress.found = found, None, None
    # Where no rows are to be kept, those of the warm-up go now.
    kept = base.reservoir if len(state.reservoir.rows) else state.reservoir
    empty = no_rows(0, rows.shape[1])
    return base._replace(n=base.n + n - first, model=found, searched=base.n, reservoir=kept, pending=empty)


def finish(search: Generator[None, None, Model], n_columns: int) -> Model:
    """Work a search out to its end; Ctrl-C is heard between two slices of it."""
    with HeldInterrupts(undoable=True), search_threads(n_columns):
        while True:
            try:
                next(search)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            checkpoint()
