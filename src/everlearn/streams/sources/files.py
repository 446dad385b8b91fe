"""Rows from files: CSV, JSON lines, Parquet and Arrow; compressed, many at once, growing, or standard input."""

from __future__ import annotations

import glob
import gzip
import os
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Protocol

from everlearn.errors import InputError
from everlearn.streams.sources.arrow_files import TABLE_MAGIC, TableFile
from everlearn.streams.sources.csv import CsvFormat
from everlearn.streams.sources.jsonl import JsonFormat, parsed
from everlearn.streams.sources.parsing import Rows, rows_of
from everlearn.streams.sources.schema import Columns
from everlearn.streams.sources.source import Batch, Position, Source
from everlearn.streams.store.records import BadRow

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 24
HEAD_BYTES = 1 << 18
POLL_SECONDS = 0.2
_GZIP = b"\x1f\x8b"
_PRINT_BYTES = 4096


class TextFormat(Protocol):
    """How to read the lines of a file."""

    columns: Columns
    newline: bytes
    start: int
    line: int

    def parse(self, block: bytes, line: int, *, final: bool) -> tuple[Rows, int]:
        """Rows of a block of whole lines, and how many of its bytes they took."""


class FileSource(Source):
    """Files as one stream, in the order of their names; what they hold is recognised from their first bytes.

    Parameters
    ----------
    paths : sequence of str
        Paths, patterns such as ``logs/*.csv.gz``, or ``-`` for standard input.
    columns : sequence of str, optional
        Names or patterns of the columns to read.
    target : str, optional
        The column to predict.
    follow : bool, default=False
        Whether to wait for more at the end of the last file, and for new files.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        follow: bool = False,
    ) -> None:
        self._patterns = list(paths)
        self.live = follow
        self._found = self._expand()
        self._choice: dict[str, Any] = {"columns": columns, "target": target}
        self.place = self._found[0] if len(self._found) == 1 else f"{len(self._found)} files"
        self.replayable = self._found != ["-"]
        if "-" in self._found and len(self._found) > 1:
            raise InputError("Standard input (-) cannot be read together with files.")
        self._stdin = None if self.replayable else TextFile("standard input", StandardInput(), self._choice, None)
        first = self._open(self._found[0])
        self.columns = first.columns
        first.close()
        self._choice["columns"] = self.columns.names
        self._done, self._current = 0, first

    def close(self) -> None:
        """Close the file that is open."""
        self._current.close()

    def progress(self) -> tuple[int, int] | None:
        """Bytes of the files read so far, and in all."""
        if not self.replayable:
            return None
        sizes = [os.path.getsize(path) for path in self._found if os.path.exists(path)]
        return self._done + self._current.told(), sum(sizes)

    def batches(self, position: Position | None = None) -> Iterator[Batch]:
        """Batches of all files from a position on."""
        after = "" if position is None else str(position["file"])
        if position is not None and self.replayable:
            yield from self._batches_of(after, position)
        while True:
            paths = [path for path in self._expand() if path > after or after == "" or not self.replayable]
            for path in paths:
                after = path
                yield from self._batches_of(path, None)
            if not self.live or not self.replayable:
                return
            time.sleep(POLL_SECONDS)

    def _batches_of(self, path: str, position: Position | None) -> Iterator[Batch]:
        self._current = self._open(path)
        try:
            for rows, place in self._current.batches(position):
                yield Batch(rows.X, rows.y, rows.bad, {"file": path, **place})
        finally:
            self._done += self._current.size()
            self._current.close()

    def _open(self, path: str) -> Any:
        """The file, by what it holds."""
        if self._stdin is not None:
            return self._stdin
        _check_readable(path)
        with open(path, "rb") as file:
            magic = file.read(8)
        if magic.startswith(TABLE_MAGIC):
            return TableFile(path, **self._choice)
        later = (lambda: self._is_last(path)) if self.live else None
        if magic.startswith(_GZIP):
            return TextFile(path, GzipBytes(path), self._choice, None)
        return TextFile(path, FileBytes(path), self._choice, later)

    def _is_last(self, path: str) -> bool:
        return self._expand()[-1] <= path

    def _expand(self) -> list[str]:
        found: list[str] = []
        for pattern in self._patterns:
            is_pattern = any(mark in pattern for mark in "*?[") and not os.path.exists(pattern)
            matches = sorted(glob.glob(pattern, recursive=True)) if is_pattern else [pattern]
            found += [path for path in matches if path not in found and not (is_pattern and os.path.isdir(path))]
        if not found:
            raise InputError(f"No file matches {', '.join(self._patterns)}.")
        return sorted(found)


def _check_readable(path: str) -> None:
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder. Name the files in it, for example '{os.path.join(path, '*.csv')}'.")
    if not os.path.exists(path):
        raise InputError(f"There is no file {path}.")


# -- bytes -----------------------------------------------------------------------------------------


class FileBytes:
    """The bytes of a plain file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: BinaryIO = open(path, "rb")  # noqa: SIM115

    def read(self, n: int) -> tuple[bytes, bool]:
        """Up to n bytes, and whether that is all there is now."""
        data = self.file.read(n)
        return data, len(data) < n

    def seek(self, offset: int) -> None:
        """Go to an offset."""
        self.file.seek(offset)

    def told(self) -> int:
        """Bytes of the file on disk that were read."""
        return self.file.tell() if not self.file.closed else 0

    def size(self) -> int:
        """Bytes on disk."""
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class GzipBytes(FileBytes):
    """The bytes in a gzip file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._packed = self.file
        self.file = gzip.GzipFile(fileobj=self._packed)  # type: ignore[assignment]

    def read(self, n: int) -> tuple[bytes, bool]:
        """Up to n bytes, and whether that is all there is."""
        try:
            return super().read(n)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self.path} is damaged or truncated: {error}.") from error

    def told(self) -> int:
        """Bytes of the file on disk that were read."""
        return self._packed.tell() if not self._packed.closed else 0

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._packed.close()


class StandardInput:
    """Standard input: bytes as they come, the first of them twice."""

    def __init__(self) -> None:
        self._file: Any = sys.stdin.buffer
        self._begun = b""
        self._keep = True

    def read(self, n: int) -> tuple[bytes, bool]:
        """Up to n bytes as soon as there are any, and whether it has ended."""
        if not self._keep and self._begun:
            data, self._begun = self._begun[:n], self._begun[n:]
            return data, False
        data = self._file.read1(n)
        if self._keep:
            self._begun += data
        return data, not data

    def seek(self, offset: int) -> None:
        """Begin again; only what was read before the first call is there twice."""
        self._keep = False
        self._begun = self._begun[offset:]

    def told(self) -> int:
        """Nothing is known of how much there is."""
        return 0

    size = told

    def close(self) -> None:
        """It stays open."""


class TextFile:
    """The rows of one text file.

    Parameters
    ----------
    place : str
        What to call the file.
    source : FileBytes or StandardInput
        Its bytes.
    choice : dict
        The arguments `columns` and `target` of the format.
    waits : function or None
        Tells whether to wait for more at the end; None if never.
    """

    def __init__(self, place: str, source: Any, choice: dict[str, Any], waits: Any) -> None:
        self.place = place
        self._bytes = source
        self._waits = waits
        self._at_once = isinstance(source, StandardInput)
        self.told, self.size, self.close = source.told, source.size, source.close
        try:
            head = self._head()
            self.format: TextFormat = recognised(head)(place, head, **choice)
        except BaseException:
            self.close()
            raise
        self._print = head[:_PRINT_BYTES]
        self.columns = self.format.columns

    def _head(self) -> bytes:
        """The first whole lines: some hundred thousand bytes, or what there is; two lines at least."""
        head, ended = b"", False
        while len(head) < LONGEST_LINE:
            data, ended = self._bytes.read(HEAD_BYTES)
            head += data
            if ended and self._waits is None:
                return head
            whole = head[: head.rfind(b"\n") + 1]
            if b"\n" in whole.strip() and (ended or self._at_once or len(head) >= HEAD_BYTES):
                return whole
            if ended:
                time.sleep(POLL_SECONDS)
        return head

    def batches(self, position: Position | None) -> Iterator[tuple[Rows, Position]]:
        """Rows from a position on, and the position behind them: blocks of a size that the file alone decides."""
        offset, line = self.format.start, self.format.line
        if position is not None:
            self._check_same(position)
            offset, line = position["offset"], position["line"]
        self._bytes.seek(offset)
        self._skipping = ended = False
        waiting, size = b"", BLOCK_BYTES
        while waiting or not ended:
            waiting, ended = self._filled(waiting, size, offset)
            view = waiting[:size]
            rows, used = self._parse(view, line, ended)
            line += view.count(self.format.newline, 0, used)
            offset, waiting = offset + used, waiting[used:]
            size = min(2 * size, LONGEST_LINE) if not used and len(view) == size else BLOCK_BYTES
            if len(rows.X) or rows.bad:
                yield rows, self._position(offset, line)

    def _filled(self, waiting: bytes, size: int, offset: int) -> tuple[bytes, bool]:
        """Read on until there are `size` bytes, or what there is now; tells whether no more will come."""
        if len(waiting) >= size:
            return waiting, False
        data, short = self._bytes.read(size - len(waiting))
        if short and self._waits is not None and self._waits():
            if not data:
                self._check_not_shorter(offset + len(waiting))
                time.sleep(POLL_SECONDS)
            short = False
        return waiting + data, short

    def _parse(self, view: bytes, line: int, ended: bool) -> tuple[Rows, int]:
        """Rows of the whole lines of a view, and how many of its bytes they took."""
        end = view.rfind(self.format.newline) + 1
        if self._skipping:
            self._skipping = not end
            return self._nothing(), view.find(self.format.newline) + 1 or len(view)
        full = len(view) >= LONGEST_LINE
        if full and not end:
            self._skipping = True
            reason = f"a line of more than {LONGEST_LINE >> 20} MiB"
            bad = BadRow(f"{self.place}:{line + 1}", reason, view[:200].decode(errors="replace"))
            return self._nothing()._replace(bad=[bad]), len(view)
        whole = view if ended else view[:end]
        return self.format.parse(whole, line, final=ended or full) if whole else (self._nothing(), 0)

    def _nothing(self) -> Rows:
        return rows_of([], self.columns)

    def _position(self, offset: int, line: int) -> Position:
        n = min(len(self._print), offset)
        return {"offset": offset, "line": line, "print": [n, zlib.crc32(self._print[:n])]}

    def _check_same(self, position: Position) -> None:
        """Refuse a file that is not the one in which reading stopped."""
        n, checksum = position["print"]
        if len(self._print) < n or zlib.crc32(self._print[:n]) != checksum:
            raise InputError(
                f"{self.place} is not the file in which learning stopped: its beginning has changed. Give the file "
                "that was learned before, or start anew with another --state file."
            )

    def _check_not_shorter(self, offset: int) -> None:
        if self._bytes.size() < offset:
            raise InputError(f"{self.place} became shorter while it was followed. Start again to go on with it.")


def recognised(head: bytes) -> type[Any]:
    """The format of a text: JSON lines, or CSV."""
    first = head.lstrip().split(b"\n", 1)[0].strip()
    if first.startswith(b"{") or (first.startswith(b"[") and isinstance(parsed(first), dict)):
        return JsonFormat
    if first in (b"[", b"[{") or first.startswith((b"[{", b"[[")):
        raise InputError(
            "The file is one JSON array. Write one object a line instead, for example with: jq -c '.[]' file.json"
        )
    return CsvFormat
