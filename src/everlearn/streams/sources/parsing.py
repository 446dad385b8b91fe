"""Rows for a model out of records of any sort: numbers in columns, and what could not become a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.streams.sources.schema import Columns, number
from everlearn.streams.store.records import BadRow

Array = NDArray[np.float64]


class Rows(NamedTuple):
    """Rows to learn, with their targets where there is one, and those that cannot be learned."""

    X: Array
    y: NDArray[Any] | None
    bad: list[BadRow]


class Record(NamedTuple):
    """The values of the chosen columns in one record, or the reason why there are none."""

    place: str
    values: Sequence[Any] | str
    text: str = ""


def rows_of(records: Iterable[Record], columns: Columns, *, decimal_comma: bool = False) -> Rows:
    """Turn records into rows; a record that cannot become one is kept with its reason."""
    good: list[list[float]] = []
    kept: list[Record] = []
    labels: list[Any] = []
    bad: list[BadRow] = []
    for record in records:
        row = record.values if isinstance(record.values, str) else _row(record.values, columns, decimal_comma)
        if isinstance(row, str):
            bad.append(BadRow(record.place, row, record.text))
        else:
            good.append(row)
            kept.append(record)
            labels.append(record.values[-1])
    X = np.array(good, dtype=np.float64).reshape(-1, len(columns.names) + _is_number(columns))
    finite = ~np.isinf(X).any(axis=1)
    bad += [BadRow(kept[i].place, "an infinite number", kept[i].text) for i in np.flatnonzero(~finite)]
    X = X if finite.all() else X[finite]
    if columns.labels:
        chosen = [str(labels[i]).strip() for i in np.flatnonzero(finite)]
        return Rows(X, np.array(chosen, dtype=object), bad)
    if columns.target is not None:
        return Rows(np.ascontiguousarray(X[:, :-1]), X[:, -1].copy(), bad)
    return Rows(X, None, bad)


def _is_number(columns: Columns) -> bool:
    """Whether the target is a number, read with the others."""
    return columns.target is not None and not columns.labels


def _row(values: Sequence[Any], columns: Columns, decimal_comma: bool) -> list[float] | str:
    """The numbers of a record, the target's last; or the reason why they are no row."""
    if columns.labels:
        if values[-1] is None or not str(values[-1]).strip():
            return "no target"
        values = values[:-1]
    try:
        row: list[Any] = list(map(float, values))
    except (TypeError, ValueError, OverflowError):
        row = [number(value, decimal_comma=decimal_comma) for value in values]
        if None in row:
            return "text in a column of numbers"
    return "no target" if _is_number(columns) and row[-1] != row[-1] else row
