"""How well a model foresees a stream: each row is scored before it is learned."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Foresight(NamedTuple):
    """What a batch was to the model before it was learned."""

    log_density: Array
    """Log-density of each row; NaN while the model was warming up."""
    novel: NDArray[np.bool_]
    """Whether a row was much less likely than its predecessors."""
    changes: list[int]
    """Numbers of the rows, counted from the beginning of the stream, at which the model noticed a change."""


class Monitor:
    """Learns batches with a model and keeps count of what it foresaw.

    A row is novel when its log-density lies more than `drop` below the median of the latest `window` rows.

    Parameters
    ----------
    model : estimator
        The model that learns, such as IncrementalGaussianMixture.
    drop : float, default=8.0
        Nats below the median at which a row counts as novel: 3000 times less likely than a usual row.
    window : int, default=4096
        Number of latest rows that say what is usual.
    min_rows : int, default=500
        Rows to have seen before any is called novel.

    Attributes
    ----------
    n_rows, n_novel, n_changes : int
        Rows learned, rows that were novel, changes noticed.
    n_gaps : ndarray of shape (n_features,)
        Values that were not observed, by column.
    """

    def __init__(self, model: Any, *, drop: float = 8.0, window: int = 4096, min_rows: int = 500) -> None:
        self.model = model
        self.drop = drop
        self.window = window
        self.min_rows = min_rows
        self.n_rows = self.n_novel = self.n_changes = 0
        self.n_gaps: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._recent: Array = np.empty(0)

    def learn(self, X: Array) -> Foresight:
        """Learn the rows, each scored just before."""
        log_density = self.model.prequential(X)
        changes = [event.row for event in self.model.events_ if event.kind == "change" and event.row >= self.n_rows]
        seen = Foresight(log_density, log_density < self._threshold(), changes)
        self.n_gaps = np.isnan(X).sum(axis=0) + (self.n_gaps if self.n_rows else 0)
        self.n_rows += len(X)
        self.n_novel += int(seen.novel.sum())
        self.n_changes += len(changes)
        self._recent = np.concatenate([self._recent, log_density[~np.isnan(log_density)]])[-self.window :]
        return seen

    @property
    def mean_log_likelihood(self) -> float:
        """Mean log-density of the latest rows before they were learned; NaN before there are any."""
        return float(self._recent.mean()) if len(self._recent) else float("nan")

    def _threshold(self) -> float:
        return float(np.median(self._recent)) - self.drop if len(self._recent) >= self.min_rows else -np.inf
