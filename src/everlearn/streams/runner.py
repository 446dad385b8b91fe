"""The runner: reads a source, learns, commits, and goes on whatever happens.

A step is a batch of the source. The model after it, the position behind it, and all that happened are committed in
one transaction, once a second or so; a program that is killed goes on from the latest commit, reads the same batches
again and learns them in the same steps. The final model is therefore the same, bit for bit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from everlearn.errors import InputError, SourceLostError
from everlearn.streams.backoff import Backoff, retry
from everlearn.streams.outputs import Outputs
from everlearn.streams.prequential import PrequentialResult
from everlearn.streams.session import Session
from everlearn.streams.sources.parsing import Batch
from everlearn.streams.sources.source import Prefetcher, Source

COMMIT_SECONDS = 1.0
# This share keeps the cost of commits bounded for a large model without a setting: one that takes 2 s to write is
# written every 20 s.
_COMMIT_SHARE = 0.1  # of the time at most goes into commits
_MOST_WAITING = 100_000  # records that wait to be written


class Runner:
    """Learns a source to its end.

    Parameters
    ----------
    source : Source
        Where rows come from.
    session : Session
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
    stop : threading.Event, optional
        Ends the run after the rows that are being learned once it is set.
    rows_at_once : int, optional
        Rows that are learned between two looks at `stop`; a whole batch by default.
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
        session: Session,
        *,
        outputs: Outputs | None = None,
        strict: bool = False,
        n_rows: int | None = None,
        commit_seconds: float | None = None,
        patience: float | None = None,
        stop: threading.Event | None = None,
        rows_at_once: int | None = None,
        say: Callable[[str], None] = lambda message: None,
        watch: Callable[[Batch | None, PrequentialResult | None], None] = lambda batch, result: None,
    ) -> None:
        self.source = source
        self.session = session
        self.outputs = outputs
        self.strict = strict
        self.n_rows = n_rows
        self.commit_seconds = COMMIT_SECONDS if commit_seconds is None else commit_seconds
        self.patience = patience
        self.stop = threading.Event() if stop is None else stop
        self.rows_at_once = rows_at_once
        self.say = say
        self.watch = watch
        self.n_learned = self.n_bad = 0
        before = session.position or {}
        self._position = before.get("source")
        self._skip = int(before.get("skip", 0))  # rows of the next batch that were learned before a limit of rows
        self._dirty = False
        self._lost: Backoff | None = None
        # Seconds of the latest commit, and how long it took.
        self._committed, self._cost = time.monotonic(), 0.0

    def run(self) -> None:
        """Learn until the source ends, `n_rows` are learned, or `stop` is set; then commit."""
        # Closing ends the thread that reads, also when learning raises.
        with contextlib.closing(self._batches()) as batches:
            for batch in batches:
                if batch is None:
                    self.watch(None, None)
                else:
                    self._learn_batch(batch)
                self._commit_if_due(idle=batch is None)
                if self.stop.is_set() or self.n_learned == self.n_rows:
                    break
        self.commit()

    def commit(self) -> None:
        """Write everything up to here, waiting if the disk is full."""

        def write() -> None:
            # Outputs first: their positions are part of the commit, and what lies behind them is cut off after a crash.
            outputs = self.outputs.flush() if self.outputs else {}
            self.session.commit(position={"source": self._position, "skip": self._skip, "outputs": outputs})

        def say_full(error: Exception) -> None:
            self.say(f"{error} Waiting; learning goes on when there is room again.")
            self.session.note("waiting for the disk", reason=str(error)[:300])

        started = time.monotonic()
        retry(write, limit=self.patience, stop=self.stop, say=say_full)
        self._committed = time.monotonic()
        self._cost = self._committed - started
        self._dirty = False
        # Only now: a broker that forgets what was acknowledged must not forget what is not on the disk.
        if self._position is not None:
            self.source.acknowledge(self._position)

    # -- reading ----------------------------------------------------------------------------------

    def _batches(self) -> Generator[Batch | None, None, None]:
        """Batches from where the run stands, read again from there after the source was lost; None while it waits."""
        while self.n_learned != self.n_rows:
            # A new thread, from where learning stands and not from where reading stood: batches that were read ahead
            # and not learned are read again.
            prefetcher = Prefetcher(self.source, self._position)
            try:
                yield from prefetcher
                return
            except SourceLostError as error:
                if not self._wait_for_source(error):
                    return
            finally:
                prefetcher.close()

    def _learn_batch(self, batch: Batch) -> None:
        """Learn a batch, without the rows that were learned before, up to the last row that is wanted."""
        if self._lost:
            self._lost = None
            self.say(f"{self.source.place} is back.")
            self.session.note("source back", place=self.source.place)
        for note in batch.notes:
            self.say(note)
            self.session.note("source changed", reason=note[:300])
        if batch.grown:
            grow: Any = self.session
            grow.grow(batch.grown)  # only sources that were opened to grow have such batches
        # Learned whole before the restart. A live stream may come in smaller batches than it did then.
        if self._skip >= len(batch.X) > 0:
            self._position, self._skip = batch.position or self._position, self._skip - len(batch.X)
            return
        left = len(batch.X) if self.n_rows is None else self.n_rows - self.n_learned
        end = min(len(batch.X), self._skip + left)
        # Bad rows belong to the whole batch. One that is not learned to its end is read again, and refused then.
        if end == len(batch.X):
            self._refuse_bad_rows(batch)
        # What is left of a batch that cannot be read again would be lost: such a batch is one piece.
        most = self.rows_at_once if self.rows_at_once and self.source.replayable else end
        learned = self._skip
        while learned < end and (learned == self._skip or not self.stop.is_set()):
            rows = batch.part(learned, min(learned + most, end))
            result = self.session.learn(rows.X, rows.y, rows.times)
            self.n_learned, learned = self.n_learned + len(rows.X), learned + len(rows.X)
            if self.outputs:
                self.outputs.write(rows, result, self.session.model)
            self.watch(rows, result)
        if learned == len(batch.X):  # bad rows count once, with the last row of their batch
            self.n_bad += len(batch.bad)
            self.session.leave_out(batch.bad)
            self._position, self._skip = batch.position or self._position, 0
        else:
            # The position stays before the batch, and this many of its rows are passed over when it is read again: a
            # position within a batch would cut the rest of the stream into other batches, and the model would not be
            # the same bit for bit.
            self._skip = learned
        self._dirty = True

    def _refuse_bad_rows(self, batch: Batch) -> None:
        if batch.bad and self.strict:
            bad = batch.bad[0]
            raise InputError(f"{bad.place}: {bad.reason}: {bad.text[:200]!r}. Without --strict it is left out.")

    def _commit_if_due(self, *, idle: bool) -> None:
        if not self._dirty:
            return
        # A model that takes long to write is written less often.
        due = max(self.commit_seconds, self._cost / _COMMIT_SHARE)
        full = self.outputs is not None and self.outputs.n_waiting > _MOST_WAITING
        full = full or getattr(self.session, "is_full", False)  # groups keep so many models in memory
        # An idle stream is committed at once, as nothing else is to be done; so is a source that cannot be read again,
        # whose rows exist nowhere else.
        if idle or full or not self.source.replayable or time.monotonic() - self._committed >= due:
            self.commit()

    def _wait_for_source(self, error: SourceLostError) -> bool:
        """Wait a while; returns whether to try again, or raises when patience is at its end."""
        # Once for each loss: `_learn_batch` resets it when rows come again. The commit comes before the wait, which may
        # be hours.
        if self._lost is None:
            self._lost = Backoff(self.patience, self.stop)
            self.say(f"{error} Waiting for it to come back; everything up to here is safe.")
            self.session.note("source lost", reason=str(error)[:300])
            self.commit()
        try:
            self._lost.wait(error)
        except SourceLostError:
            if not self.stop.is_set():
                raise
        return not self.stop.is_set()
