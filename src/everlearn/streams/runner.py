"""The runner: reads a source, learns, commits, and goes on whatever happens.

A step is a batch of the source. The model after it, the position behind it, and all that happened are committed in
one transaction, once a second or so; a program that is killed goes on from the latest commit, reads the same batches
again and learns them in the same steps. The final model is therefore the same, bit for bit.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Any

from everlearn.errors import InputError, SourceLostError
from everlearn.streams.outputs import Outputs
from everlearn.streams.prequential import Foresight
from everlearn.streams.session import Learner
from everlearn.streams.sources.source import Ahead, Batch, Source
from everlearn.streams.store.records import BadRow

COMMIT_SECONDS = 1.0
_COMMIT_SHARE = 0.1  # of the time at most goes into commits
_MOST_WAITING = 100_000  # records that wait to be written
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 15.0
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBUSY, errno.EAGAIN)


class Patience:
    """Waits longer each time, up to a limit.

    Parameters
    ----------
    limit : float or None
        Seconds to wait in all; None for ever.
    stop : threading.Event
        Ends the waiting.
    """

    def __init__(self, limit: float | None, stop: threading.Event) -> None:
        self._end = None if limit is None else time.monotonic() + limit
        self._stop = stop
        self._wait = _FIRST_WAIT

    def wait(self, error: Exception) -> None:
        """Wait a while; raises the error once it has been long enough."""
        left = float("inf") if self._end is None else self._end - time.monotonic()
        if left <= 0 or self._stop.wait(min(self._wait, left)):
            raise error
        self._wait = min(2 * self._wait, _LONGEST_WAIT)


def patiently(
    action: Callable[[], Any], *, limit: float | None, stop: threading.Event, say: Callable[[Exception], None]
) -> Any:
    """Do something that fails while a source is lost or a disk is full, again and again until it succeeds."""
    patience = None
    while True:
        try:
            return action()
        except OSError as error:
            if not isinstance(error, SourceLostError) and error.errno not in _PASSING:
                raise
            if patience is None:
                patience = Patience(limit, stop)
                say(error)
            patience.wait(error)


class Runner:
    """Learns a source to its end.

    Parameters
    ----------
    source : Source
        Where rows come from.
    learner : Learner
        Learns and keeps; it knows the position to begin at.
    outputs : Outputs, optional
        Where answers go.
    strict : bool, default=False
        Whether a bad row ends the run.
    n_rows : int, optional
        Rows to learn at most.
    commit_seconds : float, optional
        Seconds between two commits, one by default, more when commits take long.
    patience : float, optional
        Seconds to wait for a lost source or a full disk; for ever by default.
    say : function, optional
        Takes each message for the person who watches.
    watch : function, optional
        Takes each batch and what it was to the model; None and None when there was no batch for a while.

    Attributes
    ----------
    n_learned, n_bad : int
        Rows learned and left out in this run.
    """

    def __init__(
        self,
        source: Source,
        learner: Learner,
        *,
        outputs: Outputs | None = None,
        strict: bool = False,
        n_rows: int | None = None,
        commit_seconds: float | None = None,
        patience: float | None = None,
        say: Callable[[str], None] = lambda message: None,
        watch: Callable[[Batch | None, Foresight | None], None] = lambda batch, seen: None,
    ) -> None:
        self.source = source
        self.learner = learner
        self.outputs = outputs
        self.strict = strict
        self.n_rows = n_rows
        self.commit_seconds = COMMIT_SECONDS if commit_seconds is None else commit_seconds
        self.patience = patience
        self.say = say
        self.watch = watch
        self.stop = threading.Event()
        self.n_learned = self.n_bad = 0
        before = learner.position or {}
        self._position = before.get("source")
        self._skip = int(before.get("skip", 0))
        self._dirty = False
        self._lost: Patience | None = None
        self._committed, self._cost = time.monotonic(), 0.0

    def run(self) -> None:
        """Learn until the source ends, `n_rows` are learned, or `stop` is set; then commit."""
        while self.n_learned != self.n_rows:
            try:
                self._read()
                break
            except SourceLostError as error:
                if not self._wait_for_source(error):
                    break
        self.commit()

    def commit(self) -> None:
        """Write everything up to here, waiting if the disk is full."""
        started = time.monotonic()
        patiently(self._commit, limit=self.patience, stop=self.stop, say=self._say_full)
        self._committed = time.monotonic()
        self._cost = self._committed - started
        self._dirty = False
        if self._position is not None:
            self.source.acknowledge(self._position)

    def _commit(self) -> None:
        sinks = self.outputs.flush() if self.outputs else {}
        self.learner.commit(position={"source": self._position, "skip": self._skip, "sinks": sinks})

    # -- reading ----------------------------------------------------------------------------------

    def _read(self) -> None:
        ahead = Ahead(self.source, self._position)
        try:
            for batch in ahead:
                if batch is None:
                    self.watch(None, None)
                else:
                    self._take(batch)
                self._commit_if_due(idle=batch is None)
                if self.stop.is_set() or self.n_learned == self.n_rows:
                    return
        finally:
            ahead.close()

    def _take(self, batch: Batch) -> None:
        """Learn a batch, without the rows that were learned before, up to the last row that is wanted."""
        if self._lost:
            self._lost = None
            self.say(f"{self.source.place} is back.")
            self.learner.note("source back", place=self.source.place)
        if self._skip >= len(batch.X) > 0:
            self._position, self._skip = batch.position, self._skip - len(batch.X)
            return
        left = len(batch.X) if self.n_rows is None else self.n_rows - self.n_learned
        end = min(len(batch.X), self._skip + left)
        whole = end == len(batch.X)
        self._learn(_part(batch, self._skip, end), batch.bad if whole else [])
        self._position, self._skip = (batch.position, 0) if whole else (self._position, end)
        self._dirty = True

    def _learn(self, batch: Batch, bad: list[BadRow]) -> None:
        if bad and self.strict:
            raise InputError(
                f"{bad[0].place}: {bad[0].reason}: {bad[0].text[:200]!r}. Without --strict it is left out."
            )
        self.n_bad += len(bad)
        self.learner.leave_out(bad)
        if len(batch.X):
            seen = self.learner.learn(batch.X, batch.y)
            self.n_learned += len(batch.X)
            if self.outputs:
                self.outputs.write(batch, seen, self.learner.model)
            self.watch(batch, seen)

    def _commit_if_due(self, *, idle: bool) -> None:
        if not self._dirty:
            return
        due = max(self.commit_seconds, self._cost / _COMMIT_SHARE)
        full = self.outputs is not None and self.outputs.n_waiting > _MOST_WAITING
        if idle or full or not self.source.replayable or time.monotonic() - self._committed >= due:
            self.commit()

    # -- trouble ----------------------------------------------------------------------------------

    def _wait_for_source(self, error: SourceLostError) -> bool:
        """Wait a while; returns whether to try again, or raises when patience is at its end."""
        if self._lost is None:
            self._lost = Patience(self.patience, self.stop)
            self.say(f"{error} Waiting for it to come back; everything up to here is safe.")
            self.learner.note("source lost", reason=str(error)[:300])
            self.commit()
        try:
            self._lost.wait(error)
        except SourceLostError:
            if not self.stop.is_set():
                raise
        return not self.stop.is_set()

    def _say_full(self, error: Exception) -> None:
        self.say(f"{error} Waiting; learning goes on when there is room again.")
        self.learner.note("waiting for the disk", reason=str(error)[:300])


def _part(batch: Batch, start: int, stop: int) -> Batch:
    if start == 0 and stop == len(batch.X):
        return batch
    return batch._replace(X=batch.X[start:stop], y=None if batch.y is None else batch.y[start:stop])
