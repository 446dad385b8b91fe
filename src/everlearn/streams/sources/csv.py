"""CSV: text with or without a header, separated by comma, semicolon, tab or bar.

A block of clean rows is parsed by pyarrow where that is installed. A block with anything unusual in it is read cell by
cell, so that each bad row is found with its reason. The two parsers are equivalent: a block that both can read gives
the same numbers, bit for bit (a law that the tests check on random tables).
"""

from __future__ import annotations

import csv
from typing import Any, NamedTuple

import numpy as np

from everlearn.errors import InputError, MissingExtraError, require
from everlearn.streams.sources.parsing import Batch, Record, batch_of
from everlearn.streams.sources.schema import (
    ALL_NUMBERS,
    LOOK_ROWS,
    MISSING,
    Choice,
    Columns,
    NoRowsError,
    check_width,
    choose,
    kind_of,
    number,
    unique_names,
)

DELIMITERS = (",", ";", "\t", "|")
NO_TEXT = (b"PK\x03\x04", b"PAR1", b"ARROW1", b"%PDF", b"\x1f\x8b")
# A quote that never closes would otherwise take the rest of the file as one cell.
LONGEST_RECORD = 100  # lines of one record whose cells have line breaks
_ABSENT = -1  # place of a column that the file does not have
_BOM = b"\xef\xbb\xbf"


def decoded(data: bytes) -> str:
    """Text in UTF-8 or, where it is none, in Windows-1252, in which most other loggers write a degree sign."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


class CsvRecord(NamedTuple):
    """One record of a CSV text: its first line, counted from 1, and its cells; None where they cannot be told."""

    line: int
    cells: list[str] | None
    text: str


class CsvFormat:
    """How to read one CSV file, found from its beginning.

    Parameters
    ----------
    place : str
        What to call the file in messages.
    head : bytes
        Its beginning, in whole lines.
    choice : Choice
        Which columns are asked for.

    Attributes
    ----------
    columns : Columns
        What is read and what is left out.
    newline : bytes
        What ends a line.
    start, line : int
        Offset of the first row, and number of lines before it.
    """

    def __init__(self, place: str, head: bytes, choice: Choice = ALL_NUMBERS) -> None:
        self.place = place
        self.newline = b"\r" if b"\n" not in head and b"\r" in head else b"\n"
        self.start = len(_BOM) if head.startswith(_BOM) else 0
        self.line = 0
        self._skip_blank_lines(head)
        first = head[self.start : head.find(self.newline, self.start) + 1 or len(head)]
        self._check_text(first)
        # The first line is enough: a header or a row of numbers has the delimiter more often than anything else.
        self.delimiter = max(DELIMITERS, key=decoded(first).count)
        # Spreadsheets write semicolons exactly where the comma is taken by decimals.
        self.decimal_comma = self.delimiter == ";"
        self._judge_columns(head[self.start :], choice)

    def _skip_blank_lines(self, head: bytes) -> None:
        while (end := head.find(self.newline, self.start) + 1) and not head[self.start : end].strip():
            self.start, self.line = end, self.line + 1

    def _check_text(self, first: bytes) -> None:
        if not first.strip():
            raise InputError(f"{self.place} is empty: it has no header and no rows.")
        text = decoded(first)
        # A few characters that are no UTF-8 pass, as in a header in Latin-1 above plain numbers.
        if "\0" in text or text.count("\ufffd") > 4 or first.startswith(NO_TEXT):
            raise InputError(f"{self.place} is not a text file in UTF-8. Write the table as CSV first.")

    def _judge_columns(self, text: bytes, choice: Choice) -> None:
        """Read the header, and judge the columns by the first rows."""
        records, _ = self._records(text, self.line, final=True, limit=LOOK_ROWS + 1)
        header, rows = records[0].cells or [""], [record.cells for record in records[1:]]
        # A first line of numbers is a row: no header names its columns 1.5, 2.7 and so on.
        if all(number(cell, decimal_comma=self.decimal_comma) is not None for cell in header):
            rows.insert(0, header)
            names = unique_names([""] * len(header))
        else:
            names = unique_names(header)
            n_lines = records[1].line - 1 - self.line if len(records) > 1 else text.count(self.newline)
            self.start += sum(len(line) + 1 for line in text.split(self.newline, n_lines)[:n_lines])
            self.line += n_lines
        if choice.columns is None:
            check_width(self.place, len(names))  # before a hundred thousand columns are judged one by one
        samples = self._samples(names, [row for row in rows if row is not None])
        self.kinds = {name: kind_of(name, cells, decimal_comma=self.decimal_comma) for name, cells in samples.items()}
        self.columns = choose(self.place, self.kinds, choice, samples)
        self.width = len(names)
        places = {name: i for i, name in enumerate(names)}
        self.indices = [places.get(name, _ABSENT) for name in self.columns.read]
        # pyarrow takes one decimal mark a file; semicolons with decimal points exist too, and the first rows tell.
        comma = self.decimal_comma and any("," in cell for row in rows if row for cell in row)
        self._fast = FastParser.of(self, "," if comma else ".")

    def _samples(self, names: list[str], rows: list[list[str]]) -> dict[str, tuple[str, ...]]:
        """The first cells of each column."""
        if not rows:
            raise NoRowsError(f"{self.place} has a header ({', '.join(names)[:200]}) but no rows.")
        rows = [row for row in rows if len(row) == len(names)]
        if not rows:
            raise InputError(f"{self.place} has {len(names)} names in its header, but no row with as many cells.")
        return dict(zip(names, zip(*rows, strict=True), strict=True))

    def parse(self, block: bytes, line: int, *, final: bool) -> tuple[Batch, int]:
        """Rows of a block of whole lines, and how many of its bytes they took.

        Parameters
        ----------
        block : bytes
            Whole lines.
        line : int
            Number of lines before the block.
        final : bool
            Whether nothing more can follow; otherwise a record whose quotes are not closed at the end of the block is
            left for the next one.

        Returns
        -------
        batch : Batch
            What was read; its position is left to the caller.
        n_bytes : int
            Bytes that were read.
        """
        fast = self._fast.parse(block) if self._fast else None
        if fast is not None:
            return fast, len(block)
        records, used = self._records(block, line, final=final)
        return batch_of(map(self._record, records), self.columns, decimal_comma=self.decimal_comma), used

    def _record(self, record: CsvRecord) -> Record:
        place, text = f"{self.place}:{record.line}", record.text
        if record.cells is None:
            return Record(place, (), text, "quotes that do not close")
        if len(record.cells) != self.width:
            return Record(place, (), text, "too few or too many cells")
        return Record(place, ["" if i == _ABSENT else record.cells[i] for i in self.indices], text)

    def _records(
        self, block: bytes, line: int, *, final: bool, limit: int | None = None
    ) -> tuple[list[CsvRecord], int]:
        """Records that are not blank, and the bytes that they and blank lines took."""
        lines = block.split(self.newline)
        if not lines[-1]:
            lines.pop()
        records: list[CsvRecord] = []
        i = n_bytes = 0
        while i < len(lines) and (limit is None or len(records) < limit):
            n, cells = self._cells(lines, i)
            # The record goes on behind the block: it is left, and comes again as the beginning of the next one.
            if n == 0 and not final:
                return records, n_bytes
            n = max(n, 1)
            if lines[i].rstrip(b"\r"):
                records.append(CsvRecord(line + i + 1, cells, decoded(lines[i]).strip()))
            n_bytes += sum(map(len, lines[i : i + n])) + n * len(self.newline)
            i += n
        return records, min(n_bytes, len(block))

    def _cells(self, lines: list[bytes], i: int) -> tuple[int, list[str] | None]:
        """Lines and cells of the record that begins at line i; no lines if its quotes are open at the end."""
        text = decoded(lines[i]).rstrip("\r")
        # Hardly any line of numbers has quotes, and str.split is five times as fast as csv.reader.
        if '"' not in text:
            return 1, text.split(self.delimiter)
        for n in range(1, LONGEST_RECORD + 1):
            try:
                return n, next(csv.reader([text], delimiter=self.delimiter, strict=True))
            except csv.Error as error:
                if "unexpected end" not in str(error):
                    return 1, None
            if i + n == len(lines):
                return 0, None
            text += "\n" + decoded(lines[i + n]).rstrip("\r")
        # The line alone is bad, not the hundred that were looked at: reading goes on with the next line.
        return 1, None


class FastParser:
    """Parses blocks without anything unusual in them.

    Parameters
    ----------
    format : CsvFormat
        The format, whose columns are chosen.
    decimal_point : str
        Comma or point.
    """

    def __init__(self, format: CsvFormat, decimal_point: str) -> None:
        arrow, self._csv = require("pyarrow", "streams"), require("pyarrow.csv", "streams")
        self._invalid = arrow.ArrowInvalid
        self._columns: Columns = format.columns
        names = [str(i) for i in range(format.width)]
        self._read = {"column_names": names, "use_threads": False}
        self._parse = self._csv.ParseOptions(delimiter=format.delimiter)
        types: dict[str, Any] = {str(i): arrow.float64() for i in format.indices}
        if format.columns.labels:
            types[str(format.indices[len(format.columns.names)])] = arrow.string()
        if format.columns.time is not None:
            types[str(format.indices[-1])] = arrow.string()
        self._convert = self._csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            # The usual spellings; pyarrow compares exactly. A block with another one, such as N/a, goes to the slow
            # parser.
            null_values=sorted({form for word in MISSING for form in (word, word.upper(), word.title(), "NaN")}),
            strings_can_be_null=True,
            decimal_point=decimal_point,
        )

    @classmethod
    def of(cls, format: CsvFormat, decimal_point: str) -> FastParser | None:
        """The parser of a format; None without pyarrow, if lines end in an unusual way, or columns are absent."""
        try:
            plain = format.newline == b"\n" and _ABSENT not in format.indices
            return cls(format, decimal_point) if plain else None
        except MissingExtraError:
            return None

    def parse(self, block: bytes) -> Batch | None:
        """Rows of a block; None if there is anything in it that needs a closer look."""
        # An odd number of quotes in a line is a cell with a line break, or damage.
        if block.isspace() or not block or (b'"' in block and any(line.count(b'"') % 2 for line in block.split(b"\n"))):
            return None
        # One block: pyarrow infers nothing and reports nothing about rows that straddle two.
        options = self._csv.ReadOptions(**self._read, block_size=len(block) + 1)
        try:
            table = self._csv.read_csv(
                _buffer(block), read_options=options, parse_options=self._parse, convert_options=self._convert
            )
        except self._invalid:
            return None
        return self._batch([column.to_numpy() for column in table.itercolumns()])

    def _batch(self, values: list[Any]) -> Batch | None:
        n, columns = len(self._columns.names), self._columns
        X = np.empty((len(values[0]), n))
        for j, column in enumerate(values[:n]):
            X[:, j] = column
        y = None if columns.target is None else values[n]
        # The slow parser reads the block again and names the bad rows.
        if np.isinf(X).any():
            return None
        if y is not None and columns.labels:
            y = np.array([(label or "").strip() for label in y], dtype=object)
            if "" in y:
                return None
        elif y is not None and not np.isfinite(y).all():
            return None
        times = None
        if columns.time_format is not None:
            times = np.array([columns.time_format.seconds(value) for value in values[-1].tolist()], dtype=np.float64)
        return Batch(X, y, times=times)


def _buffer(block: bytes) -> Any:
    return require("pyarrow", "streams").py_buffer(block)
