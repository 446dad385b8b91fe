"""Which partitions a source has, and what must be the same in all of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from everlearn.errors import InputError
from everlearn.streams.sources.arrow_files import TableFile
from everlearn.streams.sources.files import open_file
from everlearn.streams.sources.schema import Choice, Columns, NoRowsError, choose

# Which files of a folder are read; a file that is named or matches a pattern is recognised by its first bytes.
SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".csv", ".tsv", ".jsonl", ".ndjson")
_COMPRESSIONS = ("", ".gz", ".bz2", ".xz")
_NO_NUMBERS = ("text", "times", "lists")


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
        # Escaped: a folder may have brackets in its name.
        inside = glob.glob(os.path.join(glob.escape(item), "**"), recursive=True)
        endings = tuple(suffix + packed for suffix in SUFFIXES for packed in _COMPRESSIONS)
        found = sorted(path for path in inside if os.path.isfile(path) and path.lower().endswith(endings))
        what = f"The folder {item} holds no file that ends in {', '.join(SUFFIXES)}."
    else:
        found = sorted(glob.glob(item, recursive=True)) if glob.has_magic(item) else [item]
        what = f"No file matches {item!r}."
    if not found:
        raise InputError(what)
    return found


class Head(NamedTuple):
    """What a file says about itself: what each column holds (empty without rows), and the rows of its row groups."""

    kinds: dict[str, str]
    row_groups: tuple[int, ...]


def file_partitions(source: Any, choice: Choice, partition_rows: int) -> tuple[Columns, list[FilePartition]]:
    """Columns and partitions of files, all of which are opened once to see that they fit each other.

    Text files are partitions as they are, Parquet files in runs of row groups of about `partition_rows` rows.
    """
    # Every file is opened before any is learned: a column that is missing in the last one is found in seconds, not
    # after hours.
    heads = {path: head_of(path) for path in find_files(source)}
    with_rows = {path: head for path, head in heads.items() if head.kinds}
    if not with_rows:
        raise InputError(f"There is no row to learn in {len(heads)} partitions.")
    first = next(iter(with_rows))
    chosen = choose(first, with_rows[first].kinds, choice)
    for path, head in with_rows.items():
        check_columns(path, head.kinds, chosen, all_of_them=choice.columns is None)
    parts: list[FilePartition] = []
    for path, head in heads.items():
        runs = list(_runs(head.row_groups, partition_rows))
        # Between row groups only: a Parquet reader cannot start within one without decoding it from its beginning.
        if len(runs) > 1:
            parts += [FilePartition(path, run, sum(head.row_groups[i] for i in run)) for run in runs]
        else:
            rows = sum(head.row_groups) if head.row_groups else None
            parts.append(FilePartition(path, None, rows if head.kinds else 0))
    return chosen, parts


def head_of(path: str) -> Head:
    """Columns and row groups of a file; one that cannot be opened is an error before anything is learned."""
    try:
        file = open_file(path, Choice(time=""))
    except NoRowsError:
        return Head({}, ())
    except OSError as error:
        raise InputError(f"The partition {path} cannot be opened: {error}.") from error
    file.close()
    return Head(file.kinds, file.row_group_rows() if isinstance(file, TableFile) else ())


def _runs(row_groups: tuple[int, ...], partition_rows: int) -> Iterable[tuple[int, ...]]:
    run: list[int] = []
    rows = 0
    for i, n in enumerate(row_groups):
        # The cuts depend on the file and on `partition_rows` alone, not on the number of workers: so does the model.
        if run and rows + n > partition_rows:
            yield tuple(run)
            run, rows = [], 0
        run.append(i)
        rows += n
    if run:
        yield tuple(run)


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
        if found[column] in _NO_NUMBERS:
            raise InputError(f"The column {column!r} of the partition {name} holds {found[column]}, not numbers.")


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(str(name)) for name in names)
