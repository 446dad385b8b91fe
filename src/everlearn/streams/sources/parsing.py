"""Batches of rows out of records of any sort: numbers in columns, and what could not become a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.streams.sources.schema import Columns, number
from everlearn.streams.store.records import BadRow
from everlearn.typing import Array

Position = dict[str, Any]


class Batch(NamedTuple):
    """The next rows of a source, what could not be read, and where the source stands behind them."""

    X: Array
    """Rows (n, D), NaN where a value was not observed."""
    y: NDArray[Any] | None = None
    """Targets (n,), for a model that has one."""
    bad: Sequence[BadRow] = ()
    """Rows that cannot be learned."""
    position: Position | None = None
    """Where to begin to read what follows; None for as before."""
    times: Array | None = None
    """Seconds since 1970 (n,), NaN where unknown; None for a source without times."""
    notes: Sequence[str] = ()
    """What happened to the source meanwhile, for the person who watches."""
    grown: Sequence[str] = ()
    """Columns that appeared: from this batch on they are behind the others."""

    def part(self, start: int, stop: int) -> Batch:
        """The rows from `start` to before `stop`, with everything else."""
        if start == 0 and stop >= len(self.X):
            return self
        y = None if self.y is None else self.y[start:stop]
        return self._replace(X=self.X[start:stop], y=y, times=None if self.times is None else self.times[start:stop])


class Record(NamedTuple):
    """The values of one record in the order of `Columns.read`, or the reason why there are none."""

    place: str
    values: Sequence[Any]
    text: str = ""
    reason: str = ""


def empty_batch(columns: Columns, **fields: Any) -> Batch:
    """A batch without rows, to carry bad rows or notes."""
    return batch_of([], columns)._replace(**fields)


def batch_of(records: Iterable[Record], columns: Columns, *, decimal_comma: bool = False) -> Batch:
    """Turn records into rows; a record that cannot become one is kept with its reason."""
    rows: list[list[float]] = []
    labels: list[str] = []
    times: list[float] = []
    bad: list[BadRow] = []
    for record in records:
        row = record.reason or _numbers(record.values, columns, decimal_comma)
        if isinstance(row, str):
            bad.append(BadRow(record.place, row, record.text))
            continue
        rows.append(row)
        if columns.labels:
            labels.append(str(record.values[len(columns.names)]).strip())
        if columns.time_format is not None:
            times.append(columns.time_format.seconds(record.values[-1]))
    n_columns = len(columns.names) + (columns.target is not None and not columns.labels)
    X = np.array(rows, dtype=np.float64).reshape(-1, n_columns)
    if columns.labels:
        y: Any = np.array(labels, dtype=object)
    else:
        y = None if columns.target is None else X[:, -1].copy()
        X = X if columns.target is None else np.ascontiguousarray(X[:, :-1])
    return Batch(X, y, bad, times=np.array(times) if columns.time_format is not None else None)


def _numbers(values: Sequence[Any], columns: Columns, decimal_comma: bool) -> list[float] | str:
    """The numbers of a record, a numeric target last; or the reason why they are no row."""
    n = len(columns.names)
    if columns.labels and (values[n] is None or not str(values[n]).strip()):
        return "no target"
    wanted = values[: n + (columns.target is not None and not columns.labels)]
    try:
        # Nearly all records are numbers already; words for missing values and decimal commas cost a second look only
        # where they occur.
        row: list[Any] = list(map(float, wanted))
    except (TypeError, ValueError, OverflowError):
        row = [number(value, decimal_comma=decimal_comma) for value in wanted]
        if None in row:
            return "text in a column of numbers"
    # An infinite value makes means and covariances NaN for good.
    if any(map(math.isinf, row)):
        return "an infinite number"
    return "no target" if len(row) > n and math.isnan(row[-1]) else row


def without_infinities(batch: Batch, place: str, first_row: int) -> Batch:
    """Leave out the rows that hold an infinite number, or none for the target; a row's place is `place` and its number.

    The vectorised twin of the checks in `batch_of`, for tables that are arrays already.
    """
    unusable = np.isinf(batch.X).any(axis=1)
    if batch.y is not None and batch.y.dtype.kind == "f":
        unusable |= ~np.isfinite(batch.y)
    if not unusable.any():
        return batch
    bad = []
    for i in np.flatnonzero(unusable).tolist():
        no_target = batch.y is not None and batch.y.dtype.kind == "f" and np.isnan(batch.y[i])
        reason = "no target" if no_target and not np.isinf(batch.X[i]).any() else "an infinite number"
        bad.append(BadRow(f"{place}{first_row + i}", reason, str(batch.X[i].tolist())[:200]))
    kept = ~unusable
    y, times = (None if part is None else part[kept] for part in (batch.y, batch.times))
    return batch._replace(X=np.ascontiguousarray(batch.X[kept]), y=y, times=times, bad=[*batch.bad, *bad])
