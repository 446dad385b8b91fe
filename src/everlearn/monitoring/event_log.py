"""Watching a stream while it is learned: prequential likelihood, novelties and changes, as bounded events."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from everlearn.monitoring.kernels import event_log as kernels
from everlearn.monitoring.page_hinkley import PageHinkley, settings

Array = NDArray[np.float64]

MAX_EVENTS = 1000
KINDS = ("novelty", "change")


class Event(NamedTuple):
    """Something that happened in a stream.

    `value` is the squared distance to the nearest component for a novelty, the log-density of the row for a change.
    """

    row: int
    kind: str
    value: float


class MonitorState(NamedTuple):
    """Totals of the log-density before learning, the change detector's memory, and a ring of events."""

    totals: Annotated[Array, "2"]
    memory: Annotated[Array, "4"]
    rows: Annotated[NDArray[np.int64], "int64 E"]
    kinds: Annotated[NDArray[np.int64], "int64 E"]
    values: Annotated[Array, "any E"]
    n_events: int


def init(max_events: int = MAX_EVENTS) -> MonitorState:
    """A monitor that has seen nothing."""
    integers = np.zeros(max_events, dtype=np.int64)
    return MonitorState(np.zeros(2), np.zeros(4), integers, integers.copy(), np.zeros(max_events), 0)


def alarm_thresholds(level: float, n_features: int) -> Array:
    """Squared distance that a row with 0 to n_features observed columns exceeds with probability `level`."""
    thresholds: Array = chdtri(np.maximum(np.arange(n_features + 1.0), 1.0), level)
    return thresholds


def detector_settings(detector: PageHinkley) -> Array:
    """The numbers of the change detector, as the kernel takes them."""
    return np.array(settings(detector))


def watch(
    state: MonitorState,
    X: Array,
    log_density: Array,
    distance: Array,
    *,
    first_row: int,
    log_scale: Array,
    alarm: Array,
    detector: Array,
    gaps: bool = True,
) -> MonitorState:
    """Take in what `learn` found on the rows of X; `log_density` becomes that of the unscaled columns, in place.

    `gaps` is whether X may have some.
    """
    n = kernels.watch_rows(
        X, gaps, log_density, distance, log_scale, alarm, first_row, state.totals, state.memory, detector,
        state.rows, state.kinds, state.values, state.n_events,
    )  # fmt: skip
    return MonitorState(*state[:5], n)


def copied(state: MonitorState) -> MonitorState:
    """An independent copy."""
    return MonitorState(*(array.copy() for array in state[:5]), state.n_events)


def events(state: MonitorState, since: int = 0) -> list[Event]:
    """The latest events in their order; with `since`, those after that many."""
    size = len(state.rows)
    slots = np.arange(max(since, state.n_events - size), state.n_events) % size
    return [Event(int(state.rows[i]), KINDS[int(state.kinds[i])], float(state.values[i])) for i in slots]
