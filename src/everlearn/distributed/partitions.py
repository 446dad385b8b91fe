"""Which partitions a source has, and what must be the same in all of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from everlearn.distributed.tables import SUFFIXES, Head, head_of, kind_of
from everlearn.errors import InputError
from everlearn.streams.sources.schema import Columns


class FilePartition(NamedTuple):
    """A file, or some row groups of a Parquet file, with the rows that its footer promises."""

    path: str
    row_groups: tuple[int, ...] | None
    rows: int | None

    @property
    def name(self) -> str:
        """What errors and reports call it."""
        if self.row_groups is None:
            return self.path
        first, last = self.row_groups[0], self.row_groups[-1]
        return f"{self.path}[{first}]" if first == last else f"{self.path}[{first}-{last}]"


def find_files(source: Any) -> list[str]:
    """Files that a path, folder, pattern or a sequence of these stands for, in their order."""
    sources = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(sources, Iterable):
        raise InputError(
            f"source must be files (a path, a folder, a pattern such as 'day-*.parquet', or a list of them) or a Dask "
            f"collection; got a {type(source).__name__}."
        )
    files = [file for item in sources for file in _files_of(os.fspath(item))]
    if not files:
        raise InputError("source names no file.")
    twice = next((file for file in files if files.count(file) > 1), None) if len(set(files)) < len(files) else None
    if twice:
        raise InputError(f"source names the file {twice} twice: its rows would count twice.")
    return files


def _files_of(item: str) -> list[str]:
    if os.path.isdir(item):
        inside = glob.glob(os.path.join(glob.escape(item), "**"), recursive=True)
        found = sorted(path for path in inside if os.path.isfile(path) and kind_of(path))
        what = f"The folder {item} holds no file that ends in {', '.join(SUFFIXES)}."
    else:
        found = sorted(glob.glob(item, recursive=True)) if glob.has_magic(item) else [item]
        what = f"No file matches {item!r}."
    if not found:
        raise InputError(what)
    for path in found:
        _check_file(path)
    return found


def _check_file(path: str) -> None:
    if not os.path.isfile(path):
        raise InputError(f"There is no file {path}.")
    if kind_of(path) is None:
        raise InputError(f"The format of {path} is not known: its name must end in {', '.join(SUFFIXES)}.")


def partitions_of(files: Sequence[str], heads: Sequence[Head], partition_rows: int) -> list[FilePartition]:
    """CSV files as they are; Parquet files in runs of row groups of about `partition_rows` rows."""
    parts: list[FilePartition] = []
    for path, head in zip(files, heads, strict=True):
        runs = list(_runs(head.row_groups, partition_rows))
        if len(runs) > 1:
            parts += [FilePartition(path, run, sum(head.row_groups[i] for i in run)) for run in runs]
        else:
            parts.append(FilePartition(path, None, sum(head.row_groups) if kind_of(path) == "parquet" else None))
    return parts


def _runs(row_groups: tuple[int, ...], partition_rows: int) -> Iterable[tuple[int, ...]]:
    run: list[int] = []
    rows = 0
    for i, n in enumerate(row_groups):
        if run and rows + n > partition_rows:
            yield tuple(run)
            run, rows = [], 0
        run.append(i)
        rows += n
    if run:
        yield tuple(run)


def heads_of(files: Sequence[str]) -> list[Head]:
    """What each file says about itself; one that cannot be opened is an error before anything is learned."""
    heads = []
    for path in files:
        try:
            heads.append(head_of(path))
        except OSError as error:
            raise InputError(f"The partition {path} cannot be opened: {error}.") from error
    return heads


def contents_of(frame: Any) -> dict[str, str]:
    """What each column of a data frame holds."""
    kinds = {"i": "numbers", "u": "numbers", "f": "numbers", "b": "numbers", "M": "times", "m": "times"}
    return {name: kinds.get(getattr(dtype, "kind", "O"), "text") for name, dtype in frame.dtypes.items()}


def check_columns(name: str, found: dict[str, str], chosen: Columns, *, all_of_them: bool) -> None:
    """Refuse a partition that lacks a column, holds something else in it, or has columns that others have not."""
    missing = [column for column in chosen.all if column not in found]
    unknown = [column for column in found if column not in chosen.all and column not in chosen.left_out]
    if missing or (unknown and all_of_them):
        faults = [f"lacks {_names(missing)}"] * bool(missing) + [f"has {_names(unknown)} besides"] * bool(unknown)
        raise InputError(
            f"The partition {name} has other columns than the first: it {' and '.join(faults)}. "
            "Name the columns that all have with columns=."
        )
    for column in chosen.names:
        if found[column] != "numbers":
            raise InputError(f"The column {column!r} of the partition {name} holds {found[column]}, not numbers.")


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(str(name)) for name in names)
