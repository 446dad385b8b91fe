"""Rows from files: CSV, JSON lines, Parquet and Arrow; compressed, many at once, growing, or standard input."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from everlearn.errors import InputError
from everlearn.streams.sources.arrow_files import TABLE_MAGIC, TableFile
from everlearn.streams.sources.csv import CsvFormat
from everlearn.streams.sources.jsonl import JsonFormat, appeared, parsed
from everlearn.streams.sources.parsing import Batch, Position, empty_batch
from everlearn.streams.sources.schema import ALL_NUMBERS, Choice, Columns
from everlearn.streams.sources.source import Source
from everlearn.streams.store.records import BadRow

BLOCK_BYTES = 1 << 20
# 16 MiB. A row of the 10,000 columns that are learned at most takes 250 kB at 25 characters each.
LONGEST_LINE = 1 << 24
HEAD_BYTES = 1 << 18
POLL_SECONDS = 0.2
_COMPRESSED = {b"\x1f\x8b": gzip.GzipFile, b"BZh": bz2.BZ2File, b"\xfd7zXZ": lzma.LZMAFile}
# A file is known again by its first bytes, and while it is followed by as many before the place of reading.
_PRINT_BYTES = 4096


class FileReplacedError(Exception):
    """The file that is followed was replaced, or begun again: what is read next is not what follows."""


class Replacement(NamedTuple):
    """What happened to a file that is followed."""

    said: str
    begun_anew: bool  # the same file from its beginning; otherwise another one has its name, and it can be read on


class TextFormat(Protocol):
    """How to read the lines of a file."""

    kinds: dict[str, str]
    newline: bytes
    start: int
    line: int

    @property
    def columns(self) -> Columns:
        """What is read and what is left out."""

    def parse(self, block: bytes, line: int, *, final: bool) -> tuple[Batch, int]:
        """Rows of a block of whole lines, and how many of its bytes they took."""


class FileSource(Source):
    """Files as one stream, in the order of their names; what they hold is recognised from their first bytes.

    A file that is followed and replaced meanwhile (renamed, and another made in its place, as logrotate does) is read
    to its end, and then the new one from its beginning. One that was truncated is read again from its beginning. Both
    are said in the notes of a batch.

    Parameters
    ----------
    paths : sequence of str
        Paths, patterns such as ``logs/*.csv.gz``, or ``-`` for standard input.
    choice : Choice
        Which columns are asked for.
    follow : bool, default=False
        Whether to wait for more at the end of the last file, and for new files.
    """

    def __init__(self, paths: Sequence[str], choice: Choice = ALL_NUMBERS, *, follow: bool = False) -> None:
        self._patterns = list(paths)
        self.live = follow
        self._found = self._expand()
        if not self._found:
            raise InputError(f"No file matches {', '.join(self._patterns)}.")
        self._choice = choice
        self.place = self._found[0] if len(self._found) == 1 else f"{len(self._found)} files"
        self.replayable = self._found != ["-"]
        if "-" in self._found and len(self._found) > 1:
            raise InputError("Standard input (-) cannot be read together with files.")
        self._stdin = None if self.replayable else TextFile("standard input", StandardInput(), self._choice)
        first = self._open(self._found[0])
        self.columns = first.columns
        first.close()
        # All files have the columns of the first, whatever their own first rows look like; what one lacks is a gap.
        self._choice = choice._replace(columns=self.columns.names, time=self.columns.time, known=True)
        self._known = set(first.kinds)
        self._absent: set[str] = set()
        self._done, self._current = 0, first

    def close(self) -> None:
        """Close the file that is open."""
        self._current.close()

    def progress(self) -> tuple[int, int] | None:
        """Bytes of the files read so far, and in all."""
        if not self.replayable:
            return None
        sizes = [os.path.getsize(path) for path in self._found if os.path.exists(path)]
        return self._done + self._current.bytes_read(), sum(sizes)

    def batches(self, position: Position | None = None) -> Iterator[Batch]:
        """Batches of all files from a position on."""
        after = "" if position is None else str(position["file"])
        # The file in which learning stopped comes first, even if it matches the patterns no longer.
        if position is not None and self.replayable:
            yield from self._batches_of(after, position)
        while True:
            # The patterns are expanded anew each time: files that appear while others are read are found. Only names
            # behind the latest count, so that each file is read once; a new one whose name sorts before it is not read.
            for path in [path for path in self._expand() if path > after or after == "" or not self.replayable]:
                after = path
                yield from self._batches_of(path, None)
            if not self.live or not self.replayable:
                return
            time.sleep(POLL_SECONDS)

    def _batches_of(self, path: str, position: Position | None) -> Iterator[Batch]:
        """Batches of one file, and of those that take its place while it is followed."""
        while True:
            self._current = self._open(path)
            notes, grown = self._schema_notes(path)
            # Opened again, as the format of a file is made for the columns that were chosen when it was opened.
            if grown:
                self._grow([*self.columns.names, *grown])
                self._current.close()
                self._current = self._open(path)
            if notes:
                yield empty_batch(self.columns, notes=notes, grown=grown)
            try:
                for batch in self._current.batches(position):
                    if batch.grown:
                        self._grow(self._current.columns.names)
                    yield batch._replace(position={"file": path, **(batch.position or {})})
                return
            # The new file has nothing to do with the position in the old one.
            except FileReplacedError as replaced:
                position = None
                yield empty_batch(self.columns, notes=[str(replaced)])
            finally:
                self._known |= set(self._current.kinds)
                self._done += self._current.size()
                self._current.close()
            self._wait_for_rows(path)

    def _grow(self, names: list[str]) -> None:
        """Read these columns from now on."""
        self.columns = self.columns._replace(names=names)
        self._choice = self._choice._replace(columns=names)

    def _schema_notes(self, path: str) -> tuple[list[str], list[str]]:
        """What to say of columns that have disappeared, come back or appeared since the file before; those to read."""
        there = self._current.kinds
        absent = {name for name in self.columns.names if name not in there}
        known = self._known.union(self.columns.names)
        fresh = [name for name, kind in there.items() if name not in known and kind == "numbers"]
        grown = [name for name in fresh if self._choice.grows(name)]
        notes = [f"{path} has no column {name!r}: its values are gaps." for name in sorted(absent - self._absent)]
        notes += [f"{path} has the column {name!r} again." for name in sorted(self._absent - absent)]
        notes += [appeared(path, name, grows=name in grown) for name in fresh]
        self._absent = absent
        self._known |= set(there)
        return notes, grown

    def _wait_for_rows(self, path: str) -> None:
        """Wait until a file that was replaced is there, with a header and a row."""
        while not os.path.exists(path) or os.path.getsize(path) == 0:
            time.sleep(POLL_SECONDS)

    def _open(self, path: str) -> Any:
        """The file, by what it holds."""
        if self._stdin is not None:
            return self._stdin
        return open_file(path, self._choice, waits=(lambda: self._is_last(path)) if self.live else None)

    def _is_last(self, path: str) -> bool:
        later = self._expand()
        return not later or later[-1] <= path

    def _expand(self) -> list[str]:
        found: dict[str, None] = {}
        for pattern in self._patterns:
            # A file may have brackets in its name: one that exists is no pattern.
            is_pattern = any(mark in pattern for mark in "*?[") and not os.path.exists(pattern)
            matches = glob.glob(pattern, recursive=True) if is_pattern else [pattern]
            found.update(dict.fromkeys(path for path in matches if not (is_pattern and os.path.isdir(path))))
        return sorted(found)


def open_file(
    path: str,
    choice: Choice = ALL_NUMBERS,
    *,
    row_groups: Sequence[int] | None = None,
    slice_rows: int | None = None,
    waits: Callable[[], bool] | None = None,
) -> TextFile | TableFile:
    """Open one file as a table; what it holds is recognised from its first bytes, not from its name.

    Parameters
    ----------
    path : str
        CSV or JSON lines, also compressed by gzip, bzip2 or xz; Parquet or Arrow.
    choice : Choice
        Which columns are asked for.
    row_groups : sequence of int, optional
        The row groups of a Parquet file to read.
    slice_rows : int, optional
        Most rows in a batch of a Parquet or Arrow file.
    waits : function, optional
        Tells whether to wait for more at the end of a text file; never by default.

    Returns
    -------
    TextFile or TableFile
        It has `columns`, `kinds` (what each column of the file holds), `batches` and `close`.
    """
    _check_readable(path)
    with open(path, "rb") as file:
        magic = file.read(8)
    if magic.startswith(TABLE_MAGIC):
        return TableFile(path, choice, row_groups=row_groups, slice_rows=slice_rows)
    for mark, unpack in _COMPRESSED.items():
        if magic.startswith(mark):
            return TextFile(path, CompressedBytes(path, unpack), choice)
    return TextFile(path, FileBytes(path), choice, waits=waits)


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
        self._checked = (0, 0)  # time and size at which the file was known to be the same

    def read(self, n: int) -> tuple[bytes, bool]:
        """Up to n bytes, and whether that is all there is now."""
        data = self.file.read(n)
        return data, len(data) < n

    def seek(self, offset: int) -> None:
        """Go to an offset."""
        self.file.seek(offset)

    def bytes_read(self) -> int:
        """Bytes of the file on disk that were read."""
        return self.file.tell() if not self.file.closed else 0

    def what_happened(self, head: bytes, tail: bytes, offset: int) -> Replacement | None:
        """Whether the file at the path still goes on what was read up to an offset; if not, what happened to it.

        Parameters
        ----------
        head, tail : bytes
            What the file began with, and what stood before the offset.
        offset : int
            Bytes that were read.
        """
        try:
            there, mine = os.stat(self.path), os.fstat(self.file.fileno())
        except FileNotFoundError:
            return None  # renamed, and nothing in its place yet: the old one may still be written to
        # Renamed by logrotate and made anew: the handle still reads the old file, which is read to its end first.
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            said = f"{self.path} was replaced by another file; that is read from its beginning."
            return Replacement(said, begun_anew=False)
        if there.st_size < offset:
            return Replacement(f"{self.path} was truncated; it is read again from its beginning.", begun_anew=True)
        if (there.st_mtime_ns, there.st_size) != self._checked:
            # A separate handle: the place of reading in the other one stays.
            with open(self.path, "rb") as file:
                same = file.read(len(head)) == head
                file.seek(offset - len(tail))
                same = same and file.read(len(tail)) == tail
            if not same:
                said = f"{self.path} was truncated and written anew; it is read again from its beginning."
                return Replacement(said, begun_anew=True)
            self._checked = (there.st_mtime_ns, there.st_size)
        return None

    def size(self) -> int:
        """Bytes on disk."""
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class CompressedBytes(FileBytes):
    """The bytes in a compressed file; `unpack` makes a file that decompresses from one that does not."""

    def __init__(self, path: str, unpack: Any) -> None:
        super().__init__(path)
        self._packed = self.file
        file: Any = unpack(fileobj=self._packed) if unpack is gzip.GzipFile else unpack(self._packed)
        self.file = file

    def read(self, n: int) -> tuple[bytes, bool]:
        """Up to n bytes, and whether that is all there is."""
        try:
            return super().read(n)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk; damage has no number
            raise InputError(f"{self.path} is damaged or truncated: {error}.") from error

    def bytes_read(self) -> int:
        """Bytes of the file on disk that were read."""
        return self._packed.tell() if not self._packed.closed else 0

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._packed.close()


class StandardInput:
    """Standard input; the bytes read to detect the format are buffered and replayed."""

    def __init__(self) -> None:
        self._file: Any = sys.stdin.buffer
        self._begun = b""
        self._keep = True

    def read(self, n: int) -> tuple[bytes, bool]:
        """Up to n bytes as soon as there are any, and whether it has ended."""
        if not self._keep and self._begun:
            data, self._begun = self._begun[:n], self._begun[n:]
            return data, False
        # read1 gives what is there; read would wait until a pipe has sent n bytes, while rows lie in the buffer.
        data = self._file.read1(n)
        if self._keep:
            self._begun += data
        return data, not data

    def seek(self, offset: int) -> None:
        """Begin again; only what was read before the first call is there twice."""
        self._keep = False
        self._begun = self._begun[offset:]

    def bytes_read(self) -> int:
        """Nothing is known of how much there is."""
        return 0

    size = bytes_read

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
    choice : Choice
        Which columns are asked for.
    waits : function, optional
        Tells whether to wait for more at the end; never by default.
    """

    def __init__(self, place: str, source: Any, choice: Choice = ALL_NUMBERS, *, waits: Any = None) -> None:
        self.place = place
        self._bytes = source
        self._waits = waits
        self._at_once = isinstance(source, StandardInput)
        self.bytes_read, self.size, self.close = source.bytes_read, source.size, source.close
        try:
            head = self._head()
            self.format: TextFormat = recognised(head)(place, head, choice)
        except BaseException:
            self.close()
            raise
        self._print = head[:_PRINT_BYTES]
        self._tail = b""
        self._at_end = False
        self.kinds = self.format.kinds

    @property
    def columns(self) -> Columns:
        """The columns that are read; more when some appear in a file of JSON lines and are asked for."""
        return self.format.columns

    def _head(self) -> bytes:
        """The first whole lines: some hundred thousand bytes, or what there is; two lines at least."""
        head, ended = b"", False
        while len(head) < LONGEST_LINE:
            data, ended = self._bytes.read(HEAD_BYTES)
            head += data
            if ended and self._waits is None:
                return head
            # Of a growing file, the last line may be half written.
            whole = head[: head.rfind(b"\n") + 1]
            if b"\n" in whole.strip() and (ended or self._at_once or len(head) >= HEAD_BYTES):
                return whole
            if ended:
                time.sleep(POLL_SECONDS)
        return head

    def batches(self, position: Position | None = None) -> Iterator[Batch]:
        """Batches from a position on: blocks of a size that the file alone decides."""
        offset, line = self.format.start, self.format.line
        if position is not None:
            self._check_same(position)
            offset, line = position["offset"], position["line"]
        # The blocks begin at the offset, so that the same position gives the same batches after a restart.
        self._bytes.seek(offset)
        self._skipping = ended = False
        self._replaced: Replacement | None = None
        waiting, size = b"", BLOCK_BYTES
        while waiting or not ended:
            waiting, ended = self._filled(waiting, size, offset)
            view = waiting[:size]
            batch, used = self._parse(view, line, ended)
            line += view.count(self.format.newline, 0, used)
            offset, waiting = offset + used, waiting[used:]
            self._tail = (self._tail + view[:used])[-_PRINT_BYTES:]
            # A record longer than the block gets a larger one, up to the longest line that is read.
            size = min(2 * size, LONGEST_LINE) if not used and len(view) == size else BLOCK_BYTES
            if len(batch.X) or batch.bad:
                yield batch._replace(position=self._position(offset, line))
        if self._replaced:
            raise FileReplacedError(self._replaced.said)

    def _filled(self, waiting: bytes, size: int, offset: int) -> tuple[bytes, bool]:
        """Read on until there are `size` bytes, or what there is now; tells whether no more will come.

        At the end of a file that is followed, what comes next is read only after the file is known to be the same: a
        file that was written anew may have become longer than the place where reading stopped.
        """
        if len(waiting) >= size:
            return waiting, False
        follows = self._waits is not None and self._waits()
        behind = offset + len(waiting)
        # Only where reading has come to the end: there a file that was begun anew could be taken for one that goes on.
        if follows and self._at_end:
            tail = (self._tail + waiting)[-min(_PRINT_BYTES, behind - self.format.start) :]
            self._replaced = self._bytes.what_happened(self._print[:behind], tail, behind)
        # What lies behind the place in a file that was begun anew is part of other rows; a file that was renamed still
        # has its own.
        truncated = self._replaced is not None and self._replaced.begun_anew
        data, short = (b"", True) if truncated else self._bytes.read(size - len(waiting))
        self._at_end = short
        if short and follows and self._replaced is None:
            if not data:
                time.sleep(POLL_SECONDS)
            short = False
        return waiting + data, short

    def _parse(self, view: bytes, line: int, ended: bool) -> tuple[Batch, int]:
        """Rows of the whole lines of a view, and how many of its bytes they took."""
        end = view.rfind(self.format.newline) + 1
        if self._skipping:
            self._skipping = not end
            return empty_batch(self.columns), view.find(self.format.newline) + 1 or len(view)
        # A line without end, such as a binary file, would otherwise be gathered whole in memory.
        full = len(view) >= LONGEST_LINE
        if full and not end:
            self._skipping = True
            reason = f"a line of more than {LONGEST_LINE >> 20} MiB"
            bad = BadRow(f"{self.place}:{line + 1}", reason, view[:200].decode(errors="replace"))
            return empty_batch(self.columns, bad=[bad]), len(view)
        whole = view if ended else view[:end]
        return self.format.parse(whole, line, final=ended or full) if whole else (empty_batch(self.columns), 0)

    def _position(self, offset: int, line: int) -> Position:
        n = min(len(self._print), offset)
        # The checksum of at most 4 KiB tells another file under the same name after a restart. Inodes would not do:
        # they change when a file is copied to another machine, and are used again.
        return {"offset": offset, "line": line, "print": [n, zlib.crc32(self._print[:n])]}

    def _check_same(self, position: Position) -> None:
        """Refuse a file that is not the one in which reading stopped."""
        n, checksum = position["print"]
        if len(self._print) < n or zlib.crc32(self._print[:n]) != checksum:
            raise InputError(
                f"{self.place} is not the file in which learning stopped: its beginning has changed. Give the file "
                "that was learned before, or start anew with another --state file."
            )


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
