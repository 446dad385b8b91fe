"""One watcher a device: rows of many devices in one table or topic, each watched by itself.

Watchers that were used lately are in memory, all others in the state file. A step writes every watcher that has
changed, its episodes, and the position of the source in one transaction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from everlearn.errors import InputError
from everlearn.streams.groups import split
from everlearn.streams.sources.schema import Columns
from everlearn.streams.sources.times import restored_format
from everlearn.streams.store.store import Store
from everlearn.typing import Array
from everlearn.watch.episodes import Episode
from everlearn.watch.session import WatchResult, WatchSession, watched_columns
from everlearn.watch.watcher import Watcher

MOST_IN_MEMORY = 100
"""Watchers in memory between two steps; one of eight sensors holds a few thousand rows."""


class WatchGroups:
    """Watches batches whose rows belong to devices; what the runner asks of a session.

    Parameters
    ----------
    new_watcher : function
        Makes the watcher of a device, given the names of its sensors.
    store : Store
        Where watchers are kept, by the name of their device.
    columns : Columns
        The columns of the source; its target names the device of each row.
    most : int, default=100
        Watchers in memory between two steps.
    healthy_until : float, optional
        Rows before this time, in seconds since 1970, are known to be healthy.

    Attributes
    ----------
    n_rows, n_bad, n_episodes, n_alarms : int
        Rows watched and left out, episodes that began and those of them that are alarms, in this run.
    position : dict or None
        Where the source stood at the latest step.
    """

    def __init__(
        self,
        new_watcher: Callable[[Sequence[str]], Watcher],
        store: Store,
        columns: Columns,
        *,
        most: int = MOST_IN_MEMORY,
        healthy_until: float | None = None,
    ) -> None:
        assert columns.target is not None
        self.store, self.by, self.most, self.healthy_until = store, columns.target, most, healthy_until
        self._new_watcher, self._found = new_watcher, columns
        self.columns = list(columns.names)
        self.model = None  # outputs are given the model of a session; here there are many
        self.position = store.latest_position(self.by)
        self.resumed = self.position is not None
        self._sessions: OrderedDict[str, WatchSession] = OrderedDict()
        self._changed: dict[str, int] = {}  # rows since the latest step
        # Severity by device and number, in the order in which they were told first.
        self._told: dict[tuple[str, int], str] = {}
        self.n_rows = self.n_bad = 0

    @property
    def is_full(self) -> bool:
        """Whether so many watchers are in memory that a step is due."""
        return len(self._sessions) > self.most

    @property
    def n_episodes(self) -> int:
        """Episodes that were told in this run."""
        return len(self._told)

    @property
    def latest(self) -> tuple[str, int] | None:
        """Device and number of the latest episode that was told; None before there is one."""
        return next(reversed(self._told), None)

    @property
    def n_alarms(self) -> int:
        """Episodes of this run that are alarms."""
        return sum(severity == "alarm" for severity in self._told.values())

    def learn_healthy(self, X: Array, y: Any, times: Array | None = None) -> None:
        """Learn rows that are known to be healthy, each by the watcher of its device."""
        for session, rows in self._split(X, y):
            session.learn_healthy(X[rows], None if times is None else times[rows])
        if self.is_full:
            self.commit()

    def learn(self, X: Array, y: Any = None, times: Array | None = None) -> WatchResult:
        """Take the next rows, each by the watcher of its device, which `y` names."""
        news: list[Episode] = []
        for session, rows in self._split(X, y):
            news += session.learn(X[rows], None, None if times is None else times[rows]).episodes
            self.n_rows += len(rows)
        return self._counted(news)

    def _split(self, X: Array, y: Any) -> list[tuple[WatchSession, Any]]:
        if y is None:
            raise InputError(f"The rows have no column {self.by!r} to tell their devices by.")
        found = []
        for name, rows in split(y, X):
            if name:
                found.append((self._of(name), rows))
                self._changed[name] = self._changed.get(name, 0) + len(rows)
            else:
                self.n_bad += len(rows)
        return found

    def _counted(self, news: list[Episode]) -> WatchResult:
        self._told |= {(episode.device, episode.number): episode.severity for episode in news}
        return WatchResult(self.n_rows, news)

    def silence(self) -> WatchResult:
        """News of devices in memory of which no row came for long."""
        news: list[Episode] = []
        for name, session in self._sessions.items():
            if found := session.silence().episodes:
                news += found
                self._changed.setdefault(name, 0)
        return self._counted(news)

    def grow(self, columns: Sequence[str]) -> None:
        """Take sensors that appeared; watchers in the state file get them when they are needed again."""
        self.columns += columns
        for name, session in self._sessions.items():
            session.grow(columns)
            self._changed.setdefault(name, 0)

    def commit(self, *, position: dict[str, Any] | None = None) -> None:
        """Write what has changed and the position in one transaction; idle watchers leave the memory."""
        changed = {name: self._sessions[name] for name in self._changed}
        how = self._found.time_format
        source = {"columns": self.columns, "labels": self._found.labels, "time": self._found.time,
                  "time_format": None if how is None else list(how)}  # fmt: skip
        versions = self.store.commit_many(
            {name: (session.model, session.version) for name, session in changed.items()}, rows=self._changed,
            position=None if position is None else {**position, "by": self.by, "watched": source},
            steps={name: session.step() for name, session in changed.items()},
        )  # fmt: skip
        for name, version in versions.items():
            changed[name].committed(version)
        self._changed = {}
        while len(self._sessions) > self.most:
            self._sessions.popitem(last=False)
        self.position = position if position is not None else self.position

    def note(self, kind: str, **details: Any) -> None:
        """Events of the source belong to no device, and are not kept."""

    def leave_out(self, bad_rows: Any) -> None:
        """Count rows that cannot be read."""
        self.n_bad += len(bad_rows)

    def _of(self, name: str) -> WatchSession:
        """The watcher of a device, from memory, from the state file, or new; it is the latest used."""
        found = self._sessions.get(name)
        if found is None:
            before = watched_columns(self.store, name)
            known = self.columns if before is None else before[0]
            # A device that was away while sensors appeared has the first of the columns: the others are new to it.
            known = known if self.columns[: len(known)] == known else self.columns
            found = WatchSession(
                self._new_watcher(known), store=self.store, name=name, healthy_until=self.healthy_until,
                time_column=self._found.time, device=name,
            )  # fmt: skip
            if fresh := self.columns[len(known) :]:
                found.grow(fresh)
            self._sessions[name] = found
        self._sessions.move_to_end(name)
        return found


def known_group_columns(store: Store, by: str) -> Columns | None:
    """The columns that an earlier run with the same column of devices found; None if there was none."""
    match (store.latest_position(by) or {}).get("watched"):
        case {"columns": [*names], "labels": bool(labels), "time": str() | None as time, "time_format": how}:
            columns = Columns(list(np.array(names, dtype=str).tolist()), {}, by, labels, time)
            return columns._replace(time_format=restored_format(how))
    return None
