"""A model that learns a stream and keeps its state in a store: what `learn` and `serve` have in common."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.streams.prequential import Foresight, Monitor
from everlearn.streams.store.records import NAN, BadRow, Event, Interval, now, thinned
from everlearn.streams.store.store import Store

Array = NDArray[np.float64]

NOVELTIES_KEPT = 1000  # of one step; the others are counted
BAD_ROWS_KEPT = 1000
INTERVALS_KEPT = 50
_INTERVAL_SECONDS = 0.02
_LOOK_SHARE = 0.02  # of the time may go into counting components


class Learner:
    """Learns batches and commits, in one transaction, the model with all that happened since the latest commit.

    If the store holds a model of this name, the learner goes on with it.

    Parameters
    ----------
    model : estimator
        The model to start with.
    store : Store
        Where its state is kept.
    name : str, default="model"
        The name of the model in the store.
    columns : list of str, optional
        Names of the columns that the model will see.

    Attributes
    ----------
    model : estimator
        The model: the one given, or the one from the store.
    monitor : Monitor
        Counts over the whole stream.
    position : dict or None
        Where the source stood at the latest commit.
    resumed : bool
        Whether the model came from the store.

    Raises
    ------
    InputError
        The store holds a model of this name, but one of another kind or with other columns.
    """

    def __init__(self, model: Any, *, store: Store, name: str = "model", columns: list[str] | None = None) -> None:
        self.store = store
        self.name = name
        self.columns = columns
        entry = store.entry(name)
        self.resumed = entry is not None
        self.version = 0 if entry is None else entry.version
        self.model = model if entry is None else self._same_kind(store.load(name), model)
        self._check_columns()
        self.monitor = Monitor(self.model)
        self.position = store.position(name)
        if memory := store.memory(name):
            self.monitor.restore(memory)
        self._look_cost = self._looked_at = 0.0
        self._clear()

    def learn(self, X: Array, y: Any = None) -> Foresight:
        """Learn rows, each scored just before; what happened is committed later."""
        started = self.model._is_started()
        seen = self.monitor.learn(X, y)
        if not started and self.columns is not None and not hasattr(self.model, "feature_names_in_"):
            self.model.feature_names_in_ = np.array(self.columns, dtype=object)
        self._add(seen, self.model.n_samples_seen_ - len(X))
        if time.monotonic() - self._since > _INTERVAL_SECONDS:
            self._end_interval()
        return seen

    def merge(self, other: Any) -> None:
        """Put what another model knows into this one; it is committed with the next step."""
        self.model = self.monitor.model = self.model.merge(other)
        self.note("merged", rows=int(other.n_samples_seen_))

    def leave_out(self, bad_rows: list[BadRow]) -> None:
        """Take note of rows that cannot be learned."""
        room = max(0, BAD_ROWS_KEPT - len(self._bad_rows))
        self._bad_rows += bad_rows[:room]
        for row in bad_rows[room:]:
            self._more[f"bad: {row.reason}"] = self._more.get(f"bad: {row.reason}", 0) + 1

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
        self._end_interval()
        intervals = thinned(self._intervals, INTERVALS_KEPT)
        self.version = self.store.commit(
            self.name, self.model, self.version,
            position=position, events=self._events, intervals=intervals, bad_rows=self._bad_rows,
            more=self._more, memory=self.monitor.memory(), taken=taken,
        )  # fmt: skip
        self.position = position if position is not None else self.position
        self._clear()

    def n_components(self) -> float:
        """Number of components, where the model has them; asked again only now and then, because it takes time."""
        started = time.perf_counter()
        if started - self._looked_at > self._look_cost / _LOOK_SHARE:
            self._components = _components_of(self.model)
            self._looked_at = time.perf_counter()
            self._look_cost = self._looked_at - started
        return self._components

    # -- what happened ----------------------------------------------------------------------------

    def _clear(self) -> None:
        self._events: list[Event] = []
        self._bad_rows: list[BadRow] = []
        self._more: dict[str, int] = {}
        self._intervals: list[Interval] = []
        self._n_noted = 0
        self._begin_interval()

    def _begin_interval(self) -> None:
        self._since = time.monotonic()
        self._counts = np.zeros(4, dtype=np.int64)  # rows, scored rows, novelties, changes
        self._log_density = 0.0

    def _add(self, seen: Foresight, first_row: int) -> None:
        scored = ~np.isnan(seen.log_density)
        self._log_density += float(seen.log_density[scored].sum())
        self._counts += [len(seen.novel), int(scored.sum()), int(seen.novel.sum()), len(seen.changes)]
        novel = np.flatnonzero(seen.novel)
        noted = novel[: NOVELTIES_KEPT - self._n_noted]
        self._n_noted += len(noted)
        if len(noted) < len(novel):
            self._more["novelty"] = self._more.get("novelty", 0) + len(novel) - len(noted)
        events = [Event(first_row + int(i), "novelty", float(seen.log_density[i]), None, now()) for i in noted]
        events += [Event(row, "change", _at(seen.log_density, row - first_row), None, now()) for row in seen.changes]
        self._events += sorted(events, key=lambda event: event.row)

    def _end_interval(self) -> None:
        n_rows, n_scored, n_novel, n_changes = self._counts.tolist()
        if not n_rows:
            return
        mean = self._log_density / n_scored if n_scored else NAN
        seconds = max(time.monotonic() - self._since, 1e-9)
        state = (self.n_components(), forgetting_of(self.model), memory_of(self.model))
        end_row = self.model.n_samples_seen_
        self._intervals.append(Interval(end_row, n_rows, now(), seconds, mean, *state, n_novel, n_changes, n_scored))
        self._begin_interval()

    def _same_kind(self, found: Any, asked: Any) -> Any:
        """The model of the store, if it is of the kind that was asked for."""
        place = f"The model {self.name!r} in {self.store.path}"
        if type(found) is not type(asked):
            kinds = f"{type(found).__name__}, not {type(asked).__name__}"
            raise InputError(f"{place} is of the kind {kinds}. Choose another name or file.")
        for parameter, value in asked.get_params(deep=False).items():
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


def _components_of(model: Any) -> float:
    try:
        return float(getattr(model, "n_components_", NAN)) if model._is_started() else NAN
    except InputError:  # nothing but gaps so far
        return NAN


def _at(values: Array, i: int) -> float:
    return float(values[i]) if 0 <= i < len(values) else NAN
