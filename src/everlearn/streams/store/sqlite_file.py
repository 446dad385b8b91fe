"""An SQLite file as a state file: made, recognised, opened for each thread, and its errors in plain words."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.errors import StateFileError
from everlearn.persistence.atomic_write import flush_folder
from everlearn.streams.store.records import EpisodeRecord
from everlearn.streams.store.trace_table import FIELDS, TRACE_SCHEMA, TraceCell, add_cells

APPLICATION_ID = 0x45564C4E  # "EVLN"
FORMAT_VERSION = 3
# For other processes: threads of this one wait for `_writing`.
BUSY_SECONDS = 30.0
_LEAST_ROOM = 1 << 16

# The bytes of a model are in a table of their own, so that the rows that list models stay short. AUTOINCREMENT where
# ids must never come again: clients remember the last that they saw. Indices begin with the name, as each query is of
# one model.
_SCHEMA = """
CREATE TABLE model (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, kind TEXT NOT NULL, n_rows INTEGER NOT NULL, columns TEXT NOT NULL,
    position TEXT NOT NULL, memory TEXT NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE model_file (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, time REAL NOT NULL, row INTEGER NOT NULL,
    kind TEXT NOT NULL, value REAL, details TEXT NOT NULL, stream_time REAL
);
CREATE INDEX event_of_model ON event (name, id);
CREATE TABLE interval (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, end_row INTEGER NOT NULL, n_rows INTEGER NOT NULL,
    time REAL NOT NULL, seconds REAL NOT NULL, log_likelihood REAL, n_components REAL, forgetting REAL, memory REAL,
    n_novel INTEGER NOT NULL, n_changes INTEGER NOT NULL, n_scored INTEGER NOT NULL, stream_time REAL
);
CREATE INDEX interval_of_model ON interval (name, id);
CREATE TABLE bad_row (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, time REAL NOT NULL, place TEXT NOT NULL,
    reason TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX bad_row_of_model ON bad_row (name, id);
CREATE TABLE total (name TEXT, what TEXT, n INTEGER NOT NULL, PRIMARY KEY (name, what)) WITHOUT ROWID;
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, n_rows INTEGER NOT NULL, n_columns INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX inbox_of_model ON inbox (name, id);
CREATE TABLE inbox_target (id INTEGER PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE inbox_key (name TEXT, key TEXT, id INTEGER NOT NULL, PRIMARY KEY (name, key)) WITHOUT ROWID;
CREATE INDEX inbox_key_by_age ON inbox_key (name, id);
"""
_EPISODES = """
CREATE TABLE IF NOT EXISTS episode (
    name TEXT, number INTEGER, change INTEGER NOT NULL, is_open INTEGER NOT NULL, mark TEXT NOT NULL DEFAULT '',
    details TEXT NOT NULL, PRIMARY KEY (name, number)
) WITHOUT ROWID
"""
# What each version added to the one before it.
_UPGRADES: dict[int, Callable[[sqlite3.Connection], None]] = {
    2: lambda connection: _add_targets(connection),
    3: lambda connection: _add_histories(connection),
}
# SQLITE_ERROR is "no such table or column": the schema was edited.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)
_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_CANTOPEN: errno.ENOENT,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_AUTH: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
}


class StateFile:
    """One SQLite file in WAL mode with a connection for each thread that uses it.

    Parameters
    ----------
    path : path-like
        The file.
    create : bool
        Whether to make the file if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        self.path = os.fspath(path)
        self._threads = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False
        # SQLite would make a file of a mistyped name.
        if not create and not os.path.isfile(self.path):
            raise StateFileError(f"There is no state file {self.path}. `everlearn learn --state` makes one.")
        _check_start(self.path)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            self._closed = True
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a copy of the latest commit to another file, by way of one beside it."""
        place = os.path.abspath(os.fspath(path))
        if os.path.exists(place) and os.path.samefile(place, self.path):
            raise StateFileError(f"{path} is the state file itself. Name another file for the copy.")
        # Beside the copy, so that the rename stays within one file system.
        scratch = f"{place}.tmp-{os.getpid()}"
        _check_start(scratch)
        try:
            # VACUUM INTO reads one snapshot: writers go on meanwhile, and none of what they write is in the copy.
            # SQLite's own backup would begin again after each of their commits.
            self.query("VACUUM INTO ?", scratch)
            with open(scratch, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(scratch, place)
            flush_folder(Path(place).parent)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(scratch)

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Rows that a statement gives."""
        with self._explained():
            return self._connection().execute(sql, values).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything inside happens, durably, or nothing does."""
        # SQLite lets writers poll for its lock, with sleeps of up to 100 ms: threads of one process wait for each other
        # here, where the next one goes on at once.
        with self._writing, self._explained():
            connection = self._connection()
            # Take the lock for writing at once: a transaction that begins by reading could not be upgraded later while
            # another writes, and would fail in the middle.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # A full disk may have rolled back already; a second ROLLBACK would raise and hide the first error.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def plain(self, text: str, kind: Any = object) -> Any:
        """The value of a JSON text in the file, which must be of some kind."""
        try:
            value = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise StateFileError(_damaged(self.path, str(error))) from error
        return self.expect((value,), kind)[0]

    def expect(self, row: Sequence[Any], *kinds: Any) -> Sequence[Any]:
        """A row of the file whose values are of these kinds; SQLite itself keeps any value in any column."""
        for value, kind in zip(row, kinds, strict=True):
            if not isinstance(value, kind):
                raise StateFileError(_damaged(self.path, f"{value!r:.40} is not what belongs there"))
        return row

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if self._closed:
            raise StateFileError(f"{self.path} was closed.")
        if connection is None:
            with self._lock:
                connection = sqlite3.connect(
                    self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
                )
                self._connections.append(connection)
            self._threads.connection = connection
            # In WAL mode anything less than FULL may lose the latest commits when the power fails.
            connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _prepare(self) -> None:
        with self._explained():
            connection = self._connection()
            if self._is_empty(connection):
                # Readers (the live page) never wait for the writer, and the writer never for them.
                connection.execute("PRAGMA journal_mode = WAL")
                with self.transaction():
                    # Asked again inside the transaction: another process may have made the tables in between.
                    if self._is_empty(connection):
                        self._make(connection)
            self._check(connection)

    @staticmethod
    def _is_empty(connection: sqlite3.Connection) -> bool:
        return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    @staticmethod
    def _make(connection: sqlite3.Connection) -> None:
        for statement in (*_SCHEMA.split(";"), _EPISODES, TRACE_SCHEMA):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of another program, of a newer everlearn, or with damage."""
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StateFileError(f"{self.path} is an SQLite file of another program. Name another file for the state.")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT_VERSION:
            raise StateFileError(
                f"{self.path} has the state format {version} of a newer everlearn; this one reads up to "
                f"{FORMAT_VERSION}. Upgrade with: pip install -U everlearn"
            )
        if version < 1:
            raise StateFileError(_damaged(self.path, f"its format is {version}, which no everlearn has written"))
        for new in range(version + 1, FORMAT_VERSION + 1):
            # A file that cannot be written is read as it is: readers need nothing of what is new.
            with contextlib.suppress(sqlite3.OperationalError):
                self._upgrade(connection, new)
        # Reads every page once, without comparing indices: enough to find torn and overwritten pages.
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StateFileError(_damaged(self.path, found))

    def _upgrade(self, connection: sqlite3.Connection, new: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Asked again inside the transaction: another process may have done it in between.
            if connection.execute("PRAGMA user_version").fetchone()[0] == new - 1:
                _UPGRADES[new](connection)
                connection.execute(f"PRAGMA user_version = {new}")
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, (KeyError, TypeError, ValueError, AttributeError)):
                raise StateFileError(_damaged(self.path, str(error))) from error
            raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as an OSError with the system's number, or as a StateFileError."""
        try:
            yield
        except (UnicodeDecodeError, OverflowError) as error:  # the latter for counts that grew beyond 64 bits
            raise StateFileError(_damaged(self.path, str(error))) from error
        except sqlite3.Error as error:
            # The low byte is the class of the error; the upper ones say which call of the system failed.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGE or not code:
                raise StateFileError(_damaged(self.path, str(error))) from error
            if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL) and (full := _why_full(self.path)):
                raise OSError(*full, self.path) from error
            what = f"The state file cannot be used: {error}"
            raise OSError(_ERRNO.get(code, errno.EIO), what, self.path) from error


def _add_targets(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS inbox_target (id INTEGER PRIMARY KEY, data TEXT NOT NULL)")


def _add_histories(connection: sqlite3.Connection) -> None:
    """Make the tables of traces and episodes, and move there what was among the events."""
    connection.execute(_EPISODES)
    connection.execute(TRACE_SCHEMA)
    sql = (
        "SELECT name, row, kind, details, stream_time FROM event WHERE kind IN ('trace', 'episode', 'mark') ORDER BY id"
    )
    cells: dict[str, list[TraceCell]] = {}
    for name, row, kind, text, moment in connection.execute(sql).fetchall():
        details = json.loads(text)
        if kind == "trace":
            values = np.array([details[field] for field in FIELDS], dtype=np.float32)  # None becomes NaN
            # The grain that points had: 20 seconds, or 20 rows where there were no times.
            place = int((row if moment is None else moment) // 20)
            cells.setdefault(name, []).append(TraceCell(place, row, math.nan if moment is None else moment, values))
        elif kind == "mark":
            put_mark(connection, name, int(details["number"]), str(details["verdict"]), 1)
        else:
            record = EpisodeRecord(int(details["number"]), details["status"] == "open", details)
            put_episode(connection, name, record, 1)
    for name, found in cells.items():
        add_cells(connection, name, found)
    connection.execute("DELETE FROM event WHERE kind IN ('trace', 'episode')")


def put_episode(connection: sqlite3.Connection, name: str, episode: EpisodeRecord, change: int) -> None:
    """Write an episode as it is now; a mark that it has stays."""
    connection.execute(
        "INSERT INTO episode (name, number, change, is_open, details) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (name, number) DO UPDATE SET change = excluded.change, is_open = excluded.is_open, "
        "details = excluded.details",
        (name, episode.number, change, int(episode.is_open), json.dumps(episode.details, allow_nan=False)),
    )


def put_mark(connection: sqlite3.Connection, name: str, number: int, mark: str, change: int) -> None:
    """Write what a person said of an episode."""
    connection.execute(
        "UPDATE episode SET mark = ?, change = ? WHERE name = ? AND number = ?", (mark, change, name, number)
    )


def _why_full(path: str) -> tuple[int, str] | None:
    """Why a file cannot grow by its smallest step: no room on the disk, or the limit on the size of files.

    SQLite calls the first an I/O error where it maps memory, and the second always.
    """
    disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
    if disk.f_bavail * disk.f_frsize < _LEAST_ROOM:
        return errno.ENOSPC, "The disk is full, and the state file cannot be used"
    limit = _file_size_limit()
    sizes = [os.path.getsize(name) for name in (path, f"{path}-wal", f"{path}-shm") if os.path.exists(name)]
    if limit is not None and max(sizes, default=0) + _LEAST_ROOM > limit:
        return errno.EFBIG, "The state file has reached the limit on the size of files (ulimit -f)"
    return None


def _file_size_limit() -> int | None:
    """Bytes that a file of this process may have; None without a limit."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if limit == resource.RLIM_INFINITY else limit


def _check_start(path: str) -> None:
    """Say of a file that exists what it is not, before SQLite is asked."""
    if not os.path.exists(path):
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise StateFileError(f"There is no folder {folder} for the state file. Create it first.")
        return
    if not os.path.isfile(path):
        raise StateFileError(f"{path} is not a file. Name a file for the state, such as run.db.")
    with open(path, "rb") as file:
        start = file.read(16)
    if start and start != b"SQLite format 3\0":
        raise StateFileError(f"{path} is not a state file of everlearn: it is no SQLite file. Name another file.")


def _damaged(path: str, found: str) -> str:
    return (
        f"{path} is damaged ({found}). Restore it from a copy, or name another file for --state and learn again from "
        "the beginning."
    )
