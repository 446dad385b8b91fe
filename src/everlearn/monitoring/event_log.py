"""The event log of a stream: prequential log-density, novelties and changes, in bounded memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc, chdtri

from everlearn.monitoring.kernels import event_log as kernels
from everlearn.monitoring.kernels.event_log import MonitorState as MonitorState
from everlearn.monitoring.kernels.event_log import Rules
from everlearn.monitoring.kernels.event_log import Watch as Watch
from everlearn.monitoring.kernels.page_hinkley import ChangeState, TestSettings
from everlearn.monitoring.page_hinkley import PageHinkley, current_memory, settings
from everlearn.typing import Array

MAX_EVENTS = 1000
KINDS = ("novelty", "change")


class Event(NamedTuple):
    """Something that happened in a stream.

    `value` is the p-value of a novelty: the share of the nearest component's own rows that lie farther from it. For a
    change it is the log-density of the row at which it was noticed.
    """

    row: int
    kind: str
    value: float


def init(max_events: int = MAX_EVENTS) -> MonitorState:
    """A log of nothing."""
    integers = np.zeros(max_events, dtype=np.int64)
    memory = np.zeros(len(ChangeState._fields))
    return MonitorState(np.zeros(2), memory, integers, integers.copy(), np.zeros(max_events), 0)


# For kernels that could watch the rows which they learn, where nobody wants to know.
UNWATCHED = Watch(Rules(np.zeros(1), settings(PageHinkley())), init(1), np.array([-1, 0]))


def alarm_thresholds(level: float, n_features: int) -> Array:
    """Squared distance that a row with 0 to n_features observed columns exceeds with probability `level`."""
    # The squared Mahalanobis distance of a component's own rows is chi-square with as many degrees of freedom as
    # columns are observed. Entry 0 is never used: a row without a value is no event.
    thresholds: Array = chdtri(np.maximum(np.arange(n_features + 1.0), 1.0), level)
    return thresholds


def detector_settings(detector: PageHinkley) -> TestSettings:
    """The parameters of the change detector, as the kernel takes them."""
    return settings(detector)


def watch(
    state: MonitorState,
    X: Array,
    log_density: Array,
    distance: Array,
    *,
    first_row: int,
    alarm: Array,
    detector: TestSettings,
) -> MonitorState:
    """Take in what rows were to the model before it learned them; only the log itself is changed, in place."""
    n = kernels.watch_rows(X, log_density, distance, first_row, Rules(alarm, detector), state, state.n_events)
    return with_events(state, X, first_row, n)


def watching(state: MonitorState, alarm: Array, detector: TestSettings) -> Watch:
    """The log for kernels that watch rows while they learn them; its `counts` go with the state, event by event."""
    return Watch(Rules(alarm, detector), state, np.array([-1, state.n_events]))


def watch_rows(watch: Watch, X: Array, log_density: Array, distance: Array) -> None:
    """Take in rows that were learned by a kernel that does not watch them."""
    rules, log, counts = watch
    if counts[0] < 0:
        return
    n = kernels.watch_rows(X, log_density, distance, int(counts[0]), rules, log, int(counts[1]))
    counts[0], counts[1] = counts[0] + len(X), n


def with_events(state: MonitorState, X: Array, first_row: int, n: int) -> MonitorState:
    """The log after a batch that began with row `first_row`, by the end of which there had been `n` events."""
    if n == state.n_events:  # nearly every row: a new tuple would take a tenth of the time that learning the row takes
        return state
    # The kernel records distances: the chi-square tail is needed for the few rows that are novelties only.
    # At most one turn of the ring: what was overwritten within this batch is gone.
    for number in range(max(state.n_events, n - len(state.rows)), n):
        slot = number % len(state.rows)
        if state.kinds[slot] == kernels.NOVELTY:
            observed = np.count_nonzero(~np.isnan(X[state.rows[slot] - first_row]))
            state.values[slot] = chdtrc(observed, state.values[slot])
    return state._replace(n_events=n)


def upgraded(state: Any) -> Any:
    """A log from a file, whose change test starts again if the file is of an earlier version; others as they are."""
    return state._replace(memory=current_memory(state.memory)) if type(state) is MonitorState else state


def copied(state: MonitorState) -> MonitorState:
    """An independent copy."""
    return MonitorState._make([*(array.copy() for array in state[:5]), state.n_events])


def events(state: MonitorState, since: int = 0) -> list[Event]:
    """The latest events in their order; with `since`, those after that many."""
    size = len(state.rows)
    slots = np.arange(max(since, state.n_events - size), state.n_events) % size
    return [Event(int(state.rows[i]), KINDS[int(state.kinds[i])], float(state.values[i])) for i in slots]
