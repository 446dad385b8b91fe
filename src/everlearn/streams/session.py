"""A model that learns a stream and keeps its state in a store: what `learn` and `serve` have in common."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, StateFileError
from everlearn.streams.prequential import PrequentialMonitor, PrequentialResult
from everlearn.streams.sources.times import TimeFormat, restored_format
from everlearn.streams.store.memory import MemoryStore
from everlearn.streams.store.records import GRAIN_ROWS, NAN, BadRow, Event, Interval, append_intervals, now
from everlearn.streams.store.store import Store
from everlearn.streams.time_gaps import StampCheck, TimeGapDetector
from everlearn.typing import Array

NOVELTIES_KEPT = 1000  # of one commit; the others are counted
BAD_ROWS_KEPT = 1000
# Counting components may need work (a mixture finishes its search for it): it gets this share of the time, but is never
# put off for longer than some seconds, so that a first call that compiles does not freeze the number.
_COMPONENTS_SHARE, _COMPONENTS_SECONDS = 0.05, 10.0


class Session:
    """Learns batches and commits, in one transaction, the model with all that happened since the latest commit.

    If the store holds a model of this name, the session goes on with it.

    Parameters
    ----------
    model : StreamingModel or None
        The model to start with; None goes on with the one that the store holds, whatever it is.
    store : Store or MemoryStore, optional
        Where its state is kept; by default in memory, without copies.
    name : str, default="model"
        The name of the model in the store.
    columns : list of str, optional
        Names of the columns that the model will see.
    count_later : bool, default=False
        Whether the number of components is first counted after some seconds: it may need the end of a structure search,
        which a service that loads one of very many models for a row or two should not wait for.
    time_format : TimeFormat, optional
        How the times of the stream are written, for a stream that has them; kept for those who read the store.

    Attributes
    ----------
    model : StreamingModel
        The model: the one given, or the one from the store.
    monitor : PrequentialMonitor
        Counts over the whole stream.
    position : dict or None
        Where the source stood at the latest commit.
    resumed : bool
        Whether the model came from the store.
    last_time : float or None
        Time of the latest row that had one, in seconds since 1970.

    Raises
    ------
    InputError
        The store holds a model of this name, but one of another kind or with other columns.
    """

    def __init__(
        self,
        model: Any,
        *,
        store: Store | MemoryStore | None = None,
        name: str = "model",
        columns: list[str] | None = None,
        count_later: bool = False,
        time_format: TimeFormat | None = None,
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self.name = name
        self.columns = columns
        self.time_format = time_format
        entry = self.store.entry(name)
        self.resumed = entry is not None
        self.version = 0 if entry is None else entry.version
        self.last_time: float | None = None
        self.model = model
        if entry is not None and isinstance(self.store, Store):
            # The model of the store goes on, not the one given: that one only says what kind and settings are expected.
            found = self.store.load(name)
            self.model = found if model is None else self._same_kind(found, model)
        self._check_columns()
        self.monitor = PrequentialMonitor(self.model, columns)
        self._gaps, self._stamps = TimeGapDetector(), StampCheck()
        self.position = self.store.position(name)
        # Counts and detectors come from the same commit as the model, so that a run that was killed reports each event
        # once.
        if memory := self.store.memory(name):
            self._restore(memory)
        self._components, self._components_cost, self._components_asked = NAN, 0.0, -math.inf
        if count_later:
            self._components_cost, self._components_asked = _COMPONENTS_SECONDS, time.perf_counter()
        self._clear()

    def learn(self, X: Array, y: Any = None, times: Array | None = None) -> PrequentialResult:
        """Learn rows, each scored just before; what happened is committed later.

        Parameters
        ----------
        X : ndarray of shape (n, D)
            Rows, NaN where a value was not observed.
        y : ndarray of shape (n,), optional
            Targets, for a model that has one.
        times : ndarray of shape (n,), optional
            Seconds since 1970 of each row, NaN where unknown.
        """
        started = self.model._is_started()
        result = self.monitor.score_then_learn(X, y)
        times = self._stamps.checked(times)
        # After the rows were taken: a refused first batch leaves the model unfitted, without names.
        if not started and self.columns is not None and not hasattr(self.model, "feature_names_in_"):
            self.model.feature_names_in_ = np.array(self.columns, dtype=object)
        if times is not None and len(known := times[~np.isnan(times)]):
            self.last_time = float(known[-1])
        self._keep_events(result, times)
        self._keep_intervals(result, times)
        return result

    def merge(self, other: Any) -> None:
        """Put what another model knows into this one; it is committed with the next step."""
        self.model = self.model.merge(other)
        self.monitor.replace_model(self.model)
        self.note("merged", rows=int(other.n_samples_seen_))

    def leave_out(self, bad_rows: Any) -> None:
        """Take note of rows that cannot be learned."""
        # A file of nothing but bad rows must not fill memory and the state file: the rest is counted by reason.
        room = max(0, BAD_ROWS_KEPT - len(self._bad_rows))
        self._bad_rows += bad_rows[:room]
        for row in bad_rows[room:]:
            self._count_more(f"bad: {row.reason}")

    def note(self, kind: str, **details: Any) -> None:
        """Take note of something that happened to the program; it is committed with the next step."""
        self._events.append(Event(self.monitor.n_rows, kind, NAN, details, now()))

    def commit(self, *, position: dict[str, Any] | None = None, taken: int | None = None) -> None:
        """Write all that happened since the latest commit, or, if that fails, nothing.

        Parameters
        ----------
        position : dict, optional
            Where the source stands.
        taken : int, optional
            Batches of the inbox up to this id were learned.
        """
        # If this raises, nothing below has run: the events are still here and go with the next attempt.
        self.version = self.store.commit(
            self.name, self.model, self.version,
            position=position, events=self._events, intervals=self._intervals, bad_rows=self._bad_rows,
            more=self._more, memory=self._memory(), taken=taken, grown=list(self._grown.values()),
        )  # fmt: skip
        self.position = position if position is not None else self.position
        self._clear()

    def n_components(self, *, fresh: bool = False) -> float:
        """Number of components, where the model has them; unless `fresh`, without a search, or ten seconds old."""
        started = time.perf_counter()
        # The wait is the cost of the latest count divided by its share of the time.
        pause = min(self._components_cost / _COMPONENTS_SHARE, _COMPONENTS_SECONDS)
        if fresh or started - self._components_asked > pause:
            self._components = _components_of(self.model, fresh=fresh)
            self._components_asked = time.perf_counter()
            self._components_cost = self._components_asked - started
        return self._components

    # -- what happened ----------------------------------------------------------------------------

    def _clear(self) -> None:
        self._events: list[Event] = []
        self._grown: dict[int, Event] = {}  # anomalies that were committed before, by row
        self._bad_rows: list[BadRow] = []
        self._more: dict[str, int] = {}
        self._intervals: list[Interval] = []
        self._n_novelties_kept = 0
        self._since = time.monotonic()

    def _count_more(self, what: str) -> None:
        self._more[what] = self._more.get(what, 0) + 1

    def _keep_events(self, result: PrequentialResult, times: Array | None) -> None:
        """Keep the events of a batch with the times of their rows; of very many novelties only the number."""
        seen = now()
        for event in result.events:
            if event.kind == "novelty" and self._n_novelties_kept >= NOVELTIES_KEPT:
                self._count_more("novelty")
                continue
            self._n_novelties_kept += event.kind == "novelty"
            self._events.append(event._replace(time=seen, stream_time=_at(times, event.row - result.first_row)))
        for event in result.grown:
            self._put_grown(event)
        for gap in self._gaps.find([] if times is None else times.tolist()):
            row = result.first_row + gap.offset
            self._events.append(Event(row, "time gap", gap.seconds, None, seen, _at(times, gap.offset)))

    def _put_grown(self, event: Event) -> None:
        """Keep what an anomaly is now in place of what it was."""
        for i, kept in enumerate(self._events):
            if kept.kind == event.kind and kept.row == event.row:
                self._events[i] = event._replace(time=kept.time, stream_time=kept.stream_time)
                return
        self._grown[event.row] = event

    def _keep_intervals(self, result: PrequentialResult, times: Array | None) -> None:
        """Add the points of the history: one for each hundred rows, ending at a multiple of a hundred."""
        n, first = len(result.log_density), result.first_row
        if not n:
            return
        # Seconds a row, from the end of the batch before: reading and waiting are in it, as the curve shows the rate of
        # a stream.
        seconds = max(time.monotonic() - self._since, 1e-9) / n
        state = (self.n_components(), forgetting_of(self.model), memory_of(self.model))
        # A change found at the end of a warm-up has an earlier row; it counts in the first interval of the batch.
        changes = np.array(result.changes, dtype=np.int64).clip(first, first + n - 1) - first
        scored = ~np.isnan(result.log_density)
        ends = np.append(np.arange(GRAIN_ROWS - first % GRAIN_ROWS, n, GRAIN_ROWS), n)
        starts = np.append(0, ends[:-1])

        def sums(values: NDArray[Any]) -> list[Any]:
            return np.add.reduceat(values, starts).tolist()  # type: ignore[no-any-return]

        columns = zip(
            starts.tolist(),
            ends.tolist(),
            sums(np.where(scored, result.log_density, 0.0)),
            sums(result.novel.astype(np.int64)),
            sums(np.bincount(changes, minlength=n)),
            sums(scored.astype(np.int64)),
            strict=True,
        )
        told, fresh = now(), []
        for start, end, total, novelties, changed, known in columns:
            mean, size, moment = total / known if known else NAN, end - start, _at(times, end - 1)
            fresh.append(
                Interval(first + end, size, told, seconds * size, mean, *state, novelties, changed, known, moment)
            )
        self._intervals = append_intervals(self._intervals, fresh)
        self._since = time.monotonic()

    # -- what the store holds ---------------------------------------------------------------------

    def _memory(self) -> dict[str, Any]:
        how = None if self.time_format is None else list(self.time_format)
        return {
            **self.monitor.memory(),
            "times": self._gaps.memory(),
            "stamps": self._stamps.memory(),
            "time_format": how,
        }

    def _restore(self, memory: Any) -> None:
        try:
            self.monitor.restore(memory)
            self._gaps.restore(memory["times"])
            self._stamps.restore(memory.get("stamps", [None] * 3))  # files of an earlier version have none
            self.time_format = self.time_format or restored_format(memory.get("time_format"))
            json.dumps(self._memory(), allow_nan=False)  # a number that is not finite would make the next commit fail
        except (StateFileError, TypeError, ValueError, KeyError, ArithmeticError) as error:
            raise StateFileError(
                f"The model {self.name!r} in {self.store.path}: {error}. The state file was edited or damaged: restore "
                "it from a copy, or name another file for --state and learn again from the beginning."
            ) from error

    def _same_kind(self, found: Any, asked: Any) -> Any:
        """The model of the store, if it is of the kind that was asked for."""
        place = f"The model {self.name!r} in {self.store.path}"
        if type(found) is not type(asked):
            kinds = f"{type(found).__name__}, not {type(asked).__name__}"
            raise InputError(f"{place} is of the kind {kinds}. Choose another name or file.")
        for parameter, value in asked.get_params(deep=False).items():
            # By repr, because parameters may be models, arrays or NaN, which == does not compare to a truth value.
            if repr(value) != repr(getattr(found, parameter)):
                raise InputError(
                    f"{place} was made with {parameter}={getattr(found, parameter)!r}, not {value!r}. Give the same "
                    "settings as before, or another name or file."
                )
        return found

    def _check_columns(self) -> None:
        """Refuse a stream of other columns than the model has learned."""
        if self.columns is None or not self.model._is_started():
            return
        names = getattr(self.model, "feature_names_in_", None)
        same = self.model.n_features_in_ == len(self.columns) if names is None else list(names) == self.columns
        if same:
            return
        has = f"{self.model.n_features_in_} columns" if names is None else f"the columns {', '.join(names)[:300]}"
        raise InputError(
            f"The model {self.name!r} has {has}; the stream has {', '.join(self.columns)[:300]}. Choose the same "
            "columns, or another model."
        )


def forgetting_of(model: Any) -> float:
    """The forgetting factor in force; NaN for a model that has none."""
    if hasattr(type(model), "forgetting_"):
        return float(model.forgetting_)
    factor = getattr(model, "forgetting", None)
    return float(factor) if isinstance(factor, (int, float)) else NAN


def memory_of(model: Any) -> float:
    """Number of rows that a model remembers; NaN where it does not say."""
    found = getattr(model, "effective_samples_", NAN)
    return float(found) if math.isfinite(found) else NAN


def _components_of(model: Any, *, fresh: bool) -> float:
    try:
        if not model._is_started():
            return NAN
        if not fresh and hasattr(model, "_n_components_so_far"):
            found = model._n_components_so_far()
            return NAN if found is None else float(found)
        return float(getattr(model, "n_components_", NAN))
    except InputError:  # nothing but gaps so far
        return NAN


def _at(values: Array | None, i: int) -> float:
    return float(values[i]) if values is not None and 0 <= i < len(values) else NAN
