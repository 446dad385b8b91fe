"""The one writer: a thread through which every change to a model passes."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from everlearn.errors import StateFileError
from everlearn.streams.session import Session
from everlearn.streams.store.records import BadRow, InboxBatch
from everlearn.streams.store.store import Store

_LOG = logging.getLogger(__name__)
_FIRST_ROWS, _FEWEST_ROWS = 1024, 256  # learned between two commits
_MOST_VALUES = 1 << 19
_STEP_SECONDS = 0.25
_MOST_LEARNERS = 16
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_COMMIT_SHARE = 0.25  # of the time may go into commits

Task = Callable[[], None]


class Writer(threading.Thread):
    """Learns what is in the inbox, model after model, and runs other changes in between.

    A step takes the oldest batches of one model, learns them, and commits model, events and the end of the batches in
    one transaction: after a crash, a row was learned once or is still in the inbox.

    Parameters
    ----------
    store : Store
        The models and their inbox.
    learned : callable
        Called with the number of values that left the inbox.
    """

    def __init__(self, store: Store, learned: Callable[[int], None]) -> None:
        super().__init__(name="everlearn-writer", daemon=True)
        self.trouble: str | None = None
        self._store = store
        self._learned = learned
        self._queue: queue.SimpleQueue[Task | set[str] | None] = queue.SimpleQueue()
        self._learners: OrderedDict[str, Session] = OrderedDict()
        self._waiting: set[str] = set()
        self._step_rows: dict[str, int] = {}
        self._next_round = 0.0

    def arrived(self, names: set[str]) -> None:
        """Say that rows of these models are in the inbox."""
        self._queue.put(names)

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Run a function in this thread, between two steps."""
        done: Future[Any] = Future()

        def task() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        self._queue.put(task)
        return done

    def stop(self) -> None:
        """End after the current step; what is in the inbox stays there."""
        self._queue.put(None)
        self.join()

    def run(self) -> None:
        """Take tasks and steps in turn, until told to stop."""
        while True:
            try:
                item = self._queue.get(timeout=self._patience())
            except queue.Empty:
                item = set()
            if item is None:
                return
            if isinstance(item, set):
                self._waiting |= item
            else:
                item()
            if self._waiting and time.monotonic() >= self._next_round:
                self._round()

    def _patience(self) -> float | None:
        return max(0.0, self._next_round - time.monotonic()) if self._waiting else None

    def _round(self) -> None:
        """One step of every model that has rows, and then a pause in which more of them can come."""
        overhead = 0.0
        try:
            for name in sorted(self._waiting):
                overhead += self._step(name)
            self.trouble = None
        except Exception as error:
            self._learners.clear()
            self.trouble = str(error)
            _LOG.error(
                "learning stopped for %.0f s: %s", _LONGEST_PAUSE, error, exc_info=not isinstance(error, OSError)
            )
            overhead = _LONGEST_PAUSE
        pause = min(max(overhead / _COMMIT_SHARE - overhead, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        self._next_round = time.monotonic() + pause

    def _step(self, name: str) -> float:
        """Learn the oldest batches of a model; returns the seconds that the commit took."""
        if self._store.entry(name) is None:
            self._store.delete(name)
            self._waiting.discard(name)
            return 0.0
        learner = self.learner(name)
        n_rows = self._step_rows.get(name, _FIRST_ROWS)
        batches = self._store.take(name, limit_rows=n_rows)
        if not batches:
            self._waiting.discard(name)
            return 0.0
        started = time.monotonic()
        try:
            learned = self._learn(learner, batches)
        except (StateFileError, OSError):
            raise
        except Exception as error:
            _LOG.warning("batches of %s are learned one by one, because of %r", name, error)
            learned = sum(self._learn_or_leave_out(name, batch) for batch in batches)
        self._learned(sum(batch.X.size for batch in batches))
        overhead = time.monotonic() - started - learned
        self._adapt(name, batches, learned, overhead)
        return overhead

    def _adapt(self, name: str, batches: list[InboxBatch], learned: float, overhead: float) -> None:
        """Take as many rows the next time as are learned in a quarter of a second, or in a few times the commit."""
        n_rows, n_columns = sum(len(batch.X) for batch in batches), batches[0].X.shape[1]
        wanted = max(_STEP_SECONDS, overhead / _COMMIT_SHARE)
        growth = min(max(wanted / max(learned, 1e-3), 0.5), 2.0)
        most = max(_FEWEST_ROWS, _MOST_VALUES // n_columns)
        if n_rows >= self._step_rows.get(name, _FIRST_ROWS):
            self._step_rows[name] = min(max(int(n_rows * growth), _FEWEST_ROWS), most)

    def _learn(self, learner: Session, batches: list[InboxBatch]) -> float:
        """Learn batches and commit; returns the seconds of learning. After a failure the store is as before."""
        started = time.monotonic()
        try:
            learner.learn(np.concatenate([batch.X for batch in batches]))
            learned = time.monotonic() - started
            learner.commit(taken=batches[-1].id)
        except BaseException:
            self.forget(learner.name)
            raise
        return learned

    def _learn_or_leave_out(self, name: str, batch: InboxBatch) -> float:
        try:
            return self._learn(self.learner(name), [batch])
        except OSError:
            raise
        except Exception as error:
            learner, reason = self.learner(name), f"{type(error).__name__}: {error}"[:200]
            rows = [BadRow(f"batch {batch.id}, row {i}", reason, str(row)) for i, row in enumerate(batch.X)]
            learner.leave_out(rows)
            learner.commit(taken=batch.id)
            return 0.0

    # -- for tasks, which run in this thread -----------------------------------------------------------

    def learner(self, name: str) -> Session:
        """The learner of a model that the store holds."""
        learner = self._learners.pop(name, None)
        if learner is None:
            position = self._store.position(name) or {}
            columns = position.get("inbox", {}).get("columns")
            learner = Session(self._store.load(name), store=self._store, name=name, columns=columns)
        self._learners[name] = learner
        if len(self._learners) > _MOST_LEARNERS:
            self._learners.popitem(last=False)
        return learner

    def forget(self, name: str) -> None:
        """Drop what is in memory of a model; the store has it."""
        self._learners.pop(name, None)
        self._step_rows.pop(name, None)

    def merge(self, name: str, other: Any) -> None:
        """Put what another model knows into one of the store."""
        learner = self.learner(name)
        try:
            learner.merge(other)
            learner.commit()
        except BaseException:
            self.forget(name)
            raise
