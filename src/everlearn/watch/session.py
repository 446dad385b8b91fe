"""A watcher that keeps its state in a store: what `watch` runs, and what page, report and `mark` read."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.errors import InputError, StateFileError
from everlearn.streams.prequential import restored_count
from everlearn.streams.sources.schema import Columns
from everlearn.streams.sources.times import TimeFormat, restored_format
from everlearn.streams.store.memory import MemoryStore
from everlearn.streams.store.records import NAN, BadRow, EpisodeRecord, Event, Interval, now
from everlearn.streams.store.store import Store
from everlearn.streams.store.trace_table import TraceCell
from everlearn.streams.time_gaps import StampCheck
from everlearn.typing import Array
from everlearn.watch.episodes import Episode
from everlearn.watch.traces import TracePoint, TraceRecorder
from everlearn.watch.watcher import FORMAT, Watcher

MARK = "mark"
"""Kind of the events by which people tell a watcher what an episode was."""
VERDICTS = ("normal", "fault", "seen")
_BAD_ROWS_KEPT = 1000


class WatchResult(NamedTuple):
    """What came of a batch."""

    first_row: int
    episodes: list[Episode]
    """News: episodes that began, became worse, or ended."""


class WatchSession:
    """Watches batches and commits, in one transaction, all that happened since the latest commit.

    If the store holds a watcher of this name, the session goes on with it.

    Parameters
    ----------
    watcher : Watcher
        The watcher, as it begins.
    store : Store or MemoryStore, optional
        Where its state is kept; by default in memory.
    name : str, default="model"
        Its name in the store.
    healthy_until : float, optional
        Rows before this time, in seconds since 1970, are known to be healthy.
    time_column : str, optional
        Name of the column of times, for a run that goes on.
    device : str, optional
        The device that is watched, where there are several.

    Attributes
    ----------
    watcher : Watcher
        The watcher.
    position : dict or None
        Where the source stood at the latest commit.
    resumed : bool
        Whether the state came from the store.
    """

    def __init__(
        self,
        watcher: Watcher,
        *,
        store: Store | MemoryStore | None = None,
        name: str = "model",
        healthy_until: float | None = None,
        time_column: str | None = None,
        device: str = "",
    ) -> None:
        self.watcher, self.name = watcher, name
        self.store = MemoryStore() if store is None else store
        self.healthy_until, self.time_column, self.device = healthy_until, time_column, device
        entry = self.store.entry(name)
        self.resumed = entry is not None
        self.version = 0 if entry is None else entry.version
        self.position = self.store.position(name)
        self._told: dict[int, tuple[str, str, str]] = {}
        self._traces = TraceRecorder(len(watcher.columns))
        self._stamps = StampCheck()
        self._band: tuple[Array, ...] = watcher.expected
        self._latest_mark = 0
        self._looked = -math.inf
        self._arrived = time.monotonic()
        if entry is not None and isinstance(self.store, Store):
            self._restore(self.store.load(name), self.store.memory(name))
        self._clear()

    @property
    def model(self) -> Any:
        """The detector."""
        return self.watcher.detector

    # -- rows -------------------------------------------------------------------------------------

    def learn_healthy(self, X: Array, times: Array | None = None) -> None:
        """Learn rows of a file that is known to be healthy; they are no part of the stream that is watched."""
        self.watcher.learn(X, times)
        self.watcher.rows_before += len(X)

    def learn(self, X: Array, y: Any = None, times: Array | None = None) -> WatchResult:
        """Take the next rows of the stream; what happened is committed later."""
        first = self.watcher.n_stream_rows
        times = self._stamps.checked(times)
        n_healthy = 0
        if self.healthy_until is not None and times is not None:
            # Up to the first later row of the batch: what comes behind it is watched, even if its time is earlier.
            later = np.flatnonzero(times >= self.healthy_until)
            n_healthy = int(later[0]) if len(later) else len(X)
        # Before the rows: what a person has just called normal is not told once more.
        found = self._take_marks()
        if n_healthy:
            self.watcher.learn(X[:n_healthy], None if times is None else times[:n_healthy])
        if n_healthy < len(X):
            found += self.watcher.watch(X[n_healthy:], None if times is None else times[n_healthy:])
        if self.model._is_started() and not hasattr(self.model, "feature_names_in_"):
            n = self.model.n_features_in_  # a sensor that has just appeared is not among them
            self.model.feature_names_in_ = np.array(self.watcher.columns[:n], dtype=object)
        self._arrived = time.monotonic()
        self._record_traces(first, X, times)
        self._n_rows += len(X)
        return WatchResult(first, self._news(found))

    def grow(self, columns: Sequence[str]) -> None:
        """Take sensors that appeared: all later rows have them behind the others."""
        self.watcher.grow(columns)
        self._traces.grow(len(columns))

    def silence(self) -> WatchResult:
        """News when no row came for long, which a live stream calls now and then."""
        found = self.watcher.silence(time.monotonic() - self._arrived)
        return WatchResult(self.watcher.n_stream_rows, self._news(found))

    def _news(self, episodes: list[Episode]) -> list[Episode]:
        """Episodes of which something is new to tell; all are kept for the store."""
        news = []
        for found in episodes:
            device = self.device
            episode = found._replace(device=device, sentence=f"{device}: {found.sentence}") if device else found
            self._episodes[episode.number] = episode
            state = (episode.status, episode.severity, episode.kind)
            # Told when it begins, becomes worse, turns out to be of another kind or ends; not with every row that it
            # lasts.
            if self._told.get(episode.number) != state:
                self._told[episode.number] = state
                news.append(episode)
            if not episode.is_open:
                self._told.pop(episode.number, None)
        return news

    def _record_traces(self, first: int, X: Array, times: Array | None) -> None:
        """Gather the rows into points; each point is closed by the first row behind it."""
        cells = self._traces.cells(first, times, len(X))
        cuts = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(X)]
        # What was expected at the rows themselves: at the end of a batch of a thousand it is something else.
        bands = deque(self.watcher.take_bands())
        for start, end in itertools.pairwise(cuts):
            if start == end:
                continue
            if self._traces.cell is not None and self._traces.cell != int(cells[start]):
                self._close_trace()
            self._traces.cell = int(cells[start])
            self._traces.add(X[start:end])
            self._last = (first + end - 1, math.nan if times is None else float(times[end - 1]))
            while bands and bands[0].row - self.watcher.rows_before < first + end:
                self._band = tuple(bands.popleft()[1:])

    def _close_trace(self) -> None:
        row, moment = self._last
        # A sensor that has just appeared was not expected at anything.
        low, high = (np.concatenate([x, np.full(len(self.watcher.columns) - len(x), np.nan)]) for x in self._band)
        point = self._traces.close(row, moment, low, high)
        assert self._traces.cell is not None
        self._cells.append(point.cell(self._traces.cell))

    def _take_marks(self) -> list[Episode]:
        """Take what people said of episodes since the last call."""
        # A look at the store each second is enough: people mark, not programs.
        if not isinstance(self.store, Store) or time.monotonic() - self._looked < 1.0:
            return []
        self._looked = time.monotonic()
        found: list[Episode] = []
        for event in self.store.events(self.name, after=self._latest_mark, kinds=[MARK]):
            # Kept with the state, so that a mark is taken once, also when it was given while no watcher ran.
            self._latest_mark = event.id
            number, verdict = event.details.get("number"), event.details.get("verdict")
            episode = next((e for e in stored_episodes(self.store, self.name) if e.number == number), None)
            if episode is not None and verdict in VERDICTS:
                found += self.watcher.mark(episode, str(verdict))
        return found

    # -- what the runner calls --------------------------------------------------------------------

    def leave_out(self, bad_rows: Any) -> None:
        """Take note of rows that cannot be read."""
        self._bad_rows += bad_rows[: max(0, _BAD_ROWS_KEPT - len(self._bad_rows))]

    def note(self, kind: str, **details: Any) -> None:
        """Take note of something that happened to the program or the source."""
        self._events.append(Event(self.watcher.n_stream_rows, kind, NAN, details, now()))

    def commit(self, *, position: dict[str, Any] | None = None) -> None:
        """Write all that happened since the latest commit, or, if that fails, nothing."""
        self.committed(self.store.commit(self.name, self.model, self.version, position=position, **self.step()))
        self.position = position if position is not None else self.position

    def step(self) -> dict[str, Any]:
        """What happened since the latest commit, and what is remembered, as the store takes it."""
        episodes = [EpisodeRecord(e.number, e.is_open, e.record()) for e in self._episodes.values()]
        seconds = time.monotonic() - self._since
        intervals = [Interval(self.watcher.n_stream_rows, self._n_rows, now(), seconds)] if self._n_rows else []
        return {
            "events": self._events, "episodes": episodes, "traces": self._cells, "intervals": intervals,
            "bad_rows": self._bad_rows, "memory": self._memory(),
        }  # fmt: skip

    def committed(self, version: int) -> None:
        """Take note that the step was written as this version."""
        self.version = version
        self._clear()

    def _clear(self) -> None:
        self._events: list[Event] = []
        self._cells: list[TraceCell] = []
        self._episodes: dict[int, Episode] = {}
        self._bad_rows: list[BadRow] = []
        self._n_rows, self._since = 0, time.monotonic()

    # -- what the store holds ---------------------------------------------------------------------

    def _memory(self) -> dict[str, Any]:
        how = self.watcher.time_format
        return {
            "watch": self.watcher.memory(),
            "columns": self.watcher.columns,
            "traces": self._traces.memory(),
            "stamps": self._stamps.memory(),
            "rows_before": self.watcher.rows_before,
            "told": [[number, *state] for number, state in self._told.items()],
            "latest_mark": self._latest_mark,
            "time": self.time_column,
            "time_format": None if how is None else list(how),
        }

    def _restore(self, detector: Any, memory: Any) -> None:
        place = f"{self.name!r} in {self.store.path}"
        if not isinstance(detector, AnomalyDetector) or "watch" not in (memory or {}):
            raise InputError(
                f"{place} is a {type(detector).__name__} that was not made by everlearn watch. Name another file for "
                "--state, or another --name."
            )
        columns = memory.get("columns")
        if columns != self.watcher.columns:
            known = ", ".join(map(str, columns)) if isinstance(columns, list) else "of another program"
            raise InputError(
                f"{place} watches the columns {known[:300]}; the stream has "
                f"{', '.join(self.watcher.columns)[:300]}. Choose the same with --columns, or another --state."
            )
        if isinstance(memory["watch"], dict) and memory["watch"].get("format", 1) in range(1, FORMAT):
            raise InputError(
                f"{place} was written by an earlier version of everlearn, whose checks this one cannot continue. "
                "Name another file for --state and watch the log from its beginning; the old file still serves the "
                "page and the report of its episodes."
            )
        try:
            self.watcher.restore(memory["watch"], detector)
            self._traces.restore(memory["traces"])
            self._stamps.restore(memory.get("stamps", [None] * 3))  # files of an earlier version have none
            self._told = {int(number): (str(a), str(b), str(c)) for number, a, b, c in memory["told"]}
            self._latest_mark = int(memory["latest_mark"])
            self.watcher.rows_before = restored_count(memory.get("rows_before", 0))
        except (StateFileError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise StateFileError(
                f"{place}: {error}. The state file was edited or damaged: restore it from a copy, or name another file "
                "for --state and begin anew."
            ) from error
        self._last = (self.watcher.n_stream_rows - 1, math.nan)
        self._band = self.watcher.expected


def stored_episodes(store: Any, name: str, **which: int) -> list[Episode]:
    """The episodes of a watcher in a store, each as it was last seen, with the marks that people gave them.

    Parameters
    ----------
    store : Store or MemoryStore
        The store.
    name : str
        Name of the watcher in it.
    which : int
        `latest` and `after`, as of `Store.episodes`.
    """
    return [Episode.of(found.details)._replace(mark=found.mark) for found in store.episodes(name, **which)]


def stored_traces(store: Any, name: str, *, n_columns: int = 0, level: int = 1) -> list[TracePoint]:
    """The points of the sensors' traces in a store, oldest first, with `n_columns` sensors at least."""
    points = [TracePoint.of(cell) for cell in store.trace_cells(name, level)]
    widest = max((len(point.mean) for point in points), default=0)
    return [point.widened(max(widest, n_columns)) for point in points]


def watched_columns(store: Any, name: str) -> tuple[list[str], TimeFormat | None] | None:
    """Names of the sensors and the format of the times of a watcher in a store; None if it is no watcher."""
    memory = store.memory(name) or {}
    if "watch" not in memory or not isinstance(memory.get("columns"), list):
        return None
    return [str(column) for column in memory["columns"]], restored_format(memory.get("time_format"))


def known_columns(store: Any, name: str) -> Columns | None:
    """The columns that an earlier run of a watcher found; None if there was none."""
    found = watched_columns(store, name)
    if found is None:
        return None
    time_column = (store.memory(name) or {}).get("time")
    time_column = time_column if isinstance(time_column, str) else None
    return Columns(found[0], {}, time=time_column, time_format=found[1] if time_column else None)


def mark_episode(store: Store, name: str, number: int, verdict: str) -> Episode:
    """Keep what a person says of an episode, for the watcher that runs or will run.

    Parameters
    ----------
    store : Store
        The state file.
    name : str
        Name of the watcher in it.
    number : int
        Number of the episode.
    verdict : {"normal", "fault", "seen"}
        What it was.

    Returns
    -------
    Episode
        The episode with its mark.
    """
    if verdict not in VERDICTS:
        raise InputError(f"An episode is marked as one of {', '.join(VERDICTS)}; got {verdict!r}.")
    episodes = stored_episodes(store, name)
    episode = next((episode for episode in episodes if episode.number == number), None)
    if episode is None:
        known = ", ".join(str(episode.number) for episode in episodes[-20:]) or "none yet"
        raise InputError(f"{store.path} holds no episode {number} of {name!r}. The latest are: {known}.")
    details = {"number": number, "verdict": verdict}
    store.mark(name, number, verdict, Event(episode.first_row, MARK, NAN, details, now(), episode.begin))
    return episode._replace(mark=verdict)
