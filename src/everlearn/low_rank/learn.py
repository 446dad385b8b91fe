"""Learning rows: the warm-up, blocks of rows between folds, and searches that run in slices between rows.

A search that is due at row n works on the state of that row, which stays as it is, and is adopted `lag` rows later:
its result learns the rows that came since. Meanwhile a working copy learns them. So the model depends on the order of
the rows only, and no row waits for a whole search.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.base.interrupts import checkpoint
from everlearn.base.scaling import nearest_power_of_two
from everlearn.base.snapshot import copied
from everlearn.linalg.backend_torch import TorchDevice
from everlearn.linalg.chunked import has_gaps
from everlearn.linalg.parallel import one_blas_thread
from everlearn.low_rank.device import Resident
from everlearn.low_rank.keep import room
from everlearn.low_rank.keep.reconsider import first_model, nothing_to_find, reconsider, reconsideration
from everlearn.low_rank.keep.slices import sliced
from everlearn.low_rank.kernels import rows as kernels
from everlearn.low_rank.kernels.fold import fold
from everlearn.low_rank.kernels.rows import Chunk
from everlearn.low_rank.kernels.shape import refresh
from everlearn.low_rank.state import (
    Frame,
    Info,
    Model,
    Pending,
    Readout,
    Room,
    Settings,
    State,
    empty_reservoir,
    readout_of,
    rule_of,
)
from everlearn.low_rank.warmup import fill_first_rows
from everlearn.typing import Array

# Rows from which on a device pays: components travel to it and back, as much as some tens of rows cost.
DEVICE_ROWS = 256
# A cell that lies more units than this from its centre counts as lying so far: squares of it stay finite.
FARTHEST = 1e15
# Columns are put into units of their own where the variance of all is that of so few columns, as a share of them.
FEW_COLUMNS = 0.02
# Rows between a search and its adoption, at most, as a share of those before it, of the reservoir, whose memory they
# take, and of the rows between two searches.
LAG = 0.25
# Seconds of a search's work that a row of up to 512 columns may wait for; more columns, more work.
PACE, PACE_COLUMNS = 8e-3, 512
# Rows that the result of a search learns in one slice.
CAUGHT_UP = 16


@dataclass
class Progress:
    """What can be worked out again from a state: what its sketches say, and the search that is under way."""

    readout: Readout | None = None  # of the state, or of the working copy while there is one
    working: State | None = None  # the state with the rows that came since the search was due
    search: Generator[None, None, State] | None = None
    found: State | None = None  # what the search came to, with some of those rows learned
    caught_up: Readout | None = None  # what the sketches of `found` say

    def __reduce__(self) -> tuple[Any, ...]:
        # A search under way is a generator, which Python cannot copy: in a copy or pickle of the model it begins again
        # from the state, and comes to the same result.
        return Progress, ()


def init(D: int, settings: Settings, frame: Frame | None = None) -> State:
    """A state that has seen nothing; `frame` is given if the scale of the columns is known."""
    pending = Pending(np.zeros((settings.warmup, D)), np.zeros(settings.warmup), 0)
    return State(0, 0, 0.0, frame, None, pending)


def frame_of_rows(X: Array) -> Frame:
    """Mean of each column and one unit for all, so that the model is the same in rotated coordinates.

    Where a few columns have nearly all of the variance, the units of the columns differ, and each takes its own.
    """
    observed = ~np.isnan(X)
    count = np.maximum(observed.sum(axis=0), 1)
    # In units of the largest value no square overflows or underflows.
    largest = float(np.abs(X[observed]).max(initial=0.0)) or 1.0
    Y = np.where(observed, X / largest, 0.0)
    centre = Y.sum(axis=0) / count
    variance = (np.where(observed, Y - centre, 0.0) ** 2).sum(axis=0) / count
    # What rounding leaves of a constant column far from zero is no variance.
    variance = np.where(variance > (1e-14 * np.abs(centre)) ** 2, variance, 0.0)
    if variance.any():
        # (sum v)^2/sum v^2, the participation ratio: how many columns the variance is effectively spread over.
        share = variance / variance.max()
        few = share.sum() ** 2 / (share**2).sum() < max(FEW_COLUMNS * (variance > 0.0).sum(), 1.5)
    else:
        few = False
    spread = np.sqrt(variance)
    mean = np.sqrt(variance.mean()) or 1.0
    unit = np.where(spread > 0.0, spread, mean) if few else np.full(X.shape[1], mean)
    return frame_of_spread(centre * largest, unit * largest)


def frame_of_spread(centre: Array, spread: Array) -> Frame:
    """Frame for columns of known spread."""
    scale = nearest_power_of_two(spread)
    return Frame(centre, 1.0 / scale, np.log(scale))


def in_frame(X: Array, frame: Frame) -> Array:
    """Rows in the coordinates of the frame, with their gaps."""
    return _in_frame_with_gaps(X, frame)[0]


def _in_frame_with_gaps(X: Array, frame: Frame) -> tuple[Array, NDArray[np.bool_]]:
    """The same, and which rows have gaps."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    out = np.empty_like(X)
    return out, kernels.to_frame(X, frame, FARTHEST, out)


def next_search(state: State, settings: Settings) -> int:
    """Row at which the next search is due: at four times the rows while all are at hand, then at twice the rows."""
    if settings.reservoir == 0:
        return 2**62
    searched = max(state.searched, 1)
    more = 4 * searched if 4 * searched <= settings.reservoir else 2 * searched
    return min(more, searched + settings.interval)


def lag(due: int, settings: Settings) -> int:
    """Rows between the one at which a search is due and the one at which it is adopted."""
    return max(1, int(LAG * min(due, settings.reservoir, settings.interval)))


def rows_seen(state: State) -> int:
    """Rows learned so far, those of the warm-up and of a search that is under way included."""
    return state.n + state.pending.size


def adopts_within(state: State, n_rows: int, settings: Settings) -> bool:
    """Whether a search is worked out to its end within so many rows."""
    if state.model is None:
        return state.pending.size + n_rows >= settings.warmup
    due = next_search(state, settings)
    return rows_seen(state) + n_rows >= due + lag(due, settings)


def learn(
    state: State,
    X: Array,
    weights: Array,
    settings: Settings,
    progress: Progress,
    *,
    search: bool = True,
    device: TorchDevice | None = None,
) -> tuple[State, Info]:
    """Learn rows in their order; arrays of the state and `progress` change in place.

    All decisions are made at rows whose numbers do not depend on the batches. Without `search` the components are not
    reconsidered. On a `device`, many rows without gaps are learned there.
    """
    info = Info(np.full(len(X), np.nan), np.full(len(X), np.nan))
    at, there = 0, None if device is None or len(X) < DEVICE_ROWS or has_gaps(X) else device
    with one_blas_thread():
        while at < len(X):
            if state.model is None:
                at, state = _warm_up(state, X, weights, at, settings)
                continue
            due = next_search(state, settings) if search else 2**62
            if state.n == due and nothing_to_find(state, settings):
                state = state._replace(searched=state.n)
                continue
            waits = state.n == due
            end = due + lag(due, settings) if waits else due
            stop = min(len(X), at + end - rows_seen(state))
            part = slice(at, stop)
            own = Info(info.log_density[part], info.z[part])
            if waits:
                state = _learn_pending(state, X[part], weights[part], settings, progress, own, there)
                if rows_seen(state) == end:
                    state = _adopt(state, settings, progress, device)
                else:
                    _advance(state, settings, progress, stop - at)
            else:
                state = _learn_some(state, X[part], weights[part], settings, progress, own, there)
            at = stop
    return state, info


def _learn_some(
    state: State,
    X: Array,
    weights: Array,
    settings: Settings,
    progress: Progress,
    info: Info,
    device: TorchDevice | None,
) -> State:
    """Learn rows between two searches, on the device if it pays."""
    assert state.model is not None
    # What is left of rows with gaps, whose covariance waits, is the processor's.
    if device is None or len(X) < DEVICE_ROWS or state.model.waiting.variance.any():
        return _learn_rows(state, X, weights, settings, progress, info)
    return _learn_on_device(state, X, weights, settings, progress, info, device)


# -- while a search is under way ------------------------------------------------------------------------


def working_state(state: State, settings: Settings, progress: Progress) -> State:
    """The state with all rows learned: itself, or its copy that has learned the pending rows."""
    rows, weights, n = state.pending
    if state.model is None or n == 0:
        return state
    if progress.working is None:
        progress.working, progress.readout = _without_pending(copied(state)), None
        told = Info(np.empty(n), np.empty(n))
        progress.working = _learn_rows(progress.working, rows[:n], weights[:n], settings, progress, told)
    return progress.working


def _without_pending(state: State) -> State:
    D = state.pending.rows.shape[1]
    return state._replace(pending=Pending(np.zeros((0, D)), np.zeros(0), 0))


def _learn_pending(
    state: State,
    X: Array,
    weights: Array,
    settings: Settings,
    progress: Progress,
    info: Info,
    device: TorchDevice | None,
) -> State:
    """Keep rows until the search is adopted; the working copy learns them."""
    pending = state.pending
    if pending.size == 0:
        room, D = lag(state.n, settings), X.shape[1]
        pending = Pending(np.zeros((room, D)), np.zeros(room), 0)
        # What the sketches say is the same in the copy.
        progress.working, progress.search, progress.found = _without_pending(copied(state)), None, None
    working = working_state(state, settings, progress) if pending.size else progress.working
    assert working is not None
    progress.working = _learn_some(working, X, weights, settings, progress, info, device)
    end = pending.size + len(X)
    pending.rows[pending.size : end] = X
    pending.weights[pending.size : end] = weights
    return state._replace(pending=pending._replace(size=end))


def _advance(state: State, settings: Settings, progress: Progress, rows: int) -> None:
    """Some slices of the search that is due; when it is done, its result learns the rows that came meanwhile."""
    now = time.thread_time()
    D = state.pending.rows.shape[1]
    end, slice_seconds = now + rows * PACE * max(1.0, D / PACE_COLUMNS), 0.0
    if progress.search is None and progress.found is None:
        progress.search = sliced(reconsideration(_without_pending(state), settings))
    # The next slice takes about as long as the last one.
    while now + 0.5 * slice_seconds < end:
        if progress.search is not None:
            try:
                next(progress.search)
            except StopIteration as stop:
                progress.search, progress.found, progress.caught_up = None, stop.value, None
        elif state.n + state.pending.size < progress.found.n + CAUGHT_UP:  # type: ignore[union-attr]
            break  # blocks are whole, so that their rounding does not depend on the time that slices take
        else:
            _catch_up(state, settings, progress, None)
        now, slice_seconds = time.thread_time(), time.thread_time() - now


def _catch_up(state: State, settings: Settings, progress: Progress, device: TorchDevice | None) -> None:
    """Let the result of a search learn the next block of pending rows."""
    assert progress.found is not None
    rows, weights, n = state.pending
    first = progress.found.n - state.n
    last = n if device is not None else min(n, first + CAUGHT_UP)
    quiet, told = settings._replace(reservoir=0), Info(np.empty(last - first), np.empty(last - first))
    own = Progress(progress.caught_up)
    progress.found = _learn_some(progress.found, rows[first:last], weights[first:last], quiet, own, told, device)
    progress.caught_up = own.readout


def _adopt(state: State, settings: Settings, progress: Progress, device: TorchDevice | None) -> State:
    """Finish the search that is due, let its result learn the pending rows, and go on with it."""
    working = working_state(state, settings, progress)
    assert working.model is not None
    if progress.found is None:
        if progress.search is None:
            progress.found = reconsider(_without_pending(state), settings, device)
        else:
            progress.found = finished(progress.search)
        progress.caught_up = None
    there = None if device is None or has_gaps(state.pending.rows) else device
    while progress.found.n < rows_seen(state):
        _catch_up(state, settings, progress, there)
    found, progress.readout = progress.found, progress.caught_up
    assert found.model is not None
    progress.working = progress.search = progress.found = progress.caught_up = None
    # The sample of the working copy was offered the rows as they came.
    return found._replace(model=found.model._replace(reservoir=working.model.reservoir))


def finished(search: Generator[None, None, State]) -> State:
    """Work a search out to its end; Ctrl-C is heard between two slices of it."""
    while True:
        try:
            next(search)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        checkpoint()


# -- rows -----------------------------------------------------------------------------------------------


def _warm_up(state: State, X: Array, weights: Array, at: int, settings: Settings) -> tuple[int, State]:
    """Keep rows of the warm-up; the last of them starts the model."""
    pending = state.pending
    stop = min(len(X), at + settings.warmup - pending.size)
    end = pending.size + stop - at
    pending.rows[pending.size : end] = X[at:stop]
    pending.weights[pending.size : end] = weights[at:stop]
    state = state._replace(pending=pending._replace(size=end))
    return stop, (started(state, settings) if end == settings.warmup else state)


def started(state: State, settings: Settings) -> State:
    """The state that has learned the pending rows; their mean variance is the prior noise from here on."""
    rows, weights, n = state.pending
    rows, weights = rows[:n], weights[:n]
    frame = state.frame or frame_of_rows(rows)
    Z = in_frame(rows, frame)
    # The sample takes the rows with their gaps: searches fill them anew, each with the components of its time.
    reservoir = empty_reservoir(settings.reservoir, Z.shape[1])
    if settings.reservoir:
        kernels.offer_rows(Z, weights, reservoir, -np.log(settings.fading), settings.seed)
    Z = fill_first_rows(Z, weights, settings.rank)
    share = weights / weights.sum()
    mean = share @ Z
    # The sample variance about an estimated mean: n - 1 degrees of freedom.
    noise = float((share @ (Z - mean) ** 2).mean()) * n / max(n - 1, 1)
    noise = noise if noise > 0.0 else 1.0
    model = first_model(Z, weights, reservoir, noise, settings)
    empty = Pending(np.zeros((0, Z.shape[1])), np.zeros(0), 0)
    return State(state.n + n, state.n + n, noise, frame, model, empty)


def _readout(state: State, settings: Settings, progress: Progress) -> Readout:
    assert state.model is not None
    if progress.readout is None:
        progress.readout = readout_of(state.model.components, state.prior_noise, settings.isotropic)
    return progress.readout


def _learn_rows(state: State, X: Array, weights: Array, settings: Settings, progress: Progress, info: Info) -> State:
    """Learn rows between two searches: blocks without gaps by matrix products, the others one by one."""
    assert state.frame is not None
    Z, gaps = _in_frame_with_gaps(X, state.frame)
    start = 0
    for stop in [*(np.flatnonzero(gaps[1:] != gaps[:-1]) + 1).tolist(), len(Z)]:
        part = slice(start, stop)
        own = Chunk(Z[part], weights[part], info.z[part], info.log_density[part])
        state = (_learn_gaps if gaps[start] else _learn_block)(state, own, settings, progress)
        start = stop
    assert state.model is not None
    if settings.reservoir:
        kernels.offer_rows(Z, weights, state.model.reservoir, -np.log(settings.fading), settings.seed)
    return state._replace(n=state.n + len(Z))


def _learn_on_device(
    state: State, X: Array, weights: Array, settings: Settings, progress: Progress, info: Info, device: TorchDevice
) -> State:
    """Learn rows without gaps, in the units of the data, between two searches; see `device.Resident`."""
    rule, sent, at = rule_of(state, settings), device.rows(X), 0
    resident = None
    while at < len(X):
        assert state.model is not None
        assert state.frame is not None
        if resident is None:
            resident = Resident(device, state.model, rule, state.frame, _readout(state, settings, progress))
            progress.readout = None  # which learning on the device outdates
        end = min(len(X), at + resident.length)
        rows = resident.internal(sent.part(at, end), FARTHEST)
        taken, strange = resident.learn(rows, weights[at:end], Info(info.log_density[at:end], info.z[at:end]))
        _to_room(state.model.room, in_frame(X[at + strange], state.frame), weights[at + strange])
        at += taken
        if 0 < len(state.model.room.weights) == state.model.room.size[0]:
            resident.release()
            resident = None
            state = _settle(state, settings, progress)
        checkpoint()
    if resident is not None:
        resident.release()
    assert state.model is not None
    if settings.reservoir:
        kernels.sample_rows(
            X, weights, state.frame, state.model.reservoir, -np.log(settings.fading), settings.seed, FARTHEST
        )
    return state._replace(n=state.n + len(X))


def _to_room(room_: Room, rows: Array, weights: Array) -> None:
    """Put strange rows into the room."""
    size = int(room_.size[0])
    room_.rows[size : size + len(rows)] = rows
    room_.weights[size : size + len(rows)] = weights
    room_.size[0] = size + len(rows)


def _learn_block(state: State, chunk: Chunk, settings: Settings, progress: Progress) -> State:
    """Learn rows without gaps, and make place in the room where it is full."""
    at, rule = 0, rule_of(state, settings)
    while at < len(chunk.rows):
        assert state.model is not None
        at = kernels.learn_block(chunk, at, state.model, _readout(state, settings, progress), rule)
        state = _settle(state, settings, progress)
    return state


def _learn_gaps(state: State, chunk: Chunk, settings: Settings, progress: Progress) -> State:
    """Learn rows with gaps, one after the other."""
    for t in range(len(chunk.rows)):
        rule = rule_of(state, settings)
        kernels.learn_row_with_gaps(chunk, t, state.model, _readout(state, settings, progress), rule)
        assert state.model is not None
        _fold_due(state.model, _readout(state, settings, progress), state.prior_noise, settings)
    return state


def _settle(state: State, settings: Settings, progress: Progress) -> State:
    """Make place in the room if it is full."""
    model = state.model
    assert model is not None
    if not 0 < len(model.room.weights) == model.room.size[0]:
        return state
    readout, rule = _readout(state, settings, progress), rule_of(state, settings)
    model, opened = room.empty_some(model, readout, rule, settings)
    if opened:
        progress.readout = None
    return state._replace(model=model)


def _fold_due(model: Model, readout: Readout, prior_noise: float, settings: Settings) -> None:
    """Fold the rows of components for which enough of them wait."""
    c, waiting = model.components, model.waiting
    for j in np.flatnonzero(waiting.size):
        if waiting.size[j] >= kernels.quota(c.n[j], settings.quota):
            fold(c, waiting, j, settings.fading)
            refresh(c, j, prior_noise, readout)
