"""Prequential evaluation: each row is scored by the model just before it is learned.

The sum of these scores is the log-likelihood of the whole stream under the model that learns it (Dawid, 1984,
Statistical theory: the prequential approach, JRSS A 147), so it needs no held-out data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import StateFileError
from everlearn.monitoring import event_log, page_hinkley
from everlearn.streams.store.records import Event
from everlearn.typing import Array, CalibratedModel, ClassifyingModel, DensityModel, PrequentialModel

# A model that scores apart from learning is scored for so many rows at once: fewer cost time, more make the score that
# of an older model.
SCORED_ROWS = 256
# `events_` keeps the latest 1000 events, and a row causes a novelty and a change at most: from so many rows at a time
# none is lost.
WATCHED_ROWS = 500


class Anomaly(NamedTuple):
    """An anomaly that was told, and may go on."""

    row: int
    last: int
    value: float
    text: str


NO_ANOMALY = Anomaly(0, 0, 1.0, "")


class PrequentialResult(NamedTuple):
    """What a batch was to the model before it was learned."""

    first_row: int
    """Rows that the model had learned before."""
    log_density: Array
    """Log-density of each row (of its target, for a model with one); NaN while the model was warming up."""
    events: list[Event]
    """Novelties and anomalies (their value is the p-value) and changes (log-density), by row as the model counts them
    from 0.
    """
    grown: Sequence[Event] = ()
    """Anomalies of earlier batches that went on in this one, as they are now."""

    @property
    def novel(self) -> NDArray[np.bool_]:
        """Whether each row was a novelty: one whose p-value lies below the model's `novelty_level`."""
        marks = np.zeros(len(self.log_density), dtype=bool)
        found = [event.row for event in self.events if event.kind in ("novelty", "anomaly")]
        rows = np.array(found, dtype=np.int64)
        # Events of the warm-up may lie before this batch: as negative indices they would mark rows at its end.
        marks[rows[rows >= self.first_row] - self.first_row] = True
        return marks

    @property
    def changes(self) -> list[int]:
        """Rows at which a change was noticed."""
        return [event.row for event in self.events if event.kind == "change"]


class PrequentialMonitor:
    """Scores and learns batches, and keeps count.

    Novelties and changes are those that the model records itself. For a model that records none, a novelty is a row
    whose p-value lies below its `novelty_level`, where it has them, and a change is what Page and Hinkley's test finds
    in the log-densities.

    Parameters
    ----------
    model : StreamingModel
        The model that learns.
    columns : list of str, optional
        Names of the columns, for a model that does not know them.

    Attributes
    ----------
    n_rows, n_novel, n_changes : int
        Rows learned, rows that were novel, changes noticed.
    n_gaps : ndarray of shape (n_features,)
        Values that were not observed, by column.
    """

    def __init__(self, model: Any, columns: list[str] | None = None) -> None:
        self.model, self.columns = model, columns
        self.n_rows = self.n_novel = self.n_changes = 0
        self.n_gaps: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._log_likelihood, self._n_scored = 0.0, 0  # sum over the rows that had a log-density
        self._first_unreported = 0  # events of earlier rows were given out
        self._n_listed = 0  # events of the model's log that were looked at
        self._detector = page_hinkley.ChangeState()
        self._anomaly = NO_ANOMALY  # the latest one, which may go on

    def score_then_learn(self, X: Array, y: Any = None) -> PrequentialResult:
        """Learn rows, each scored just before."""
        first_row = int(self.model.n_samples_seen_) if self.model._is_started() else 0
        log_density = np.full(len(X), np.nan)
        events: list[Event] = []
        grown: list[Event] = []
        # Such a model scores each row within its own step of learning. The others are scored block by block, by the
        # model before the block.
        if isinstance(self.model, PrequentialModel):
            for part in _parts(0, len(X), WATCHED_ROWS):
                log_density[part] = self.model.prequential(X[part])
                recorded = self._recorded()
                # First: what has grown within this batch is one of its events.
                self._grow(recorded, events, grown, log_density[part], first_row + part.start)
                events += self._new_events(recorded, log_density[part], first_row + part.start)
        else:
            # Taken before the first row of the batch is learned: what is new afterwards is what this batch has changed.
            noticed = _changes_of(self.model)
            for part in _parts(self.n_rows, len(X), SCORED_ROWS):
                target = None if y is None else y[part]
                if self.model._is_started():
                    log_density[part] = scores(self.model, X[part], target)
                    events += self._novelties(X[part], first_row + part.start)
                self.model.partial_fit(X[part], target)
            events += self._changes(log_density, first_row, noticed)
        return self._counted(X, PrequentialResult(first_row, log_density, sorted(events, key=_by_row), grown))

    @property
    def mean_log_likelihood(self) -> float:
        """Mean log-density of the rows of the run, each before it was learned; NaN before there are any.

        Rows of the warm-up have none, and are not among them.
        """
        return self._log_likelihood / self._n_scored if self._n_scored else float("nan")

    def memory(self) -> dict[str, Any]:
        """What the monitor remembers, as JSON values."""
        return {
            "counts": [self.n_rows, self.n_novel, self.n_changes],
            "gaps": self.n_gaps.tolist(),
            "likelihood": [self._log_likelihood, self._n_scored],
            "first_unreported": self._first_unreported,
            "detector": list(self._detector),
            "anomaly": list(self._anomaly),
        }

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave.

        Raises
        ------
        StateFileError
            It is something else: the file was edited or damaged.
        """
        try:
            n_rows, n_novel, n_changes = map(restored_count, memory["counts"])
            gaps = np.array([restored_count(n) for n in memory["gaps"]], dtype=np.int64)
            total, n_scored = float(memory["likelihood"][0]), restored_count(memory["likelihood"][1])
            first_unreported = restored_count(memory["first_unreported"])
            numbers = page_hinkley.current_memory(np.array(memory["detector"], dtype=np.float64))
            detector = page_hinkley.ChangeState(*numbers.tolist())
            if not np.isfinite(total):
                raise ValueError("the log-likelihood is not finite")
            row, last, value, text = memory.get("anomaly", NO_ANOMALY)  # files of an earlier version have none
            anomaly = Anomaly(restored_count(row), restored_count(last), float(value), str(text))
        except (TypeError, LookupError, ValueError, ArithmeticError) as error:
            raise StateFileError(f"The counts of the run cannot be read ({error!r:.80})") from error
        self.n_rows, self.n_novel, self.n_changes = n_rows, n_novel, n_changes
        self.n_gaps, self._first_unreported, self._detector = gaps, first_unreported, detector
        self._log_likelihood, self._n_scored = total, n_scored
        self._anomaly = anomaly

    def replace_model(self, model: Any) -> None:
        """Go on with another model, such as the merger of this one with a second."""
        self.model = model
        # A merger counts the rows of both models: the events that it brings lie before that number and are not given
        # out again.
        self._first_unreported = int(model.n_samples_seen_) if model._is_started() else 0
        self._n_listed = 0
        self._anomaly = NO_ANOMALY

    # -- events -----------------------------------------------------------------------------------

    def _new_events(self, recorded: Sequence[Any], log_density: Array, first_row: int) -> list[Event]:
        """The events that the model recorded and that were not given out before.

        They may belong to rows of earlier batches: the rows of the warm-up are learned together at its end.
        """
        found = [event for event in recorded if _noticed(event) >= self._first_unreported]
        if found:
            self._first_unreported = max(map(_noticed, found)) + 1
        return [self._told(event, log_density, first_row) for event in found]

    def _grow(
        self, recorded: Sequence[Any], events: list[Event], grown: list[Event], log_density: Array, first_row: int
    ) -> None:
        """Tell anew of the latest anomaly if it has gone on: in place among events of this batch, or as grown."""
        before = self._anomaly
        if before == NO_ANOMALY:
            return
        now = [one for one in recorded if one.kind == "anomaly" and one.row == before.row]
        if not now or now[-1].last == before.last:
            return
        told = self._told(now[-1], log_density, first_row)
        for kept in (events, grown):
            for i, event in enumerate(kept):
                if event.kind == "anomaly" and event.row == told.row:
                    kept[i] = told
                    return
        grown.append(told)

    def _told(self, event: Any, log_density: Array, first_row: int) -> Event:
        """An event of the model with what can be said of it: last row, column to blame, and why."""
        if event.kind == "new_normal":
            return Event(event.row, event.kind, event.value, {"last": event.last})
        if event.kind != "anomaly":
            return Event(event.row, event.kind, event.value)
        text = self._anomaly.text
        if (event.row, event.value) != (self._anomaly.row, self._anomaly.value):
            start = max(event.row, first_row)
            # The row of the smallest p-value: the column is the one to blame there.
            strangest = start + int(np.argmin(log_density[start - first_row : event.last + 1 - first_row]))
            text = self._sentence(strangest, event.column)
        self._anomaly = Anomaly(event.row, event.last, event.value, text)
        details = {"last": event.last, "column": self._name(event.column)}
        return Event(event.row, event.kind, event.value, details | ({"text": text} if text else {}))

    def _sentence(self, row: int, column: int) -> str:
        """What a detector says of a row that it has just seen."""
        found = self.model._explain_seen(row) if hasattr(self.model, "_explain_seen") else None
        if found is None:
            return ""
        names = [self._name(j) for j in range(len(found.columns))]
        return str(found._replace(columns=names).sentence(column=column))

    def _name(self, column: int) -> str:
        """Name of a column; a model that has just begun does not know it yet."""
        names = getattr(self.model, "feature_names_in_", self.columns)
        return f"x{column}" if names is None else str(names[column])

    def _recorded(self) -> Sequence[Any]:
        """Events of the model, without those that were looked at before where its log counts them.

        To list the latest thousand takes as long as to learn a thousand rows, and most parts of a batch have none.
        """
        if not self.model._is_started():
            return ()
        log = getattr(self.model, "_monitor_", None)
        if log is None:
            return self.model.events_  # type: ignore[no-any-return]
        before, self._n_listed = self._n_listed, log.n_events
        return event_log.events(log, before)

    def _novelties(self, X: Array, first_row: int) -> list[Event]:
        """Rows whose p-value, before they are learned, lies below the model's level."""
        level = getattr(self.model, "novelty_level", None)
        if level is None or not isinstance(self.model, CalibratedModel):
            return []
        p = self.model.p_value(X)
        return [Event(first_row + int(i), "novelty", float(p[i])) for i in np.flatnonzero(p < level)]

    def _changes(self, log_density: Array, first_row: int, noticed: set[int] | None) -> list[Event]:
        if noticed is not None:
            rows = sorted((_changes_of(self.model) or set()) - noticed)
        else:
            # Rows of the warm-up have no score; a NaN would stay in the running mean of the test for ever.
            scored = np.flatnonzero(~np.isnan(log_density))
            self._detector, fired = page_hinkley.detect(page_hinkley.PageHinkley(), self._detector, log_density[scored])
            rows = (first_row + scored[fired]).tolist()
        inside = range(first_row, first_row + len(log_density))
        return [Event(row, "change", float(log_density[row - first_row]) if row in inside else np.nan) for row in rows]

    def _counted(self, X: Array, result: PrequentialResult) -> PrequentialResult:
        known = result.log_density[~np.isnan(result.log_density)]
        self._log_likelihood, self._n_scored = self._log_likelihood + float(known.sum()), self._n_scored + len(known)
        self.n_rows += len(X)
        self.n_gaps = np.isnan(X).sum(axis=0) + (self.n_gaps if len(self.n_gaps) else 0)
        self.n_novel += sum(event.kind in ("novelty", "anomaly") for event in result.events)
        self.n_changes += len(result.changes)
        return result


def scores(model: Any, X: Array, y: Any = None) -> Array:
    """Log-density of each row under a model; of its target given the other columns, for a model with a target."""
    if isinstance(model, DensityModel):
        return np.asarray(model.score_samples(X))
    if isinstance(model, ClassifyingModel):
        return _log_probability(model, X, y)
    return np.asarray(model.condition(X).log_density(y))


def _log_probability(model: Any, X: Array, y: Any) -> Array:
    """Log-probability of the labels; NaN for a label that the model has not seen."""
    column = {label: k for k, label in enumerate(model.classes_.tolist())}
    found = np.array([column.get(label, -1) for label in np.asarray(y).tolist()])
    # An unknown label takes the last column, index -1, for the moment; the line below puts NaN in its place.
    log_probability = model.predict_log_proba(X)[np.arange(len(X)), found]
    return np.where(found < 0, np.nan, log_probability)


def _changes_of(model: Any) -> set[int] | None:
    """Changes that a model with adaptive forgetting noticed; None for a model that looks for none."""
    if not hasattr(type(model), "changes_") or getattr(model, "forgetting", None) != "adaptive":
        return None
    return set(model.changes_.tolist()) if model._is_started() else set()


def _parts(n_before: int, n: int, size: int) -> list[slice]:
    """Slices of n rows that end where the number of all rows is a multiple of `size`.

    So a model is scored at the same rows however the stream was cut into batches.
    """
    ends = [*range(size - n_before % size, n, size), n]
    return [slice(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True) if stop > start]


def restored_count(value: Any) -> int:
    """A number of rows from a file, which must be one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _noticed(event: Any) -> int:
    """Row at which a model knew of an event: a new normal is known when it has lasted, at its last row."""
    return int(event.last if event.kind == "new_normal" else event.row)


def _by_row(event: Event) -> int:
    return event.row
