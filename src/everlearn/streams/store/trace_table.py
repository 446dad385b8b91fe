"""Traces of sensors in a state file: a pyramid of means and extremes of a fixed grain and of ever longer ones.

A screen shows a few hundred points, whatever the time that they span. Each level joins cells of the one below, so that
any stretch of time is read in that many rows: a week of one row a second costs as much as an hour. Cells that are not
complete yet are in all levels, too; a commit writes them anew.
"""

from __future__ import annotations

import itertools
import math
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVELS = (1, 3, 15, 60, 180, 720, 4320)
"""Cells of the first level in one of each: of 20 seconds they make 1, 5 and 20 minutes, 1 and 4 hours, and a day."""
FIELDS = ("mean", "least", "most", "low", "high")
MAX_CELLS = 50_000
"""Cells of a level that are kept, the latest: eleven days of 20 seconds, half a year of 5 minutes."""
TRACE_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS trace (name TEXT, level INTEGER, cell INTEGER, row INTEGER NOT NULL, time REAL, "
    "data BLOB NOT NULL, PRIMARY KEY (name, level, cell)) WITHOUT ROWID"
)
_PUT = "REPLACE INTO trace (name, level, cell, row, time, data) VALUES (?, ?, ?, ?, ?, ?)"
_GET = "SELECT cell, row, time, data FROM trace WHERE name = ? AND level = ? AND cell BETWEEN ? AND ? ORDER BY cell"
_TRIM_EVERY = 1000  # cells of a level between two looks at whether there are too many, on average


class TraceCell(NamedTuple):
    """The sensors over one stretch of time, or of rows."""

    cell: int
    """Number of the stretch: in units of its level, counted from 1970 or from the first row."""
    row: int
    """Its last row."""
    time: float
    """Seconds since 1970 of its last row; NaN for a stream without times."""
    values: NDArray[np.float32]
    """Mean, least, most, and where 90 % were expected (low, high) of each sensor (5, D); NaN for none."""


def add_cells(connection: sqlite3.Connection, name: str, cells: Sequence[TraceCell]) -> None:
    """Write cells of the first level, and all cells above that they belong to.

    Parameters
    ----------
    connection : sqlite3.Connection
        A connection within a transaction.
    name : str
        Name of the model.
    cells : sequence of TraceCell
        The cells, each complete. One that is there already, as after a clock was set back, is joined with it.
    """
    for cell in cells:
        known = cells_of(connection.execute(_GET, (name, 1, cell.cell, cell.cell)))
        _put(connection, name, 1, joined([*known, cell]))
    written = {1: sorted({cell.cell for cell in cells})}
    for below, level in itertools.pairwise(LEVELS):
        factor = level // below
        written[level] = sorted({number // factor for number in written[below]})
        for number in written[level]:
            parts = cells_of(connection.execute(_GET, (name, below, number * factor, (number + 1) * factor - 1)))
            _put(connection, name, level, joined(parts)._replace(cell=number))
    # Last, so that no level is made of what another has lost.
    for level, numbers in written.items():
        # By a hash: cells of a slow stream may never be multiples.
        if any(zlib.crc32(f"{name} {level} {number}".encode()) % _TRIM_EVERY == 0 for number in numbers):
            _trim(connection, name, level)


def _trim(connection: sqlite3.Connection, name: str, level: int) -> None:
    # By their count and not by their numbers: one row with a time far in the future must not delete all others.
    connection.execute(
        "DELETE FROM trace WHERE name = ? AND level = ? AND cell <= "
        "(SELECT cell FROM trace WHERE name = ? AND level = ? ORDER BY cell DESC LIMIT 1 OFFSET ?)",
        (name, level, name, level, MAX_CELLS),
    )


def joined(cells: Sequence[TraceCell]) -> TraceCell:
    """One cell of several neighbours: means of the means, extremes of the extremes; it has the place of the last."""
    last = cells[-1]
    if len(cells) == 1:
        return last
    values = stacked(cells)
    seen = ~np.isnan(values)
    n = seen.sum(axis=0)
    mean = np.where(seen, values, 0.0).sum(axis=0) / np.maximum(n, 1)
    found = np.where(n > 0, mean, np.nan)
    found[1] = np.fmin.reduce(values[:, 1])
    found[2] = np.fmax.reduce(values[:, 2])
    times = [cell.time for cell in cells if not math.isnan(cell.time)]
    return TraceCell(last.cell, max(cell.row for cell in cells), max(times, default=math.nan), found.astype(np.float32))


def stacked(cells: Sequence[TraceCell], n_columns: int = 0) -> NDArray[np.float32]:
    """Values of all cells (n, 5, D), with `n_columns` sensors at least: those that appeared later were not there."""
    widest = max((cell.values.shape[1] for cell in cells), default=0)
    found = np.full((len(cells), len(FIELDS), max(widest, n_columns)), np.nan, dtype=np.float32)
    for values, cell in zip(found, cells, strict=True):
        values[:, : cell.values.shape[1]] = cell.values
    return found


def cells_of(rows: Any) -> list[TraceCell]:
    """Cells of rows (cell, row, time, data) of the table; raises ValueError for data that are none."""
    found = []
    for cell, row, time, data in rows:
        values = np.frombuffer(data, dtype="<f4").reshape(len(FIELDS), -1)
        found.append(TraceCell(cell, row, math.nan if time is None else time, values))
    return found


def _put(connection: sqlite3.Connection, name: str, level: int, cell: TraceCell) -> None:
    data = np.ascontiguousarray(cell.values, dtype="<f4").tobytes()
    moment = None if math.isnan(cell.time) else cell.time
    connection.execute(_PUT, (name, level, cell.cell, cell.row, moment, data))
