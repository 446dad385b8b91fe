"""Traces of the sensors for page and report: mean and extremes of short stretches of time, and what was expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from everlearn.streams.store.trace_table import FIELDS, TraceCell
from everlearn.typing import Array

GRAIN_SECONDS = 20.0
GRAIN_ROWS = 20  # where there are no times


class TracePoint(NamedTuple):
    """The sensors over one stretch of time; each array has one number a sensor, NaN for none."""

    row: int
    """Its last row."""
    time: float
    """Seconds since 1970 of its last row; NaN for a stream without times."""
    mean: Array
    least: Array
    most: Array
    low: Array
    """Where 90 % of the values are expected given the other sensors, at its last row."""
    high: Array

    def cell(self, number: int) -> TraceCell:
        """The point as the store keeps it, in single precision: a picture needs no more."""
        return TraceCell(number, self.row, self.time, np.array(self[2:], dtype=np.float32))

    @classmethod
    def of(cls, cell: TraceCell) -> TracePoint:
        """The point of a cell of the store."""
        return cls(cell.row, cell.time, *cell.values.astype(np.float64))

    def widened(self, n_columns: int) -> TracePoint:
        """The point with so many sensors: those that appeared later were not there."""
        if n_columns <= len(self.mean):
            return self
        missing = np.full(n_columns - len(self.mean), np.nan)
        return TracePoint(self.row, self.time, *(np.concatenate([array, missing]) for array in self[2:]))


class TraceRecorder:
    """Gathers rows into points of a fixed grain, whatever the batches were.

    Parameters
    ----------
    n_columns : int
        Number of sensors.
    """

    def __init__(self, n_columns: int) -> None:
        self._n_columns = n_columns
        self._clear()
        self._cell: int | None = None

    def _clear(self) -> None:
        D = self._n_columns
        self._count, self._sum = np.zeros(D), np.zeros(D)
        self._least, self._most = np.full(D, np.inf), np.full(D, -np.inf)

    def grow(self, n_columns: int) -> None:
        """Add sensors behind the others."""
        self._n_columns += n_columns
        fills = (0.0, 0.0, np.inf, -np.inf)
        arrays = (self._count, self._sum, self._least, self._most)
        self._count, self._sum, self._least, self._most = (
            np.concatenate([array, np.full(n_columns, fill)]) for array, fill in zip(arrays, fills, strict=True)
        )

    def cells(self, row: int, times: Array | None, n: int) -> Any:
        """Numbers of the stretches of time in which rows lie."""
        if times is None or np.isnan(times).all():
            return (row + np.arange(n)) // GRAIN_ROWS
        # A row without a time lies where the row before it does.
        # Never backwards: a clock that is set back would close a point that is open and begin an old one again.
        known = np.maximum.accumulate(np.where(np.isnan(times), -np.inf, times))
        return np.where(np.isfinite(known), known // GRAIN_SECONDS, 0).astype(np.int64)

    def add(self, X: Array) -> None:
        """Take rows of one stretch of time."""
        seen = ~np.isnan(X)
        self._count += seen.sum(axis=0)
        self._sum += np.where(seen, X, 0.0).sum(axis=0)
        self._least = np.minimum(self._least, np.where(seen, X, np.inf).min(axis=0))
        self._most = np.maximum(self._most, np.where(seen, X, -np.inf).max(axis=0))

    def close(self, row: int, time: float, low: Array, high: Array) -> TracePoint:
        """The point of the rows since the latest one."""
        some = self._count > 0
        mean = np.where(some, self._sum / np.maximum(self._count, 1), np.nan)
        least, most = (np.where(some, x, np.nan) for x in (self._least, self._most))
        self._clear()
        return TracePoint(row, time, mean, least, most, low, high)

    @property
    def cell(self) -> int | None:
        """The stretch of time that is being gathered."""
        return self._cell

    @cell.setter
    def cell(self, number: int | None) -> None:
        self._cell = number

    def memory(self) -> list[Any]:
        """All that is gathered, as JSON values."""
        arrays = (self._count, self._sum, self._least, self._most)
        return [self._cell, *([x if math.isfinite(x) else None for x in a.tolist()] for a in arrays)]

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave."""
        cell, *arrays = memory
        self._cell = None if cell is None else int(cell)
        fill = (0.0, 0.0, math.inf, -math.inf)
        found = [np.array([f if x is None else float(x) for x in a]) for a, f in zip(arrays, fill, strict=True)]
        self._count, self._sum, self._least, self._most = (a.reshape(self._n_columns) for a in found)


def thinned(points: Sequence[TracePoint], limit: int) -> list[TracePoint]:
    """At most `limit` points: neighbours are joined, and extremes stay extremes."""
    if len(points) <= limit:
        return list(points)
    # All at once: a week has 30,000 points, and a page that shows it waits for this.
    cuts = np.array([len(points) * i // limit for i in range(limit)])
    arrays = [np.array([getattr(point, name) for point in points]) for name in FIELDS]
    joined = [join(values, cuts) for values, join in zip(arrays, (_means, _least, _most, _means, _means), strict=True)]
    lasts = [points[i] for i in (*(cuts[1:] - 1).tolist(), -1)]
    return [TracePoint(last.row, last.time, *rows) for last, *rows in zip(lasts, *joined, strict=True)]


def _means(values: Array, cuts: Any) -> Array:
    """Means of the observed values of each bin, NaN where there is none."""
    seen = ~np.isnan(values)
    n = np.add.reduceat(seen.astype(np.float64), cuts)
    total = np.add.reduceat(np.where(seen, values, 0.0), cuts)
    return np.where(n > 0, total / np.maximum(n, 1.0), np.nan)


def _least(values: Array, cuts: Any) -> Array:
    return np.asarray(np.fmin.reduceat(values, cuts))


def _most(values: Array, cuts: Any) -> Array:
    return np.asarray(np.fmax.reduceat(values, cuts))
