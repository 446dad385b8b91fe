"""Rows are on the disk before they are acknowledged; requests that come together share one flush of it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.streams.store.store import Store

Array = NDArray[np.float64]

_MOST_TOGETHER = 512


class Put(NamedTuple):
    """Rows of one request."""

    name: str
    X: Array
    key: str | None
    done: Future[int]


class Inbox(threading.Thread):
    """A thread that writes what waits in its queue to the store's inbox, all of it in one transaction.

    Parameters
    ----------
    store : Store
        Where the rows go.
    arrived : callable
        Called with the names of the models whose rows are now on the disk.
    """

    def __init__(self, store: Store, arrived: Callable[[set[str]], None]) -> None:
        super().__init__(name="everlearn-inbox", daemon=True)
        self._store = store
        self._arrived = arrived
        self._queue: queue.SimpleQueue[Put | None] = queue.SimpleQueue()

    def put(self, name: str, X: Array, key: str | None) -> Future[int]:
        """Ask for rows to be kept; the result is the id of the batch, there once it is durable."""
        done: Future[int] = Future()
        self._queue.put(Put(name, X, key, done))
        return done

    def stop(self) -> None:
        """Write what waits, and end."""
        self._queue.put(None)
        self.join()

    def run(self) -> None:
        """Write batches as they come, until told to stop."""
        while (first := self._queue.get()) is not None:
            puts, more = self._together(first)
            self._write(puts)
            if not more:
                return

    def _together(self, first: Put) -> tuple[list[Put], bool]:
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
            ids = self._store.put([(put.name, put.X) for put in puts], keys=[put.key for put in puts])
        except Exception as error:
            for put in puts:
                put.done.set_exception(error)
            return
        self._arrived({put.name for put in puts})
        for put, number in zip(puts, ids, strict=True):
            put.done.set_result(number)
