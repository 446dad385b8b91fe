"""Rows of numbers from a CSV file, in bounded memory.

Columns that hold text or times are recognised on the first rows and left out; rows that cannot be read
are left out and counted. What was left out, and why, can be asked afterwards.
"""

from __future__ import annotations

import csv
import datetime
import fnmatch
import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Self, TextIO

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "none", "nil", "-", "?"})
DELIMITERS = (",", ";", "\t", "|")
_TIME_NAMES = frozenset({"time", "timestamp", "date", "datetime", "ts", "epoch"})
_TIME_FORMS = (
    "%H:%M:%S",
    "%H:%M",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
)
_INDEX_NAMES = frozenset({"index", "id", "row", "column0", "unnamed: 0"})
_NO_TEXT = ("PK\x03\x04", "PAR1", "ARROW1", "%PDF")
_LINE_LIMIT = 1 << 20
_LOOK_ROWS = 1000


class CsvSource:
    r"""A CSV file as batches of float64 rows.

    Parameters
    ----------
    path : path-like
        The file: text, with or without a header, separated by comma, semicolon, tab or bar.
    columns : sequence of str, optional
        Names, or patterns such as ``temp*``, of the columns to read, in this order; all columns of numbers otherwise.
    batch_rows : int, default=4096
        Rows in a batch.

    Attributes
    ----------
    names : list of str
        The columns that are read.
    left_out : dict
        Reason by name for each column that is not.
    bad_rows : collections.Counter
        Number of rows left out, by reason; complete when the iteration is.
    first_bad : dict
        Line of the first such row, by reason.

    Raises
    ------
    InputError
        The file is empty or no table, or has no such columns.

    Examples
    --------
    >>> import os, tempfile
    >>> from everlearn.streams.csv import CsvSource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "sensors.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("time,rpm,temp\n2024-01-01,900,21.5\n2024-01-02,,22\n")
    ...     with CsvSource(path) as source:
    ...         rows = next(iter(source))
    >>> source.names, source.left_out
    (['rpm', 'temp'], {'time': 'times'})
    >>> rows
    array([[900. ,  21.5],
           [  nan,  22. ]])
    """

    def __init__(
        self, path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, batch_rows: int = 4096
    ) -> None:
        self.path = os.fspath(path)
        self.batch_rows = batch_rows
        self.bad_rows: Counter[str] = Counter()
        self.first_bad: dict[str, int] = {}
        self._file = open(path, encoding="utf-8-sig", errors="replace", newline="")  # noqa: SIM115
        try:
            self._open(columns)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def progress(self) -> tuple[int, int]:
        """Bytes read so far, and bytes in all."""
        descriptor = self._file.fileno()
        return os.lseek(descriptor, 0, os.SEEK_CUR), os.fstat(descriptor).st_size

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        """Yield the rows in batches; the file is read once."""
        rows = self._rows()
        while batch := list(itertools.islice(rows, self.batch_rows)):
            X = np.array([row for _, row in batch], dtype=np.float64)
            infinite = np.isinf(X).any(axis=1)
            for i in np.flatnonzero(infinite):
                self._leave_out(batch[i][0], "an infinite number")
            if not infinite.all():
                yield X[~infinite] if infinite.any() else X

    def _rows(self) -> Iterator[tuple[int, list[float]]]:
        """Line and numbers of each row; rows that have none are counted."""
        for line, cells in self._records:
            if len(cells) != self._width:
                self._leave_out(line, "too few or too many cells")
                continue
            chosen = [cells[i] for i in self._indices]
            try:
                yield line, list(map(float, chosen))
            except ValueError:
                row = [self._number(cell) for cell in chosen]
                if None in row:
                    self._leave_out(line, "text in a column of numbers")
                else:
                    yield line, row  # type: ignore[misc]

    def _leave_out(self, line: int, reason: str) -> None:
        self.bad_rows[reason] += 1
        self.first_bad.setdefault(reason, line)

    # -- the first look ---------------------------------------------------------------------------

    def _open(self, columns: Sequence[str] | None) -> None:
        first, before = self._first_line()
        delimiter = max(DELIMITERS, key=first.count)
        self._decimal_comma = delimiter == ";"
        records = _records(itertools.chain([first], _lines(self._file)), delimiter, before)
        line, header = next(records)
        head = list(itertools.islice(records, _LOOK_ROWS))
        if all(self._number(cell) is not None for cell in header):
            head.insert(0, (line, header))
            header = [""] * len(header)
        self._records = itertools.chain(head, records)
        self._choose(_named(header), [cells for _, cells in head], columns)

    def _first_line(self) -> tuple[str, int]:
        """The first line that is not blank, and how many are before it."""
        before, line = 0, self._file.readline(_LINE_LIMIT)
        while line and not line.strip():
            before, line = before + 1, self._file.readline(_LINE_LIMIT)
        if not line:
            raise InputError(f"{self.path} is empty: it has no header and no rows.")
        if "\0" in line or line.count("\ufffd") > 4 or line.startswith(_NO_TEXT):
            raise InputError(f"{self.path} is not a text file in UTF-8. Write the table as CSV first.")
        return line, before

    def _choose(self, header: list[str], head: list[list[str]], columns: Sequence[str] | None) -> None:
        if not head:
            raise InputError(f"{self.path} has a header ({', '.join(header)[:200]}) but no rows.")
        head = [cells for cells in head if len(cells) == len(header)]
        if not head:
            raise InputError(f"{self.path} has {len(header)} names in its header, but no row with as many cells.")
        kinds = {name: self._kind(name, [cells[i] for cells in head]) for i, name in enumerate(header)}
        if columns is None:
            self.names = [name for name in header if kinds[name] == "numbers"]
        else:
            self.names = self._asked_for(columns, header, kinds)
        self.left_out = {name: kind for name, kind in kinds.items() if name not in self.names}
        if not self.names:
            what = ", ".join(f"{name} ({kind})" for name, kind in self.left_out.items())
            raise InputError(f"{self.path} has no column of numbers: {what[:300]}. A model learns from numbers.")
        self._width = len(header)
        self._indices = [header.index(name) for name in self.names]

    def _asked_for(self, columns: Sequence[str], header: list[str], kinds: dict[str, str]) -> list[str]:
        chosen: list[str] = []
        for pattern in columns:
            found = [pattern] if pattern in header else fnmatch.filter(header, pattern)
            if not found:
                raise InputError(f"{self.path} has no column {pattern!r}. It has: {', '.join(header)[:300]}.")
            chosen += [name for name in found if name not in chosen]
        for name in chosen:
            if kinds[name] in ("text", "times", "nothing"):
                raise InputError(
                    f"The column {name!r} of {self.path} holds {kinds[name]}; a model learns from numbers."
                )
        return chosen

    def _kind(self, name: str, cells: list[str]) -> str:
        """What a column holds, judging by its first cells."""
        found = [self._number(cell) for cell in cells]
        numbers = [number for number in found if number is not None]
        if len(numbers) < 0.9 * len(found):
            texts = [cell for cell, number in zip(cells, found, strict=True) if number is None]
            return "times" if all(map(_is_time, texts)) else "text"
        observed = [number for number in numbers if not math.isnan(number)]
        if not observed:
            return "nothing"
        steps = {b - a for a, b in itertools.pairwise(observed)}
        if name.lower() in _TIME_NAMES and all(step >= 0 for step in steps):
            return "rising times"
        return "row numbers" if name.lower() in _INDEX_NAMES and steps == {1.0} else "numbers"

    def _number(self, cell: str) -> float | None:
        """The number in a cell, NaN where it is empty, None where it holds something else."""
        text = cell.strip()
        if text.lower() in MISSING:
            return math.nan
        try:
            return float(text.replace(",", ".") if self._decimal_comma else text)
        except ValueError:
            return None


def _lines(file: TextIO) -> Iterator[str]:
    """Lines of bounded length; the rest of a longer one is dropped."""
    while line := file.readline(_LINE_LIMIT):
        yield line
        while len(line) == _LINE_LIMIT and line[-1] not in "\r\n":
            line = file.readline(_LINE_LIMIT)


def _records(lines: Iterable[str], delimiter: str, before: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each record that is not blank; no cells where it cannot be split."""
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = [""]
        else:
            if not cells:
                continue
        yield before + reader.line_num, cells


def _named(header: list[str]) -> list[str]:
    """Names of all columns, each once."""
    names: list[str] = []
    for i, cell in enumerate(header):
        name = cell.strip() or f"column{i}"
        names.append(name if name not in names else f"{name}.{i}")
    return names


def _is_time(cell: str) -> bool:
    text = cell.strip()
    for form in _TIME_FORMS:
        try:
            datetime.datetime.strptime(text, form)
        except ValueError:
            continue
        return True
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
