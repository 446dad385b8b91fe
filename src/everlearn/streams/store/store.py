"""The state store: models, source positions, events and rows to come, in one SQLite file.

What belongs to one step of learning is committed in one transaction, so that a program that is killed at
any moment goes on where the latest commit left it.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from everlearn.errors import InputError, StateFileError
from everlearn.persistence.model_file import dumps, loads
from everlearn.streams.store.records import (
    MAX_INTERVALS,
    NAN,
    BadRow,
    EpisodeRecord,
    Event,
    InboxBatch,
    Interval,
    ModelEntry,
    StoredBadRow,
    StoredEpisode,
    StoredEvent,
    append_intervals,
    now,
    thinned,
    totals_of,
)
from everlearn.streams.store.sqlite_file import StateFile, put_episode, put_mark
from everlearn.streams.store.trace_table import TraceCell, add_cells, cells_of

MAX_EVENTS = 100_000
MAX_EPISODES = 10_000
MAX_BAD_ROWS = 10_000
MAX_KEYS = 100_000
_TRIM_EVERY = 1000  # rows of a model between two looks at whether it has too many, on average
# Characters of a bad row that are kept: enough to recognise it, whatever was sent.
_TEXT_LIMIT = 500
_ENTRY = (
    "SELECT m.name, m.version, m.kind, m.n_rows, m.columns, length(f.data), m.updated FROM model m JOIN model_file f "
    "ON f.name = m.name"
)
_DROP_TARGETS = "DELETE FROM inbox_target WHERE id IN (SELECT id FROM inbox WHERE name = ? AND id <= ?)"
_LAST_ID = (1 << 63) - 1
_INTERVAL_FIELDS = ", ".join(Interval._fields)
_REAL = int | float | None
_INTERVAL_KINDS = (int, int, _REAL, _REAL, _REAL, _REAL, _REAL, _REAL, int, int, int, _REAL)


class Store:
    """Several models by name in one file, each with its source position, events, history, bad rows and inbox.

    Any thread may use it. Readers see the latest commit and never wait for a writer. The file stays bounded: of each
    model the latest 100,000 events, 10,000 episodes and 10,000 bad rows are kept, a history of at most 4096 intervals,
    and 50,000 cells of traces in each of seven grains.

    Parameters
    ----------
    path : path-like
        The file; it is made if it is not there.
    create : bool, default=True
        Whether to make the file.

    Raises
    ------
    StateFileError
        The file is damaged, of another program, or of a newer version.
    OSError
        The disk is full or fails; nothing of the step was written.

    Examples
    --------
    >>> import os, tempfile
    >>> from everlearn import IncrementalGaussianMixture
    >>> from everlearn.streams.store.store import Store
    >>> model = IncrementalGaussianMixture().partial_fit([[1.0, 2.0], [2.0, 1.0]])
    >>> with tempfile.TemporaryDirectory() as folder, Store(os.path.join(folder, "run.db")) as store:
    ...     version = store.commit("machine", model, 0, position={"line": 2})
    ...     again, position = store.load("machine"), store.position("machine")
    >>> again.n_samples_seen_, position
    (2, {'line': 2})
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._file = StateFile(path, create=create)
        self.path = self._file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file for all threads."""
        self._file.close()

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a copy of the file as it is now, whole, while others go on writing to it.

        Parameters
        ----------
        path : path-like
            The copy; a file that is there is replaced once the copy is complete.
        """
        self._file.backup(path)

    # -- models -----------------------------------------------------------------------------------

    def models(self, *, after: str = "", limit: int | None = None) -> list[ModelEntry]:
        """What is there, by name: the first `limit` models whose names sort behind `after`."""
        # SQLite takes a negative limit for none.
        rows = self._file.query(
            f"{_ENTRY} WHERE m.name > ? ORDER BY m.name LIMIT ?", after, -1 if limit is None else limit
        )
        return [self._entry(row) for row in rows]

    def n_models(self) -> int:
        """Number of models, without a look at any of them."""
        return int(self._file.expect(self._file.query("SELECT count(*) FROM model")[0], int)[0])

    def entry(self, name: str) -> ModelEntry | None:
        """What is known of a model without loading it; None if there is none of this name."""
        rows = self._file.query(f"{_ENTRY} WHERE m.name = ?", name)
        return self._entry(rows[0]) if rows else None

    def _entry(self, row: Sequence[Any]) -> ModelEntry:
        name, version, kind, n_rows, columns, size, updated = self._file.expect(
            row, str, int, str, int, str, int, _REAL
        )
        names = self._file.plain(columns, list | None)
        self._file.expect(names or (), *[str] * len(names or ()))
        return ModelEntry(name, version, kind, n_rows, names, size, updated)

    def model_bytes(self, name: str) -> bytes:
        """The contents of a model file."""
        rows = self._file.query("SELECT data FROM model_file WHERE name = ?", name)
        if not rows:
            known = ", ".join(entry.name for entry in self.models(limit=10)) or "none"
            raise InputError(f"{self.path} holds no model {name!r}. It holds: {known[:300]}.")
        data: bytes = self._file.expect(rows[0], bytes)[0]
        return data

    def load(self, name: str) -> Any:
        """A model as it was at the latest commit."""
        return loads(self.model_bytes(name), name=f"The model {name!r} in {self.path}")

    def position(self, name: str) -> dict[str, Any] | None:
        """Where the source of a model was at the latest commit; None at the beginning."""
        rows = self._file.query("SELECT position FROM model WHERE name = ?", name)
        position: dict[str, Any] | None = self._file.plain(rows[0][0], dict | None) if rows else None
        # Checked here and not where it is used: a state file that was edited is refused with its name, not by a
        # KeyError later.
        if position is not None and "inbox" in position:
            inbox = self._file.expect([position["inbox"]], dict)[0]
            columns = self._file.expect([inbox.get("columns")], list)[0]
            self._file.expect(columns, *[str] * len(columns))
        return position

    def memory(self, name: str) -> dict[str, Any] | None:
        """What the learner remembered beside the model at the latest commit; None if nothing."""
        rows = self._file.query("SELECT memory FROM model WHERE name = ?", name)
        return self._file.plain(rows[0][0], dict | None) if rows else None

    def delete(self, name: str) -> None:
        """Forget a model and all that belongs to it, its inbox included."""
        with self._file.transaction() as connection:
            # Before the inbox, by whose ids the targets are found.
            connection.execute(_DROP_TARGETS, (name, _LAST_ID))
            for table in ("model", "model_file", "event", "episode", "trace", "interval", "bad_row", "inbox",
                          "inbox_key", "total"):  # fmt: skip
                connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))

    # -- steps ------------------------------------------------------------------------------------

    def commit(
        self,
        name: str,
        model: Any,
        version: int,
        *,
        position: dict[str, Any] | None = None,
        events: Sequence[Event] = (),
        intervals: Sequence[Interval] = (),
        bad_rows: Sequence[BadRow] = (),
        more: dict[str, int] | None = None,
        memory: dict[str, Any] | None = None,
        taken: int | None = None,
        episodes: Sequence[EpisodeRecord] = (),
        traces: Sequence[TraceCell] = (),
        grown: Sequence[Event] = (),
    ) -> int:
        """Write everything of one step, or nothing.

        Parameters
        ----------
        name : str
            Name of the model.
        model : estimator
            The model after the step.
        version : int
            The version that the step started from; 0 for a new model.
        position : dict, optional
            Where the source stands, as JSON values; by default as before.
        events, intervals, bad_rows : sequences, optional
            What is to be added.
        more : dict, optional
            What to add to the totals for events ("novelty") and bad rows ("bad: reason") that are not given.
        memory : dict, optional
            What the learner remembers beside the model, as JSON values; by default as before.
        taken : int, optional
            Batches of the inbox up to this id were learned, and leave it.
        episodes : sequence of EpisodeRecord, default=()
            Episodes that began, changed or ended.
        traces : sequence of TraceCell, default=()
            Stretches of the sensors' traces that are complete.
        grown : sequence of Event, default=()
            Events of earlier steps as they are now, by kind and row. Each gets a new id, so that who follows the events
            sees it again, and is not counted again.

        Returns
        -------
        int
            The new version.

        Raises
        ------
        StateFileError
            The model has another version: somebody else learns it too.
        """
        _check_name(name)
        # Serialised before the transaction begins: readers and other writers are not held up by a large model.
        data = dumps(model)
        with self._file.transaction() as connection:
            self._check_version(connection, name, version)
            # One counter for the file, so that a model that is deleted and made again never repeats a version.
            new = _count(connection, "", {"version": 1})["version"]
            self._put_model(connection, name, model, new, {"position": position, "memory": memory})
            connection.execute("REPLACE INTO model_file VALUES (?, ?)", (name, data))
            _add_events(connection, name, [_grown(connection, name, event) for event in grown])
            _add_events(connection, name, events)
            _add_intervals(connection, name, intervals)
            _add_bad_rows(connection, name, bad_rows)
            _add_episodes(connection, name, episodes, new)
            add_cells(connection, name, traces)
            _count(connection, name, totals_of(events, intervals, bad_rows, more or {}))
            # In the same transaction as the model that learned them: a crash before leaves both as they were, one after
            # loses nothing. Apart, rows would be lost or learned twice.
            if taken is not None:
                connection.execute(_DROP_TARGETS, (name, taken))
                connection.execute("DELETE FROM inbox WHERE name = ? AND id <= ?", (name, taken))
        return new

    def commit_many(
        self,
        models: Mapping[str, tuple[Any, int]],
        *,
        rows: Mapping[str, int],
        position: dict[str, Any] | None = None,
        steps: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, int]:
        """Write several models of one step, or none of them.

        Parameters
        ----------
        models : mapping
            By name: the model after the step, and the version that it started from, 0 for a new one.
        rows : mapping
            By name: rows that were learned in the step.
        position : dict, optional
            Where their common source stands, as JSON values.
        steps : mapping, optional
            By name: `events`, `intervals`, `bad_rows`, `episodes`, `traces` and `memory`, as of `commit`; nothing by
            default.

        Returns
        -------
        dict
            The new versions, by name.
        """
        # All models before the transaction, as in `commit`.
        data = {_check_name(name): dumps(model) for name, (model, _) in models.items()}
        versions = {}
        with self._file.transaction() as connection:
            for name, (model, version) in models.items():
                self._check_version(connection, name, version)
                versions[name] = _count(connection, "", {"version": 1})["version"]
                step = (steps or {}).get(name, {})
                plain = {"position": position, "memory": step.get("memory")}
                self._put_model(connection, name, model, versions[name], plain)
                connection.execute("REPLACE INTO model_file VALUES (?, ?)", (name, data[name]))
                events, intervals, bad_rows = (step.get(part, ()) for part in ("events", "intervals", "bad_rows"))
                _add_events(connection, name, events)
                _add_intervals(connection, name, intervals)
                _add_bad_rows(connection, name, bad_rows)
                _add_episodes(connection, name, step.get("episodes", ()), versions[name])
                add_cells(connection, name, step.get("traces", ()))
                totals = totals_of(events, intervals, bad_rows, {}) if step else {"rows": rows[name]}
                _count(connection, name, totals)
        return versions

    def latest_position(self, by: str) -> dict[str, Any] | None:
        """Where a source whose rows go to models by the column `by` was at the latest commit of any of them."""
        # Any model of the latest step has the position of all. The limit bounds the search in a file that other runs
        # share.
        for row in self._file.query("SELECT position FROM model ORDER BY version DESC LIMIT 1000"):
            position: dict[str, Any] | None = self._file.plain(row[0], dict | None)
            if position is not None and position.get("by") == by:
                return position
        return None

    def note(self, name: str, events: Sequence[Event]) -> None:
        """Add events outside of a step: the model stays as it is."""
        with self._file.transaction() as connection:
            _add_events(connection, name, events)
            _count(connection, name, totals_of(events, (), (), {}))

    def _check_version(self, connection: sqlite3.Connection, name: str, version: int) -> None:
        row = connection.execute("SELECT version FROM model WHERE name = ?", (name,)).fetchone()
        # Optimistic locking: two programs that learn one model cannot both commit, or the rows of one would be lost
        # silently.
        if (row[0] if row else 0) != version:
            raise StateFileError(
                f"The model {name!r} in {self.path} was changed by another program while this one was learning it. "
                "Let one program learn a model, or give each its own name."
            )

    @staticmethod
    def _put_model(connection: sqlite3.Connection, name: str, model: Any, version: int, plain: dict[str, Any]) -> None:
        """Write the row of a model; a plain value that is None stays as it was."""
        names = getattr(model, "feature_names_in_", None)
        values = {
            "name": name,
            "version": version,
            "kind": type(model).__name__,
            "n_rows": int(model.n_samples_seen_) if model._is_started() else 0,
            "columns": json.dumps(None if names is None else [str(column) for column in names]),
            "updated": now(),
            **{field: json.dumps(value, allow_nan=False) for field, value in plain.items()},
        }
        # JSON's null means "nothing new": the learner of the service has no source whose position it could know.
        kept = ["name", *(field for field, value in plain.items() if value is None)]
        fresh = ", ".join(f"{field} = excluded.{field}" for field in values if field not in kept)
        connection.execute(
            f"INSERT INTO model ({', '.join(values)}) VALUES ({', '.join(f':{field}' for field in values)}) "
            f"ON CONFLICT (name) DO UPDATE SET {fresh}",
            values,
        )

    # -- what happened ----------------------------------------------------------------------------

    def events(
        self, name: str, *, after: int = 0, kinds: Iterable[str] | None = None, limit: int = 1000
    ) -> list[StoredEvent]:
        """Events with ids above `after`, oldest first."""
        return self._events(name, "id > ?", (after,), kinds, f"ORDER BY id LIMIT {int(limit)}")

    def latest_events(self, name: str, *, kinds: Iterable[str] | None = None, limit: int = 1000) -> list[StoredEvent]:
        """The latest events, oldest first."""
        return self._events(name, "id > ?", (0,), kinds, f"ORDER BY id DESC LIMIT {int(limit)}")[::-1]

    def episodes(self, name: str, *, latest: int = MAX_EPISODES, after: int = 0) -> list[StoredEpisode]:
        """The `latest` episodes and all that last, by number; those only that have changed after `after`."""
        rows = self._file.query(
            "SELECT change, mark, details FROM episode WHERE name = ? AND change > ? AND (is_open OR number > "
            "(SELECT max(number) FROM episode WHERE name = ?) - ?) ORDER BY number",
            name, after, name, latest,
        )  # fmt: skip
        found = []
        for row in rows:
            change, mark, details = self._file.expect(row, int, str, str)
            found.append(StoredEpisode(change, mark, self._file.plain(details, dict)))
        return found

    def mark(self, name: str, number: int, mark: str, event: Event) -> None:
        """Keep what a person says of an episode, and the event that tells a running watcher of it."""
        with self._file.transaction() as connection:
            put_mark(connection, name, number, mark, _count(connection, "", {"version": 1})["version"])
            _add_events(connection, name, [event])
            _count(connection, name, totals_of([event], (), (), {}))

    def latest_change(self, name: str) -> int:
        """The latest change of an episode; 0 before there is one."""
        rows = self._file.query("SELECT coalesce(max(change), 0) FROM episode WHERE name = ?", name)
        return int(self._file.expect(rows[0], int)[0])

    def trace_ends(self, name: str, level: int) -> tuple[TraceCell, TraceCell] | None:
        """The first and the last cell of a level; None if there is none. Those with a time count, if any has one."""
        ends = []
        for order in ("ASC", "DESC"):
            for where in ("AND time IS NOT NULL", ""):
                rows = self._file.query(
                    f"SELECT cell, row, time, data FROM trace WHERE name = ? AND level = ? {where} "
                    f"ORDER BY cell {order} LIMIT 1", name, level,
                )  # fmt: skip
                if rows:
                    break
            ends += self._cells(rows)
        return (ends[0], ends[1]) if ends else None

    def trace_cells(self, name: str, level: int, first: int = -_LAST_ID, last: int = _LAST_ID) -> list[TraceCell]:
        """The cells of a level from number `first` to number `last`."""
        rows = self._file.query(
            "SELECT cell, row, time, data FROM trace WHERE name = ? AND level = ? AND cell BETWEEN ? AND ? "
            "ORDER BY cell", name, level, first, last,
        )  # fmt: skip
        return self._cells(rows)

    def _cells(self, rows: Sequence[Any]) -> list[TraceCell]:
        for row in rows:
            self._file.expect(row, int, int, _REAL, bytes)
        try:
            return cells_of(rows)
        except ValueError as error:
            raise StateFileError(
                f"{self.path} is damaged: a trace has {error}. Restore the file from a copy, or name another."
            ) from error

    def _events(
        self, name: str, where: str, values: tuple[float, ...], kinds: Iterable[str] | None, order: str
    ) -> list[StoredEvent]:
        chosen = [] if kinds is None else list(kinds)
        # Values go as parameters, never into the text of a statement; what is put in by format here is ours.
        if kinds is not None:
            where += f" AND kind IN ({', '.join('?' * len(chosen))})"
        rows = self._file.query(
            f"SELECT id, time, row, kind, value, details, stream_time FROM event WHERE name = ? AND {where} {order}",
            name, *values, *chosen,
        )  # fmt: skip
        found = []
        for row in rows:
            self._file.expect(row, int, _REAL, int, str, _REAL, str, _REAL)
            details = self._file.plain(row[5], dict)
            found.append(StoredEvent._make((*row[:4], _float(row[4]), details, _float(row[6]))))
        return found

    def history(self, name: str, *, limit: int = 1000) -> list[Interval]:
        """The intervals of the whole run, oldest first, joined with their neighbours to at most `limit`."""
        rows = self._file.query(f"SELECT {_INTERVAL_FIELDS} FROM interval WHERE name = ? ORDER BY id", name)
        return thinned([_interval(self._file.expect(row, *_INTERVAL_KINDS)) for row in rows], limit)

    def bad_rows(self, name: str, *, limit: int = 100) -> list[StoredBadRow]:
        """The latest rows that could not be learned, oldest first."""
        rows = self._file.query(
            "SELECT id, time, place, reason, text FROM bad_row WHERE name = ? ORDER BY id DESC LIMIT ?", name, limit
        )
        return [StoredBadRow(*self._file.expect(row, int, _REAL, str, str, str)) for row in reversed(rows)]

    def totals(self, name: str) -> dict[str, int]:
        """Counts over the whole run: "rows", events by kind, "bad rows" in all and by reason ("bad: ...")."""
        rows = self._file.query("SELECT what, n FROM total WHERE name = ?", name)
        return {row[0]: row[1] for row in rows if self._file.expect(row, str, int)}

    def all_totals(self) -> dict[str, dict[str, int]]:
        """The same for every model that has counted something, by name: one query, however many models there are."""
        found: dict[str, dict[str, int]] = {}
        for row in self._file.query("SELECT name, what, n FROM total WHERE name != ''"):
            name, what, n = self._file.expect(row, str, str, int)
            found.setdefault(name, {})[what] = n
        return found

    def sums(self) -> dict[str, int]:
        """Totals summed over all models, without the reasons of bad rows."""
        rows = self._file.query(
            "SELECT what, sum(n) FROM total WHERE name != '' AND what NOT LIKE 'bad: %' GROUP BY what"
        )
        return {row[0]: row[1] for row in rows if self._file.expect(row, str, int)}

    # -- inbox ------------------------------------------------------------------------------------

    def put(
        self,
        batches: Sequence[tuple[str, ArrayLike]],
        *,
        keys: Sequence[str | None] | None = None,
        targets: Sequence[Sequence[Any] | None] | None = None,
    ) -> list[int]:
        """Keep rows to be learned, durably when this returns; one flush of the disk for all of them.

        Parameters
        ----------
        batches : sequence of (name, X)
            Name of the model, and rows of shape (n, D).
        keys : sequence of str or None, optional
            A sender's own name for each batch. A batch whose key is among the latest 100,000 of its model was kept
            before, and is not kept again.
        targets : sequence of sequence or None, optional
            Targets of the rows of each batch, as JSON values, for a model that has one.

        Returns
        -------
        list of int
            An id for each batch; later batches have larger ids, one that was kept before has its old one.
        """
        # Everything that can be refused is refused before the transaction, which has the batches of other senders too.
        rows = [(_check_name(name), *_packed(X)) for name, X in batches]
        nothing = [None] * len(rows)
        texts = [None if y is None else json.dumps(list(y), allow_nan=False) for y in targets or nothing]
        with self._file.transaction() as connection:
            return [
                _put(connection, row, key, text) for row, key, text in zip(rows, keys or nothing, texts, strict=True)
            ]

    def take(self, name: str, *, limit_rows: int = 4096) -> list[InboxBatch]:
        """The oldest batches of a model: whole ones, until they have `limit_rows` rows or more.

        They stay in the inbox until `commit` says that they were taken.
        """
        return list(self._oldest(name, limit_rows))

    def _oldest(self, name: str, limit_rows: int) -> Iterator[InboxBatch]:
        last, n = 0, 0
        while n < limit_rows:
            rows = self._file.query(
                "SELECT id, n_rows, n_columns, inbox.data, t.data FROM inbox LEFT JOIN inbox_target t USING (id) "
                "WHERE name = ? AND id > ? ORDER BY id LIMIT 64",
                name,
                last,
            )
            for row in rows:
                last, n_rows, n_columns, data, targets = self._file.expect(row, int, int, int, bytes, str | None)
                y = None if targets is None else self._file.plain(targets, list)
                self._file.expect(y or (), *[str | int | float] * len(y or ()))
                # Before frombuffer and reshape: three numbers that disagree are damage, and the message says of which
                # model.
                wrong = min(n_rows, n_columns) < 1 or 8 * n_rows * n_columns != len(data)
                if wrong or (y is not None and len(y) != n_rows):
                    raise StateFileError(
                        f"{self.path} is damaged: a batch of the inbox of {name!r} says {n_rows} rows of {n_columns} "
                        f"columns, but has {len(data)} bytes. Delete the model, or restore the file from a copy."
                    )
                yield InboxBatch(last, np.frombuffer(data).reshape(n_rows, n_columns).copy(), y)
                n += n_rows
                if n >= limit_rows:
                    return
            if not rows:
                return

    def latest_batch(self) -> int:
        """The id of the batch that came last, learned or not; 0 before the first. Ids are never given again."""
        rows = self._file.query("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'")
        return int(self._file.expect(rows[0], int)[0]) if rows else 0

    def waiting(self, name: str) -> int:
        """Number of rows in the inbox of a model."""
        rows = self._file.query("SELECT coalesce(sum(n_rows), 0) FROM inbox WHERE name = ?", name)
        return int(self._file.expect(rows[0], int)[0])

    def all_waiting(self) -> dict[str, int]:
        """Number of rows in the inbox of each model that has any."""
        rows = self._file.query("SELECT name, sum(n_rows) FROM inbox GROUP BY name")
        return {row[0]: row[1] for row in rows if self._file.expect(row, str, int)}


def _check_name(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise InputError(f"The name of a model is a printable text of 1 to 200 characters; got {str(name)[:80]!r}.")
    return name


def _float(value: float | None) -> float:
    return NAN if value is None else value


def _interval(row: Sequence[Any]) -> Interval:
    return Interval._make((*row[:4], *map(_float, row[4:8]), *row[8:11], _float(row[11])))


def _packed(X: ArrayLike) -> tuple[int, int, bytes]:
    rows = np.ascontiguousarray(X, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"A batch of the inbox has rows and columns; got an array of shape {rows.shape}.")
    return rows.shape[0], rows.shape[1], rows.tobytes()


def _put(connection: sqlite3.Connection, row: tuple[str, int, int, bytes], key: str | None, targets: str | None) -> int:
    name = row[0]
    # Within the transaction that keeps the batch: two requests with one key at the same time cannot both find it
    # unknown.
    known = connection.execute("SELECT id FROM inbox_key WHERE name = ? AND key = ?", (name, key)).fetchone()
    if known:
        return int(known[0])
    sql = "INSERT INTO inbox (name, n_rows, n_columns, data) VALUES (?, ?, ?, ?)"
    number = int(connection.execute(sql, row).lastrowid or 0)
    if targets is not None:
        connection.execute("INSERT INTO inbox_target VALUES (?, ?)", (number, targets))
    if key is not None:
        connection.execute("INSERT INTO inbox_key VALUES (?, ?, ?)", (name, key, number))
        _trim(connection, "inbox_key", name, number, MAX_KEYS)
    return number


def _add_events(connection: sqlite3.Connection, name: str, events: Sequence[Event]) -> None:
    for event in events:
        details = json.dumps(event.details or {}, allow_nan=False)
        value, moment = (None if math.isnan(x) else float(x) for x in (event.value, event.stream_time))
        when = now() if event.time is None else event.time
        last = connection.execute(
            "INSERT INTO event (name, time, row, kind, value, details, stream_time) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (name, when, int(event.row), event.kind, value, details, moment),
        ).lastrowid
        _trim(connection, "event", name, last, MAX_EVENTS)


def _grown(connection: sqlite3.Connection, name: str, event: Event) -> Event:
    """Take out the event of this kind and row; returns the new one with its times."""
    # By id, the latest first: it is among the last ones, and no index by rows is needed.
    sql = "SELECT id, time, stream_time FROM event WHERE name = ? AND row = ? AND kind = ? ORDER BY id DESC LIMIT 1"
    old = connection.execute(sql, (name, int(event.row), event.kind)).fetchone()
    if old is None:
        return event
    connection.execute("DELETE FROM event WHERE id = ?", (old[0],))
    return event._replace(time=old[1], stream_time=_float(old[2]))


def _add_episodes(connection: sqlite3.Connection, name: str, episodes: Sequence[EpisodeRecord], change: int) -> None:
    for episode in episodes:
        put_episode(connection, name, episode, change)
    if episodes:
        connection.execute(
            "DELETE FROM episode WHERE name = ? AND number <= ?", (name, episodes[-1].number - MAX_EPISODES)
        )


def _add_bad_rows(connection: sqlite3.Connection, name: str, bad_rows: Sequence[BadRow]) -> None:
    # More would be trimmed at once.
    for row in bad_rows[-MAX_BAD_ROWS:]:
        last = connection.execute(
            "INSERT INTO bad_row (name, time, place, reason, text) VALUES (?, ?, ?, ?, ?)",
            (name, now(), row.place, row.reason, row.text[:_TEXT_LIMIT]),
        ).lastrowid
        _trim(connection, "bad_row", name, last, MAX_BAD_ROWS)


def _trim(connection: sqlite3.Connection, table: str, name: str, last: int | None, limit: int) -> None:
    """Now and then, delete all but the latest `limit` rows of a model."""
    # Not after every row: the sub-query walks an index of up to 100,000 entries.
    # By a hash: ids are counted over all models, and those of one that takes turns with others may never be multiples.
    if last and zlib.crc32(f"{name} {last}".encode()) % _TRIM_EVERY == 0:
        connection.execute(
            f"DELETE FROM {table} WHERE name = ? AND id <= "
            f"(SELECT id FROM {table} WHERE name = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (name, name, limit),
        )


def _add_intervals(connection: sqlite3.Connection, name: str, intervals: Sequence[Interval]) -> None:
    """Append to the history; its last interval may grow until it has a whole grain of rows."""
    if not intervals:
        return
    n = connection.execute("SELECT count(*) FROM interval WHERE name = ?", (name,)).fetchone()[0]
    # The whole history is read only when it has to be thinned, otherwise its last interval alone.
    n_read = n if n + len(intervals) > MAX_INTERVALS else 1
    sql = f"SELECT id, {_INTERVAL_FIELDS} FROM interval WHERE name = ? ORDER BY id DESC LIMIT ?"
    found = connection.execute(sql, (name, n_read)).fetchall()[::-1]
    fresh = append_intervals([_interval(row[1:]) for row in found], intervals)
    if found:
        connection.execute("DELETE FROM interval WHERE name = ? AND id >= ?", (name, found[0][0]))
    _insert_intervals(connection, name, fresh)


def _insert_intervals(connection: sqlite3.Connection, name: str, intervals: Sequence[Interval]) -> None:
    marks = ", ".join("?" * len(Interval._fields))
    connection.executemany(
        f"INSERT INTO interval (name, {_INTERVAL_FIELDS}) VALUES (?, {marks})",
        [(name, *(None if value != value else value for value in interval)) for interval in intervals],
    )


def _count(connection: sqlite3.Connection, name: str, totals: dict[str, int]) -> dict[str, int]:
    """Add to the totals of a model; returns the new ones."""
    sql = "INSERT INTO total VALUES (?, ?, ?) ON CONFLICT (name, what) DO UPDATE SET n = n + excluded.n RETURNING n"
    return {what: connection.execute(sql, (name, what, n)).fetchone()[0] for what, n in totals.items()}
