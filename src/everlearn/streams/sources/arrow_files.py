"""Parquet and Arrow files, read in slices of rows."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from everlearn.errors import InputError, require
from everlearn.streams.sources.parsing import Batch, Position, Record, batch_of, without_infinities
from everlearn.streams.sources.schema import ALL_NUMBERS, LOOK_ROWS, Choice, NoRowsError, choose, kind_of
from everlearn.typing import Array

TABLE_MAGIC = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
SLICE_ROWS = 8192
_DEEPEST = 4  # levels of nested columns that become columns of their own


class TableFile:
    """The rows of one Parquet file, Arrow file or Arrow stream.

    Parameters
    ----------
    path : str
        The file.
    choice : Choice
        Which columns are asked for.
    row_groups : sequence of int, optional
        The row groups of a Parquet file to read; all of them by default.
    slice_rows : int, optional
        Most rows of a batch; 8192 by default.
    """

    def __init__(
        self,
        path: str,
        choice: Choice = ALL_NUMBERS,
        *,
        row_groups: Sequence[int] | None = None,
        slice_rows: int | None = None,
    ) -> None:
        self.path = path
        self._arrow = require("pyarrow", "streams")
        self._place = f"{path}: row "
        self._row_groups, self._slice_rows = row_groups, slice_rows or SLICE_ROWS
        self._row = 0
        with self._explained():
            # Columns are judged by the first rows, as those of CSV and JSON are, and not by the types of the file
            # alone: a column of whole numbers may count the rows.
            head = next(self._tables(0), None)
            if head is None or head.num_rows == 0:
                raise NoRowsError(f"{path} has no rows.")
            head = head.slice(0, LOOK_ROWS)
            twice = [name for name, n in Counter(head.column_names).items() if n > 1]
            if twice:
                raise InputError(f"{path} has more than one column {twice[0]!r:.60}. Give each a name of its own.")
            found = {name: head.column(name) for name in head.column_names}
            samples = {name: self._values(column) for name, column in found.items()}
            self.kinds = {name: self._kind(name, column, samples[name]) for name, column in found.items()}
        self.columns = choose(path, self.kinds, choice, samples)

    def bytes_read(self) -> int:
        """Bytes of the file that were read, about: by the share of its rows."""
        return int(self.size() * self._row / max(1, self._n_rows())) if self._row else 0

    def size(self) -> int:
        """Bytes on disk."""
        return os.path.getsize(self.path)

    def row_group_rows(self) -> tuple[int, ...]:
        """Rows of each row group of a Parquet file; empty for Arrow files, which have none."""
        with open(self.path, "rb") as file:
            if file.read(4) != b"PAR1":
                return ()
        footer = require("pyarrow.parquet", "streams").read_metadata(self.path)
        return tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups))

    def close(self) -> None:
        """Begin to count the bytes read from zero; no file stays open between two batches."""
        self._row = 0

    def batches(self, position: Position | None = None) -> Iterator[Batch]:
        """Batches from a position on."""
        row = 0 if position is None else int(position["row"])
        waiting: list[Any] = []
        with self._explained():
            for table in self._tables(row):
                waiting.append(table)
                # Batches are cut at multiples of the slice, whatever the row groups: the same rows come in the same
                # batches when a file was written with other groups, and small groups do not make small batches.
                while sum(part.num_rows for part in waiting) >= self._slice_rows:
                    whole = self._arrow.concat_tables(waiting)
                    yield self._batch(whole.slice(0, self._slice_rows), row)
                    row += self._slice_rows
                    # A slice is a view: nothing is copied here.
                    self._row, waiting = row, [whole.slice(self._slice_rows)]
            whole = self._arrow.concat_tables(waiting) if waiting else None
            if whole is not None and whole.num_rows:
                yield self._batch(whole, row)

    # -- values -----------------------------------------------------------------------------------

    def _kind(self, name: str, column: Any, values: list[Any]) -> str:
        types, kind = self._arrow.types, column.type
        if types.is_temporal(kind):
            return "times"
        if types.is_nested(kind):
            return "lists"
        return kind_of(name, values)

    def _values(self, column: Any) -> list[Any]:
        """The values of a column as Python's own; times as seconds since 1970, or as text with their zone."""
        types = self._arrow.types
        if types.is_temporal(column.type):
            if types.is_timestamp(column.type) or types.is_date(column.type):
                # Microseconds: Python's datetime has no nanoseconds.
                zone = getattr(column.type, "tz", None)
                values = _moments(column.cast(self._arrow.timestamp("us", zone), safe=False))
                return [None if value is None else value.isoformat() for value in values]
            return [None if value is None else str(value) for value in _moments(column)]
        values = column.to_pylist()
        return [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]

    def _batch(self, table: Any, first_row: int) -> Batch:
        """One slice of the table as rows; columns of plain numbers are not taken apart cell by cell."""
        position = {"row": first_row + table.num_rows}
        columns = [self._column(table, name) for name in self.columns.all]
        times = self._times(table)
        if all(self._is_number(column.type) for column in columns):
            arrays = [column.cast(self._arrow.float64(), safe=False).to_numpy() for column in columns]
            X = np.ascontiguousarray(np.column_stack(arrays[: len(self.columns.names)]))
            y = None if self.columns.target is None else arrays[-1].copy()
            return without_infinities(Batch(X, y, (), position, times), self._place, first_row)
        rows = zip(*(self._values(self._column(table, name)) for name in self.columns.read), strict=True)
        records = (Record(f"{self._place}{first_row + i}", values) for i, values in enumerate(rows))
        return batch_of(records, self.columns)._replace(position=position)

    def _column(self, table: Any, name: str) -> Any:
        """A column of the table; nulls for one that it does not have."""
        if name in table.column_names:
            return table.column(name)
        return self._arrow.chunked_array([self._arrow.nulls(table.num_rows, self._arrow.float64())])

    def _times(self, table: Any) -> Array | None:
        how = self.columns.time_format
        if how is None:
            return None
        column = table.column(self.columns.time)
        types = self._arrow.types
        if types.is_timestamp(column.type) or types.is_date(column.type):
            moments = column.cast(self._arrow.timestamp("us"), safe=False)
            return moments.cast(self._arrow.int64()).cast(self._arrow.float64(), safe=False).to_numpy() / 1e6
        return np.array([how.seconds(value) for value in self._values(column)], dtype=np.float64)

    def _is_number(self, kind: Any) -> bool:
        types = self._arrow.types
        return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))

    # -- reading ----------------------------------------------------------------------------------

    def _tables(self, start: int) -> Iterator[Any]:
        """Pieces of the table from a row on, nested columns as columns of their own."""
        with self._explained():
            for piece in self._pieces(start):
                # Arrow reads lengths and offsets of texts and lists from the file as they are: without this a damaged
                # file could make it read beyond its memory.
                piece.validate(full=True)
                table = self._arrow.Table.from_batches([piece])
                for _ in range(_DEEPEST):
                    table = table.flatten()
                yield table

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        # MemoryError is a length in the file that no file of this size can have; UnicodeDecodeError a column's name;
        # ArithmeticError a decimal number whose scale is not one.
        except (self._arrow.lib.ArrowException, OSError, MemoryError, UnicodeDecodeError, ArithmeticError) as error:
            # pyarrow calls a damaged footer an OSError too, but only the system's own errors have a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise InputError(f"{self.path} cannot be read; it is damaged or not what it seems: {error}.") from error

    def _pieces(self, start: int) -> Iterator[Any]:
        with open(self.path, "rb") as file:
            magic = file.read(4)
        return self._parquet(start) if magic == b"PAR1" else self._ipc(start, magic)

    def _parquet(self, start: int) -> Iterator[Any]:
        file = require("pyarrow.parquet", "streams").ParquetFile(self.path)
        # Only the columns that are needed are read from the disk; parts of nested ones by the column at the top. While
        # the columns are being chosen, there is no `columns` yet, and all are read.
        top = {name.split(".")[0] for name in self.columns.read} if hasattr(self, "columns") else None
        with contextlib.closing(file):
            groups = range(file.metadata.num_row_groups) if self._row_groups is None else self._row_groups
            for group in groups:
                n = file.metadata.row_group(group).num_rows
                # A row group before the start is passed over without decoding it.
                if start >= n:
                    start -= n
                    continue
                names = None if top is None else [name for name in file.schema_arrow.names if name in top]
                # One thread: several partitions or models may be learned beside this one.
                pieces = file.iter_batches(self._slice_rows, row_groups=[group], columns=names, use_threads=False)
                for piece in pieces:
                    skip = min(start, piece.num_rows)
                    start -= skip
                    yield piece.slice(skip)

    def _ipc(self, start: int, magic: bytes) -> Iterator[Any]:
        ipc = require("pyarrow.ipc", "streams")
        with self._arrow.memory_map(self.path) as file:
            reader = ipc.open_file(file) if magic == b"ARRO" else ipc.open_stream(file)
            pieces = map(reader.get_batch, range(reader.num_record_batches)) if magic == b"ARRO" else iter(reader)
            for piece in pieces:
                skip = min(start, piece.num_rows)
                start -= skip
                size = self._slice_rows
                yield from (piece.slice(skip + i, size) for i in range(0, max(piece.num_rows - skip, 0), size))

    def _n_rows(self) -> int:
        return sum(self.row_group_rows()) or self._row


def _moments(column: Any) -> list[Any]:
    """Times and durations as Python's own; None where Python cannot say them, as in the year 30,000."""
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError, LookupError):
        found = [_moment(value) for value in column]
    return found


def _moment(value: Any) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError, LookupError):  # the last for a time zone that nobody knows
        return None
