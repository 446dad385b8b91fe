"""How well a model foresees a stream: each row is scored before it is learned."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.monitoring import event_log as core
from everlearn.monitoring import page_hinkley as change

Array = NDArray[np.float64]

BLOCK = 256  # rows after which it is asked again what is usual, and a model that scores apart from learning is scored


class Foresight(NamedTuple):
    """What a batch was to the model before it was learned."""

    log_density: Array
    """Log-density of each row (of its target, for a model with one); NaN while the model was warming up."""
    novel: NDArray[np.bool_]
    """Whether a row was much less likely than its predecessors."""
    changes: list[int]
    """Rows, counted by the model from 0, at which a change was noticed."""


class Monitor:
    """Learns batches with a model and keeps count of what it foresaw.

    A row is novel when its log-density lies more than `drop` below the median of the latest `window` rows. Unlike the
    distance by which a mixture records its own novelties this is defined for every model, and it finds what is rare as
    well as what is far. Changes are those that the model notices itself, or Page and Hinkley's test on the
    log-density where a model notices none.

    Parameters
    ----------
    model : estimator
        The model that learns.
    drop : float, default=8.0
        Nats below the median at which a row counts as novel: 3000 times less likely than a usual row.
    window : int, default=1024
        Number of latest rows that say what is usual; asked again every 256 rows.
    min_rows : int, default=500
        Rows to have scored before any is called novel.

    Attributes
    ----------
    n_rows, n_novel, n_changes : int
        Rows learned, rows that were novel, changes noticed.
    n_gaps : ndarray of shape (n_features,)
        Values that were not observed, by column.
    """

    def __init__(self, model: Any, *, drop: float = 8.0, window: int = 1024, min_rows: int = 500) -> None:
        self.model = model
        self.drop = drop
        self.window = window
        self.min_rows = min_rows
        self.n_rows = self.n_novel = self.n_changes = 0
        self.n_gaps: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._recent: Array = np.empty(0)
        self._threshold = -np.inf
        self._detector = change.ChangeState()

    def learn(self, X: Array, y: Any = None) -> Foresight:
        """Learn the rows, each scored just before."""
        if hasattr(self.model, "prequential"):
            log_density, changes = self._learn_watchful(X)
        else:
            log_density, changes = self._score_and_learn(X, y)
        novel = self._novel(log_density)
        self.n_gaps = np.isnan(X).sum(axis=0) + (self.n_gaps if len(self.n_gaps) else 0)
        self.n_novel += int(novel.sum())
        self.n_changes += len(changes)
        return Foresight(log_density, novel, changes)

    @property
    def mean_log_likelihood(self) -> float:
        """Mean log-density of the latest rows before they were learned; NaN before there are any."""
        return float(self._recent.mean()) if len(self._recent) else float("nan")

    def memory(self) -> dict[str, Any]:
        """What the monitor remembers, as JSON values."""
        return {
            "counts": [self.n_rows, self.n_novel, self.n_changes],
            "gaps": self.n_gaps.tolist(),
            "recent": self._recent.tolist(),
            "threshold": self._threshold if np.isfinite(self._threshold) else None,
            "detector": list(self._detector),
        }

    def restore(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.n_rows, self.n_novel, self.n_changes = memory["counts"]
        self.n_gaps = np.array(memory["gaps"], dtype=np.int64)
        self._recent = np.array(memory["recent"], dtype=np.float64)
        self._threshold = -np.inf if memory["threshold"] is None else memory["threshold"]
        self._detector = change.ChangeState(*memory["detector"])

    # -- learning ---------------------------------------------------------------------------------

    def _learn_watchful(self, X: Array) -> tuple[Array, list[int]]:
        """With a model that scores as it learns, and records events."""
        n_before = self.model._monitor_.n_events if self.model._is_started() else 0
        log_density: Array = self.model.prequential(X)
        events = core.events(self.model._monitor_, since=n_before)
        return log_density, [event.row for event in events if event.kind == "change"]

    def _score_and_learn(self, X: Array, y: Any) -> tuple[Array, list[int]]:
        """Score some rows, then learn them: pieces of at most 256 rows, so that the score is not of an old model."""
        first_row, known = _rows_of(self.model), _noticed(self.model)
        log_density = np.full(len(X), np.nan)
        for part in _pieces(self.n_rows, len(X)):
            target = None if y is None else y[part]
            if self.model._is_started():
                log_density[part] = scores(self.model, X[part], target)
            self.model.partial_fit(X[part], target)
        if known is not None:
            return log_density, sorted(set(_noticed(self.model) or ()) - known)
        return log_density, self._detect(log_density, first_row)

    def _detect(self, log_density: Array, first_row: int) -> list[int]:
        scored = np.flatnonzero(~np.isnan(log_density))
        self._detector, fired = change.detect(change.PageHinkley(), self._detector, log_density[scored])
        rows: list[int] = (first_row + scored[fired]).tolist()
        return rows

    def _novel(self, log_density: Array) -> NDArray[np.bool_]:
        """Mark the novel rows, and go on with what is usual."""
        novel = np.zeros(len(log_density), dtype=bool)
        for part in _pieces(self.n_rows, len(log_density)):
            values = log_density[part]
            novel[part] = values < self._threshold
            self._recent = np.concatenate([self._recent, values[~np.isnan(values)]])[-self.window :]
            self.n_rows += len(values)
            if self.n_rows % BLOCK == 0 and len(self._recent) >= self.min_rows:
                self._threshold = float(np.median(self._recent)) - self.drop
        return novel


def scores(model: Any, X: Array, y: Any = None) -> Array:
    """Log-density of each row under a model; of its target given the other columns, for a model with a target."""
    if hasattr(model, "score_samples"):
        return np.asarray(model.score_samples(X))
    if hasattr(model, "classes_"):
        return _log_probability(model, X, y)
    return np.asarray(model.condition(X).log_density(y))


def _log_probability(model: Any, X: Array, y: Any) -> Array:
    """Log-probability of the labels; NaN for a label that the model has not met."""
    column = {label: k for k, label in enumerate(model.classes_.tolist())}
    found = np.array([column.get(label, -1) for label in np.asarray(y).tolist()])
    log_probability = model.predict_log_proba(X)[np.arange(len(X)), found]
    return np.where(found < 0, np.nan, log_probability)


def _rows_of(model: Any) -> int:
    return int(model.n_samples_seen_) if model._is_started() else 0


def _noticed(model: Any) -> set[int] | None:
    """Changes that a model with adaptive forgetting noticed; None for a model that looks for none."""
    if not hasattr(type(model), "changes_") or getattr(model, "forgetting", None) != "adaptive":
        return None
    return set(model.changes_.tolist()) if model._is_started() else set()


def _pieces(n_before: int, n: int) -> list[slice]:
    """Slices of n rows that end where the number of all rows is a multiple of BLOCK."""
    ends = [*range(BLOCK - n_before % BLOCK, n, BLOCK), n]
    return [slice(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True) if stop > start]
