"""A store for runs that keep no state: the same answers as the state file, from memory, and nothing is serialised."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from everlearn.streams.store.records import (
    BadRow,
    EpisodeRecord,
    Event,
    Interval,
    StoredBadRow,
    StoredEpisode,
    StoredEvent,
    append_intervals,
    now,
    thinned,
    totals_of,
)
from everlearn.streams.store.trace_table import MAX_CELLS, TraceCell

MAX_EVENTS = 100_000
MAX_EPISODES = 10_000
MAX_BAD_ROWS = 10_000


class MemoryStore:
    """What one run leaves behind, as long as the program lives.

    It has the methods of :class:`~everlearn.streams.store.store.Store` that a run uses, and holds one model's history:
    the latest 100,000 events, 10,000 episodes and 10,000 bad rows, and bounded numbers of intervals and of traces.
    """

    path = "memory"

    def __init__(self) -> None:
        self._events: deque[StoredEvent] = deque(maxlen=MAX_EVENTS)
        self._bad_rows: deque[StoredBadRow] = deque(maxlen=MAX_BAD_ROWS)
        self._episodes: dict[int, StoredEpisode] = {}
        self._traces: deque[TraceCell] = deque(maxlen=MAX_CELLS)
        self._intervals: list[Interval] = []
        self._totals: Counter[str] = Counter()
        self._ids = itertools.count(1)

    def entry(self, name: str) -> None:
        """Nothing was kept from an earlier run."""

    def position(self, name: str) -> None:
        """A run begins at the beginning."""

    def memory(self, name: str) -> None:
        """Nothing is remembered."""

    def commit(
        self,
        name: str,
        model: Any,
        version: int,
        *,
        events: Sequence[Event] = (),
        intervals: Sequence[Interval] = (),
        bad_rows: Sequence[BadRow] = (),
        more: dict[str, int] | None = None,
        episodes: Sequence[EpisodeRecord] = (),
        traces: Sequence[TraceCell] = (),
        grown: Sequence[Event] = (),
        **kept: Any,
    ) -> int:
        """Take in what happened; the model itself, positions and counts stay where they are."""
        for event in [*map(self._grown, grown), *events]:
            when = now() if event.time is None else event.time
            stored = (when, event.row, event.kind, event.value, event.details or {}, event.stream_time)
            self._events.append(StoredEvent(next(self._ids), *stored))
        self._bad_rows.extend(StoredBadRow(next(self._ids), now(), *row) for row in bad_rows)
        self._intervals = append_intervals(self._intervals, intervals)
        self._totals.update(totals_of(events, intervals, bad_rows, more or {}))
        for episode in episodes:
            self._episodes[episode.number] = StoredEpisode(version + 1, "", episode.details)
            self._episodes.pop(episode.number - MAX_EPISODES, None)
        self._traces.extend(traces)
        # No other program can see this store, so that the version is counted and not checked.
        return version + 1

    def _grown(self, event: Event) -> Event:
        """Take out the event of this kind and row; returns the new one with its times."""
        for old in reversed(self._events):
            if (old.kind, old.row) == (event.kind, event.row):
                self._events.remove(old)
                return event._replace(time=old.time, stream_time=old.stream_time)
        return event

    def latest_events(self, name: str, *, kinds: Iterable[str] | None = None, limit: int = 1000) -> list[StoredEvent]:
        """The latest events, oldest first."""
        chosen = None if kinds is None else set(kinds)
        found = [event for event in self._events if chosen is None or event.kind in chosen]
        return found[-limit:]

    def episodes(self, name: str) -> list[StoredEpisode]:
        """The latest episodes, by number."""
        return [self._episodes[number] for number in sorted(self._episodes)]

    def trace_cells(self, name: str, level: int) -> list[TraceCell]:
        """The cells of the first level; the others are for pages, which no program without a state file serves."""
        assert level == 1
        return list(self._traces)

    def history(self, name: str, *, limit: int = 1000) -> list[Interval]:
        """The intervals of the whole run, oldest first, joined with their neighbours to at most `limit`."""
        return thinned(self._intervals, limit)

    def bad_rows(self, name: str, *, limit: int = 100) -> list[StoredBadRow]:
        """The latest rows that could not be learned, oldest first."""
        return list(self._bad_rows)[-limit:]

    def totals(self, name: str) -> dict[str, int]:
        """Counts over the whole run, as the state file has them."""
        return dict(self._totals)
