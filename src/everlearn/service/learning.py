"""Learning behind the service: a pool of threads, each of which learns one model at a time."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from everlearn.errors import StateFileError
from everlearn.service.recent import RecentlyUsed
from everlearn.service.settings import Limits
from everlearn.streams.session import Session
from everlearn.streams.store.records import BadRow, InboxBatch
from everlearn.streams.store.store import Store

_LOG = logging.getLogger(__name__)

N_THREADS = 4
# A model of more columns than this counts as slow until its first step is timed (benchmarks/service.py: a step of 64
# columns takes about 0.3 s).
_WIDE_COLUMNS = 64
_SLOW_SECONDS = 1.0
_FIRST_ROWS, _FEWEST_ROWS = 1024, 256  # learned between two commits
_MOST_VALUES = 1 << 19
_MOST_DROPPED = 1 << 20
_STEP_SECONDS = 0.25
_MOST_STEP_ROWS = 10_000  # models whose number of rows between two commits is remembered
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_COMMIT_SHARE = 0.25  # of the time may go into commits


class Step(NamedTuple):
    """How long a step took: learning, and all around it, which is mostly the commit."""

    learning: float
    overhead: float


class Waiting:
    """A model with rows in the inbox."""

    def __init__(self, now: float) -> None:
        self.since = now  # when rows came, or the latest step began
        self.not_before = now  # end of its pause
        self.more = False  # rows came while the model was being learned


class LearningPool:
    """Threads that learn what is in the inbox, and make all other changes to models.

    A step takes the oldest batches of one model, learns them, and commits model, events and the end of the batches in
    one transaction: after a crash, a row was learned once or is still in the inbox. One model is in the hands of one
    thread at a time, and the models take turns. Models whose steps are slow never occupy all threads, so that one wide
    model delays the others by no more than a step of a fast one.

    Parameters
    ----------
    store : Store
        The models and their inbox.
    learned : callable
        Called with the number of values that left the inbox.
    limits : Limits
        How many models stay in memory between two steps; the others are loaded when rows come for them.

    Attributes
    ----------
    troubles : dict
        Why models are not learned at the moment, by name.
    """

    def __init__(self, store: Store, learned: Callable[[int], None], limits: Limits) -> None:
        self.troubles: dict[str, Exception] = {}
        self._store = store
        self._learned = learned
        self._changed = threading.Condition()
        # Guarded by `_changed`, as are the queues and counts below.
        self._tasks: dict[str, deque[tuple[Callable[[], Any], Future[Any]]]] = {}
        self._waiting: dict[str, Waiting] = {}
        # Models whose turn has come, slow ones apart, with the number of their turn; and those that pause, by time.
        # Tens of thousands may wait: choosing the next one looks at a few of them.
        self._due: dict[bool, OrderedDict[str, int]] = {False: OrderedDict(), True: OrderedDict()}
        self._turns = itertools.count()
        self._paused: list[tuple[float, str]] = []
        self._busy: set[str] = set()
        self._slow_busy = 0
        self._slow: dict[str, float] = {}
        self._step_rows: RecentlyUsed[int] = RecentlyUsed(_MOST_STEP_ROWS)
        self._sessions: RecentlyUsed[Session] = RecentlyUsed(limits.models_in_memory, limits.memory_bytes // 2)
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"everlearn-learning-{i}", daemon=True) for i in range(N_THREADS)
        ]

    def start(self) -> None:
        """Begin to learn."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the current steps; what is in the inbox stays there."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def is_alive(self) -> bool:
        """Whether all threads run."""
        return all(thread.is_alive() for thread in self._threads)

    def arrived(self, widths: dict[str, int]) -> None:
        """Say that rows are in the inbox: names of models, and how many columns the rows have."""
        now = time.monotonic()
        with self._changed:
            for name, n_columns in widths.items():
                if n_columns > _WIDE_COLUMNS:
                    self._slow.setdefault(name, 2 * _SLOW_SECONDS)
                if name not in self._waiting:
                    self._waiting[name] = Waiting(now)
                    self._give_turn(name)
                self._waiting[name].more = True
            self._changed.notify_all()

    def call(self, name: str, function: Callable[[], Any]) -> Future[Any]:
        """Run a function between two steps of a model, before rows that wait."""
        done: Future[Any] = Future()
        with self._changed:
            # A future that nobody would ever set would keep its request waiting for the whole shutdown.
            if self._stopping:
                done.set_exception(StateFileError("The service is stopping. Send the request again in a moment."))
                return done
            self._tasks.setdefault(name, deque()).append((function, done))
            self._changed.notify_all()
        return done

    def longest_stall(self) -> float:
        """Seconds since the model that is worst off had rows to learn and learned none."""
        now = time.monotonic()
        with self._changed:
            return max((now - waiting.since for waiting in self._waiting.values()), default=0.0)

    # -- scheduling -------------------------------------------------------------------------------

    def _run(self) -> None:
        """Take one job after the other until told to stop."""
        while (chosen := self._next_model()) is not None:
            name, slow = chosen
            try:
                # Changes that a person waits for go before rows, which wait on the disk.
                if not self._run_task(name):
                    self._run_step(name)
            finally:
                with self._changed:
                    self._busy.discard(name)
                    self._slow_busy -= slow
                    self._changed.notify_all()

    def _next_model(self) -> tuple[str, bool] | None:
        """Wait for a model that has work and that nobody works on, and whether it is slow; None to stop."""
        with self._changed:
            while not self._stopping:
                name, patience = self._choose(time.monotonic())
                if name is not None:
                    slow = self._is_slow(name)
                    self._busy.add(name)
                    self._slow_busy += slow
                    return name, slow
                self._changed.wait(patience)
        return None

    def _choose(self, now: float) -> tuple[str | None, float | None]:
        """The next model, or how long there is nothing to do."""
        for name in self._tasks:
            if name not in self._busy:
                return name, None
        self._end_pauses(now)
        heads = [
            (turn, name)
            for slow in (False, True)
            # One thread is left for fast models: four wide ones could otherwise hold all threads for seconds each.
            if not slow or self._slow_busy < N_THREADS - 1
            for name, turn in itertools.islice(self._free(slow), 1)
        ]
        if heads:
            return min(heads)[1], None
        return None, self._paused[0][0] - now if self._paused else None

    def _free(self, slow: bool) -> Iterator[tuple[str, int]]:
        """Models whose turn has come and that nobody works on, in the order of their turns."""
        return ((name, turn) for name, turn in self._due[slow].items() if name not in self._busy)

    def _end_pauses(self, now: float) -> None:
        while self._paused and self._paused[0][0] <= now:
            until, name = heapq.heappop(self._paused)
            # A model that was deleted, and perhaps made again, has left its entry here.
            if name in self._waiting and self._waiting[name].not_before == until:
                self._give_turn(name)

    def _give_turn(self, name: str) -> None:
        self._due[self._is_slow(name)][name] = next(self._turns)

    def _take_turn(self, name: str) -> None:
        for due in self._due.values():
            due.pop(name, None)

    def _pause(self, name: str, seconds: float) -> None:
        """Let a model wait before its next step."""
        self._take_turn(name)
        self._waiting[name].not_before = time.monotonic() + seconds
        heapq.heappush(self._paused, (self._waiting[name].not_before, name))

    def _is_slow(self, name: str) -> bool:
        return name in self._slow

    def _run_task(self, name: str) -> bool:
        """Run the oldest task of a model; False if there is none."""
        with self._changed:
            tasks = self._tasks.get(name)
            if not tasks:
                return False
            function, done = tasks.popleft()
            if not tasks:
                del self._tasks[name]
        try:
            result = function()
        # Whatever it is belongs to the request that asked; a thread that ended by it would be missing for all models.
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)
        return True

    def _run_step(self, name: str) -> None:
        """Learn some rows of a model and say when it is its turn again; a failure concerns this model alone."""
        with self._changed:
            if name in self._waiting:
                # Before the inbox is read: rows that come from here on set it again, and are not overlooked when the
                # inbox seems empty.
                self._waiting[name].more = False
        started = time.monotonic()
        try:
            step = self._step(name)
            self.troubles.pop(name, None)
        except Exception as error:
            # The model in memory may have learned a part of the batch. The store has the one before it: it is loaded
            # again.
            self.forget(name)
            self.troubles[name] = error
            _LOG.error(
                "%s is not learned for %.0f s: %s", name, _LONGEST_PAUSE, error,
                exc_info=not isinstance(error, OSError | ValueError),
            )  # fmt: skip
            with self._changed:
                if name in self._waiting:
                    self._pause(name, _LONGEST_PAUSE)
            return
        with self._changed:
            self._take_turns(name, step, started)

    def _take_turns(self, name: str, step: Step | None, started: float) -> None:
        """Put a model at the end of the queue, or out of it if it has no rows left."""
        waiting = self._waiting.get(name)
        if waiting is None:
            return
        if step is None:
            if not waiting.more:
                self._take_turn(name)
                del self._waiting[name]
            return
        seconds = step.learning + step.overhead
        self._slow.pop(name, None)
        if seconds > _SLOW_SECONDS:
            self._slow[name] = seconds
        # All models together spend a quarter of the time on commits: each pauses for its own commit times their number.
        pause = step.overhead * (1.0 / _COMMIT_SHARE - 1.0) * len(self._waiting)
        waiting.since = started
        self._pause(name, min(max(pause, _SHORTEST_PAUSE), _LONGEST_PAUSE))

    # -- steps ------------------------------------------------------------------------------------

    def _step(self, name: str) -> Step | None:
        """Learn the oldest batches of a model; None if there are none."""
        # A batch that was queued before the deletion can be written behind it. Without this it would wait for ever, and
        # count against the limit of waiting values.
        if self._store.entry(name) is None:  # deleted while its rows were on the way
            self._learned(sum(batch.X.size for batch in self._store.take(name, limit_rows=_MOST_DROPPED)))
            self._store.delete(name)
            return None
        batches = self._store.take(name, limit_rows=self._step_rows.get(name) or _FIRST_ROWS)
        if not batches:
            return None
        started = time.monotonic()
        try:
            learned = self._learn(self.session(name), batches)
        # Of the disk or the file: no batch is to blame, none may be left out. They stay in the inbox and are tried
        # again.
        except (StateFileError, OSError):
            raise
        except Exception as error:
            # Batches of several senders were learned together: the one that is refused must not take the others along.
            _LOG.warning("batches of %s are learned one by one, because of %r", name, error)
            learned = sum(self._learn_or_leave_out(name, batch) for batch in batches)
        self._learned(sum(batch.X.size for batch in batches))
        step = Step(learned, time.monotonic() - started - learned)
        self._adapt(name, batches, step)
        return step

    def _adapt(self, name: str, batches: list[InboxBatch], step: Step) -> None:
        """Take as many rows the next time as are learned in a quarter of a second, or in a few times the commit."""
        n_rows, n_columns = sum(len(batch.X) for batch in batches), batches[0].X.shape[1]
        wanted = max(_STEP_SECONDS, step.overhead / _COMMIT_SHARE)
        # By a factor of two at most: one step that was slow for other reasons does not decide.
        growth = min(max(wanted / max(step.learning, 1e-3), 0.5), 2.0)
        most = max(_FEWEST_ROWS, _MOST_VALUES // n_columns)
        if n_rows >= (self._step_rows.get(name) or _FIRST_ROWS):
            self._step_rows.put(name, min(max(int(n_rows * growth), _FEWEST_ROWS), most))

    def _learn(self, session: Session, batches: list[InboxBatch]) -> float:
        """Learn batches and commit; returns the seconds of learning. After a failure the store is as before."""
        started = time.monotonic()
        try:
            session.learn(np.concatenate([batch.X for batch in batches]), _targets(batches))
            learned = time.monotonic() - started
            session.commit(taken=batches[-1].id)
        except BaseException:
            self.forget(session.name)
            raise
        return learned

    def _learn_or_leave_out(self, name: str, batch: InboxBatch) -> float:
        """Learn one batch; if that fails, take note of its rows as bad and let them go."""
        try:
            return self._learn(self.session(name), [batch])
        except OSError:
            raise
        except Exception as error:
            session, reason = self.session(name), f"{type(error).__name__}: {error}"[:200]
            rows = [BadRow(f"batch {batch.id}, row {i}", reason, str(row)) for i, row in enumerate(batch.X)]
            session.leave_out(rows)
            # The rows leave the inbox together with the note about them; otherwise the model would fail on them for
            # ever.
            session.commit(taken=batch.id)
            return 0.0

    # -- for tasks, which run between two steps of a model ------------------------------------------

    def session(self, name: str) -> Session:
        """The session of a model that the store holds."""
        session, entry = self._sessions.get(name), self._store.entry(name)
        if session is None:
            position = self._store.position(name) or {}
            columns = position.get("inbox", {}).get("columns")
            # Counting components may need the end of a search: not for one row of one of ten thousand models.
            count_later = entry is not None and entry.n_rows > 0
            session = Session(None, store=self._store, name=name, columns=columns, count_later=count_later)
        self._sessions.put(name, session, 0 if entry is None else entry.bytes)
        return session

    def forget(self, name: str) -> None:
        """Drop what is in memory of a model; the store has it."""
        self._sessions.pop(name)
        self._step_rows.pop(name)

    def delete(self, name: str) -> None:
        """Drop all that is known of a model which leaves the store."""
        self.forget(name)
        with self._changed:
            self._take_turn(name)
            self._waiting.pop(name, None)
            self._slow.pop(name, None)
        self.troubles.pop(name, None)

    def merge(self, name: str, other: Any) -> None:
        """Put what another model knows into one of the store."""
        session = self.session(name)
        with contextlib.ExitStack() as undo:
            # A merge or a commit that fails leaves a model in memory that the store does not have.
            undo.callback(self.forget, name)
            session.merge(other)
            session.commit()
            undo.pop_all()


def _targets(batches: list[InboxBatch]) -> Any:
    """Targets of all rows, None for a model without one."""
    if batches[0].y is None:
        return None
    return np.array([target for batch in batches for target in batch.y or []])
