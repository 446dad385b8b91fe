"""Rows are on the disk before they are acknowledged; requests that come together share one flush of it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from everlearn.streams.store.store import Store
from everlearn.typing import Array

# Bounds a transaction, and with it how long the first of its requests waits.
_MOST_TOGETHER = 512


class Put(NamedTuple):
    """Rows of one request."""

    name: str
    X: Array
    y: list[Any] | None
    key: str | None
    done: Future[int]


class Inbox(threading.Thread):
    """A thread that writes what waits in its queue to the store's inbox, all of it in one transaction.

    Parameters
    ----------
    store : Store
        Where the rows go.
    arrived : callable
        Called with the names of the models whose rows are now on the disk, and the number of their columns.
    dropped : callable
        Called with the number of values of a batch that did not go into the inbox: it could not be written, or it is
        there, or was learned, already.
    """

    def __init__(self, store: Store, arrived: Callable[[dict[str, int]], None], dropped: Callable[[int], None]) -> None:
        super().__init__(name="everlearn-inbox", daemon=True)
        self._store = store
        self._arrived = arrived
        self._dropped = dropped
        self._queue: queue.SimpleQueue[Put | None] = queue.SimpleQueue()
        self._latest = store.latest_batch()

    def put(self, name: str, X: Array, y: list[Any] | None, key: str | None) -> Future[int]:
        """Ask for rows to be kept; the result is the id of the batch, there once it is durable."""
        done: Future[int] = Future()
        self._queue.put(Put(name, X, y, key, done))
        return done

    def stop(self) -> None:
        """Write what waits, and end."""
        self._queue.put(None)
        self.join()

    def run(self) -> None:
        """Write batches as they come, until told to stop."""
        while (first := self._queue.get()) is not None:
            # Group commit: a flush of the disk takes milliseconds, in which further requests queue up and share the
            # next one.
            puts, more = self._gather(first)
            self._write(puts)
            if not more:
                return

    def _gather(self, first: Put) -> tuple[list[Put], bool]:
        """All that waits behind `first`, up to a limit, and whether there will be more."""
        puts = [first]
        while len(puts) < _MOST_TOGETHER:
            try:
                put = self._queue.get_nowait()
            except queue.Empty:
                break
            if put is None:
                return puts, False
            puts.append(put)
        return puts, True

    def _write(self, puts: list[Put]) -> None:
        try:
            ids = self._store.put(
                [(put.name, put.X) for put in puts],
                keys=[put.key for put in puts],
                targets=[put.y for put in puts],
            )
        # All of them or none: what one batch breaks, as a full disk does, holds for the others. Senders repeat with
        # their keys.
        except Exception as error:
            for put in puts:
                self._dropped(put.X.size)
                put.done.set_exception(error)
            return
        for put, number in zip(puts, ids, strict=True):
            # Ids only grow: a batch whose key was known has an id that was given before, and nothing was added.
            if number > self._latest:
                self._latest = number
            else:
                self._dropped(put.X.size)
        # Behind the commit and before the answers: the learner finds the rows on the disk, and who asks right after the
        # answer finds them waiting.
        self._arrived({put.name: put.X.shape[1] for put in puts})
        for put, number in zip(puts, ids, strict=True):
            put.done.set_result(number)
