"""What a run leaves behind: events, intervals, rows that could not be learned."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NAN = math.nan
GRAIN_ROWS = 100  # rows of one point of the history, whatever the batches were
MAX_INTERVALS = 4096


class Event(NamedTuple):
    """Something that happened: a novelty, an anomaly or a change in the stream, or something to the program itself."""

    row: int
    """Row of the stream, counted from 0."""
    kind: str
    value: float = NAN
    """p-value of a novelty or an anomaly, log-density of a change, rows of a new normal, seconds of a gap in time."""
    details: dict[str, Any] | None = None
    time: float | None = None
    """Seconds since 1970 when the program saw it; the time of the commit where none is given."""
    stream_time: float = NAN
    """Seconds since 1970 by the stream's own column of times; NaN where it has none."""


class StoredEvent(NamedTuple):
    """An event as the store gives it back; later events have larger ids."""

    id: int
    time: float
    row: int
    kind: str
    value: float
    details: dict[str, Any]
    stream_time: float = NAN


class EpisodeRecord(NamedTuple):
    """An episode as it is now: the store keeps the latest state of each number."""

    number: int
    is_open: bool
    """Whether it lasts."""
    details: dict[str, Any]


class StoredEpisode(NamedTuple):
    """An episode as the store gives it back."""

    change: int
    """Rises with every change of any episode, or of what people say of it."""
    mark: str
    """What a person said of it, or nothing."""
    details: dict[str, Any]


class Interval(NamedTuple):
    """What happened between two moments of a run: one point of a curve over time."""

    end_row: int
    """Rows that the model had learned at its end."""
    n_rows: int
    time: float
    """Seconds since 1970 at its end."""
    seconds: float
    log_likelihood: float = NAN
    """Mean log-density of its scored rows, each before it was learned."""
    n_components: float = NAN
    forgetting: float = NAN
    """The forgetting factor lambda at its end."""
    memory: float = NAN
    """Rows that the model remembered at its end."""
    n_novel: int = 0
    n_changes: int = 0
    n_scored: int = 0
    """Rows that had a log-density: not those while the model was warming up."""
    stream_time: float = NAN
    """Seconds since 1970 of its last row by the stream's own times; NaN where it has none."""


def mean_log_likelihood(history: Sequence[Interval]) -> float:
    """Mean log-density of all rows of a history, each before it was learned; NaN where there is none."""
    scored = [
        interval for interval in history if interval.n_scored and interval.log_likelihood == interval.log_likelihood
    ]
    total = sum(interval.n_scored for interval in scored)
    return sum(interval.n_scored * interval.log_likelihood for interval in scored) / total if total else NAN


class BadRow(NamedTuple):
    """A row that could not be learned."""

    place: str
    """Where it was: file and line, or the broker's own address of the message."""
    reason: str
    text: str = ""
    """The beginning of what was there."""


class StoredBadRow(NamedTuple):
    """A bad row as the store gives it back."""

    id: int
    time: float
    place: str
    reason: str
    text: str


class ModelEntry(NamedTuple):
    """What the store knows of a model without loading it."""

    name: str
    version: int
    """Rises with every commit, and is never used twice in a file."""
    kind: str
    """Name of the model's class."""
    n_rows: int
    columns: list[str] | None
    bytes: int
    updated: float


class InboxBatch(NamedTuple):
    """Rows that wait to be learned."""

    id: int
    X: NDArray[np.float64]
    y: list[Any] | None = None
    """Targets of the rows, as JSON has them; None for a model without a target."""


def now() -> float:
    """Seconds since 1970."""
    return time.time()


def joined(parts: Sequence[Interval]) -> Interval:
    """One interval that spans several neighbours."""
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    return last._replace(
        n_rows=sum(part.n_rows for part in parts),
        seconds=sum(part.seconds for part in parts),
        log_likelihood=_mean([(part.log_likelihood, part.n_scored) for part in parts]),
        forgetting=_mean([(part.forgetting, part.n_rows) for part in parts]),
        memory=_mean([(part.memory, part.n_rows) for part in parts]),
        # A number of components is not a mean: the latest that is known stands for all.
        n_components=next((part.n_components for part in reversed(parts) if part.n_components >= 0), NAN),
        n_novel=sum(part.n_novel for part in parts),
        n_changes=sum(part.n_changes for part in parts),
        n_scored=sum(part.n_scored for part in parts),
    )


def thinned(intervals: Sequence[Interval], limit: int) -> list[Interval]:
    """At most `limit` intervals of about as many rows each that span the same time: neighbours are joined."""
    if len(intervals) <= limit:
        return list(intervals)
    # Bins of equal rows, not of equal numbers of intervals: old, thinned parts keep their place in the stream.
    ends = list(itertools.accumulate(max(1, interval.n_rows) for interval in intervals))
    bins = [start * limit // ends[-1] for start in (0, *ends[:-1])]
    groups = itertools.groupby(zip(bins, intervals, strict=True), key=lambda pair: pair[0])
    return [joined([interval for _, interval in group]) for _, group in groups]


def append_intervals(kept: Sequence[Interval], new: Sequence[Interval]) -> list[Interval]:
    """Intervals with others behind them: pieces of the same hundred rows become one, and there are at most 4096.

    So the history has the same grain however the stream was cut into batches and commits.
    """
    found = list(kept)
    for interval in new:
        same_grain = found and (found[-1].end_row - 1) // GRAIN_ROWS == (interval.end_row - 1) // GRAIN_ROWS
        if same_grain and found[-1].n_rows < GRAIN_ROWS:
            found[-1] = joined([found[-1], interval])
        else:
            found.append(interval)
    # To half of the limit, so that thinning happens once in 2048 intervals and not with each.
    return found if len(found) <= MAX_INTERVALS else thinned(found, MAX_INTERVALS // 2)


def totals_of(
    events: Sequence[Event], intervals: Sequence[Interval], bad_rows: Sequence[BadRow], more: Mapping[str, int]
) -> dict[str, int]:
    """What one step adds to the counts of a run."""
    totals = Counter(event.kind for event in events)
    totals.update(f"bad: {row.reason}" for row in bad_rows)
    totals.update(more)
    totals["rows"] += sum(interval.n_rows for interval in intervals)
    # The rows that are kept and those that are only counted, once each: both stand under their reasons by now.
    totals["bad rows"] += sum(n for what, n in totals.items() if what.startswith("bad: "))
    return {what: n for what, n in totals.items() if n}


def _mean(pairs: list[tuple[float, int]]) -> float:
    """Weighted mean of the values that are there."""
    known = [(value, weight) for value, weight in pairs if not math.isnan(value) and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else NAN
