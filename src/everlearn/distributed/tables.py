"""Parquet and CSV files: which columns they have, and their rows in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, require
from everlearn.streams.sources.schema import MISSING

Array = NDArray[np.float64]
SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".csv.gz": "csv", ".csv.bz2": "csv", ".tsv": "csv"}
_BLOCK_BYTES = 1 << 20


class Batch(NamedTuple):
    """Rows (n, D), NaN where a cell is empty, and their targets if one was asked for."""

    X: Array
    y: NDArray[Any] | None


class Head(NamedTuple):
    """What a file says about itself: what each column holds, and the rows of its row groups (empty for CSV)."""

    columns: dict[str, str]
    row_groups: tuple[int, ...]


def kind_of(path: str) -> str | None:
    """The format that a file's name tells."""
    name = path.lower()
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)


def head_of(path: str) -> Head:
    """Columns and row groups of a file."""
    return _explained(path, _parquet_head if kind_of(path) == "parquet" else _csv_head)


def batches_of(
    path: str, row_groups: tuple[int, ...] | None, columns: Sequence[str], target: str | None, batch_rows: int
) -> Iterator[Batch]:
    """The rows of a file, or of some of its row groups, in their order."""
    wanted = [*columns] if target is None else [*columns, target]
    if kind_of(path) == "parquet":
        tables = _parquet_batches(path, row_groups, wanted, batch_rows)
    else:
        tables = _csv_batches(path, columns, wanted)
    pa = require("pyarrow", extra="cluster")
    try:
        for table in tables:
            yield Batch(_matrix(table, columns), None if target is None else _target(table, target))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _refusal(path, error) from error


def _explained(path: str, read: Any) -> Any:
    pa = require("pyarrow", extra="cluster")
    try:
        return read(path)
    except OSError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _refusal(path, error) from error


def _refusal(path: str, error: Exception) -> InputError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(f"The partition {path} cannot be read: {reason}. Repair the file, or leave it out by name.")


# -- Parquet ---------------------------------------------------------------------------------------


def _parquet_head(path: str) -> Head:
    pq = require("pyarrow.parquet", extra="cluster")
    with pq.ParquetFile(path) as file:
        groups = tuple(file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
        return Head({field.name: _content(field.type) for field in file.schema_arrow}, groups)


def _parquet_batches(
    path: str, row_groups: tuple[int, ...] | None, wanted: list[str], batch_rows: int
) -> Iterator[Any]:
    pq = require("pyarrow.parquet", extra="cluster")
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_rows, row_groups=row_groups, columns=wanted, use_threads=False)


# -- CSV -------------------------------------------------------------------------------------------


def _csv_head(path: str) -> Head:
    with _open_csv(path) as reader:
        columns = {field.name: _content(field.type) for field in reader.schema}
    if all(_is_number(name) for name in columns):
        raise InputError(
            f"The first line of {path} holds numbers, not names. Add a line with the names of its columns."
        )
    return Head(columns, ())


def _csv_batches(path: str, columns: Sequence[str], wanted: list[str]) -> Iterator[Any]:
    pa = require("pyarrow", extra="cluster")
    with _open_csv(path, include_columns=wanted, column_types=dict.fromkeys(columns, pa.float64())) as reader:
        yield from reader


def _open_csv(path: str, **convert: Any) -> Any:
    csv = require("pyarrow.csv", extra="cluster")
    missing = sorted({form for word in MISSING for form in (word, word.upper(), word.title())} | {"NaN"})
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(delimiter="\t" if path.lower().endswith(".tsv") else ","),
        convert_options=csv.ConvertOptions(null_values=missing, strings_can_be_null=False, **convert),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- columns ---------------------------------------------------------------------------------------


def _content(kind: Any) -> str:
    """What a column of an Arrow type holds: numbers (or nothing but gaps), text, times or something else."""
    types = require("pyarrow.types", extra="cluster")
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if any(is_number(kind) for is_number in numbers):
        return "numbers"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        return "text"
    return "times" if types.is_temporal(kind) else f"values of type {kind}"


def _matrix(table: Any, columns: Sequence[str]) -> Array:
    pa = require("pyarrow", extra="cluster")
    X = np.empty((table.num_rows, len(columns)))
    for j, name in enumerate(columns):
        X[:, j] = table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return X


def _target(table: Any, name: str) -> NDArray[Any]:
    values = table.column(name)
    if values.null_count:
        raise InputError(f"The target {name!r} is empty in {values.null_count} rows. Every row needs one.")
    return np.asarray(values.to_numpy(zero_copy_only=False))
