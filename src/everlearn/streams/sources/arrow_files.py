"""Parquet and Arrow files, read in slices of rows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from everlearn.errors import InputError, require
from everlearn.streams.sources.parsing import Record, Rows, rows_of
from everlearn.streams.sources.schema import LOOK_ROWS, choose, kind_of
from everlearn.streams.sources.source import Position, without_infinities

TABLE_MAGIC = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
SLICE_ROWS = 8192
_DEEPEST = 4


class TableFile:
    """The rows of one Parquet file, Arrow file or Arrow stream.

    Parameters
    ----------
    path : str
        The file.
    columns : sequence of str, optional
        Names or patterns of the columns to read.
    target : str, optional
        The column to predict.
    """

    def __init__(self, path: str, *, columns: Sequence[str] | None = None, target: str | None = None) -> None:
        self.path = path
        self._arrow = require("pyarrow", "streams")
        self._place = f"{path}: row "
        self._row = 0
        head = next(self._tables(0), None)
        if head is None or head.num_rows == 0:
            raise InputError(f"{path} has no rows.")
        head = head.slice(0, LOOK_ROWS)
        kinds = {name: self._kind(name, head.column(name)) for name in dict.fromkeys(head.column_names)}
        self.columns = choose(path, kinds, columns, target)

    def told(self) -> int:
        """Bytes of the file that were read, about."""
        return int(self.size() * self._row / max(1, self._n_rows())) if self._row else 0

    def size(self) -> int:
        """Bytes on disk."""
        return os.path.getsize(self.path)

    def close(self) -> None:
        """Nothing stays open; nothing of it counts as read any more."""
        self._row = 0

    def batches(self, position: Position | None) -> Iterator[tuple[Rows, Position]]:
        """Rows from a position on, and the position behind them."""
        row = 0 if position is None else int(position["row"])
        waiting: list[Any] = []
        for table in self._tables(row):
            waiting.append(table)
            while sum(part.num_rows for part in waiting) >= SLICE_ROWS:
                whole = self._arrow.concat_tables(waiting)
                yield self._rows(whole.slice(0, SLICE_ROWS), row), {"row": row + SLICE_ROWS}
                row += SLICE_ROWS
                self._row, waiting = row, [whole.slice(SLICE_ROWS)]
        whole = self._arrow.concat_tables(waiting) if waiting else None
        if whole is not None and whole.num_rows:
            yield self._rows(whole, row), {"row": row + whole.num_rows}

    # -- values -----------------------------------------------------------------------------------

    def _kind(self, name: str, column: Any) -> str:
        types, kind = self._arrow.types, column.type
        if types.is_temporal(kind):
            return "times"
        if types.is_nested(kind):
            return "lists"
        return kind_of(name, column.to_pylist())

    def _rows(self, table: Any, first_row: int) -> Rows:
        columns = [table.column(name) for name in self.columns.all]
        if not all(self._is_number(column.type) for column in columns):
            values = zip(*(column.to_pylist() for column in columns), strict=True)
            return rows_of((Record(f"{self._place}{first_row + i}", v) for i, v in enumerate(values)), self.columns)
        arrays = [column.cast(self._arrow.float64(), safe=False).to_numpy() for column in columns]
        X = np.column_stack(arrays[: len(self.columns.names)])
        y = None if self.columns.target is None else arrays[-1].copy()
        return without_infinities(np.ascontiguousarray(X), y, self._place, first_row)

    def _is_number(self, kind: Any) -> bool:
        types = self._arrow.types
        return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))

    # -- reading ----------------------------------------------------------------------------------

    def _tables(self, start: int) -> Iterator[Any]:
        """Pieces of the table from a row on, nested columns as columns of their own."""
        with self._explained():
            for piece in self._pieces(start):
                table = self._arrow.Table.from_batches([piece])
                for _ in range(_DEEPEST):
                    table = table.flatten()
                yield table

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (self._arrow.lib.ArrowException, OSError) as error:
            raise InputError(f"{self.path} cannot be read; it is damaged or not what it seems: {error}.") from error

    def _pieces(self, start: int) -> Iterator[Any]:
        with open(self.path, "rb") as file:
            magic = file.read(4)
        return self._parquet(start) if magic == b"PAR1" else self._ipc(start, magic)

    def _parquet(self, start: int) -> Iterator[Any]:
        file = require("pyarrow.parquet", "streams").ParquetFile(self.path)
        top = {name.split(".")[0] for name in self.columns.all} if hasattr(self, "columns") else None
        with contextlib.closing(file):
            for group in range(file.metadata.num_row_groups):
                n = file.metadata.row_group(group).num_rows
                if start >= n:
                    start -= n
                    continue
                names = None if top is None else [name for name in file.schema_arrow.names if name in top]
                for piece in file.iter_batches(batch_size=SLICE_ROWS, row_groups=[group], columns=names):
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
                yield from (
                    piece.slice(skip + i, SLICE_ROWS) for i in range(0, max(piece.num_rows - skip, 0), SLICE_ROWS)
                )

    def _n_rows(self) -> int:
        with open(self.path, "rb") as file:
            if file.read(4) != b"PAR1":
                return self._row
        return int(require("pyarrow.parquet", "streams").read_metadata(self.path).num_rows)
