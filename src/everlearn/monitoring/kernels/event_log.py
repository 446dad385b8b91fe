"""Events of a stream that is being learned: novelties by their distance, changes by the drop of the log-density."""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg.column_scan import count_observed
from everlearn.linalg.compile import inner, kernel
from everlearn.monitoring.kernels.page_hinkley import TestSettings, step_in_place
from everlearn.typing import Array

NOVELTY, CHANGE = 0, 1


class MonitorState(NamedTuple):
    """The log: totals, the change detector's state, and a ring of the latest events. Watching updates it in place."""

    totals: Annotated[Array, "2"]  # rows scored, and the sum of their log-densities
    memory: Annotated[Array, "61"]  # the numbers of a ChangeState
    rows: Annotated[NDArray[np.int64], "int64 E"]
    kinds: Annotated[NDArray[np.int64], "int64 E"]  # places in KINDS
    values: Annotated[Array, "any E"]
    n_events: int  # of the whole stream


class Rules(NamedTuple):
    """What makes an event."""

    alarm: Array  # (D + 1,), squared distance from which a row with d observed columns is a novelty
    detector: TestSettings  # of the test for changes


class Watch(NamedTuple):
    """A log and its rules, for kernels that watch rows while they learn them."""

    rules: Rules
    log: MonitorState
    counts: NDArray[np.int64]  # (2,), number of the next row, below 0 where none is watched; and events so far


@inner
def record(row, kind, value, log, n_events):
    """Put an event into the ring; returns how many there have been."""
    slot = n_events % log.rows.shape[0]
    log.rows[slot] = row
    log.kinds[slot] = kind
    log.values[slot] = value
    return n_events + 1


@inner
def watch_row(row, observed, density, distance, rules, log, n_events):
    """Add up the log-density of a row, and record what is an event; returns the number of events so far."""
    if observed == 0 or np.isnan(density):
        return n_events
    log.totals[0] += 1.0
    log.totals[1] += density
    # Before the change test, so that a novelty stands before the change that it completes at the same row.
    if distance > rules.alarm[observed]:
        n_events = record(row, NOVELTY, distance, log, n_events)
    if step_in_place(density, log.memory, rules.detector) > 0.0:
        n_events = record(row, CHANGE, density, log, n_events)
    return n_events


@kernel
def watch_rows(X, log_density, distance, first_row, rules, log, n_events):
    """Add up log-densities, and record novelties (with their squared distance) and changes (with the log-density).

    Updates the arrays of `log` in place; takes and returns the number of events so far.
    """
    for t in range(X.shape[0]):
        # Thresholds rise with the columns: below the first one no row is a novelty, and its columns need no counting.
        is_far = distance[t] > rules.alarm[min(1, X.shape[1])]
        observed = count_observed(X[t]) if is_far or np.isnan(X[t, 0]) else 1
        n_events = watch_row(first_row + t, observed, log_density[t], distance[t], rules, log, n_events)
    return n_events
