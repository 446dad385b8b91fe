"""What a source of rows is: batches with the position after each, so that reading can go on from any of them."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np

from everlearn.base.estimator import as_rows, column_names
from everlearn.errors import SourceLostError
from everlearn.streams.sources.parsing import Batch, Position, without_infinities
from everlearn.streams.sources.schema import Columns

# Errors of a network file system or a busy device, which pass: worth another try.
_TRANSIENT = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY)
# Two batches are enough to keep the thread that learns busy; more would only hold memory.
_PREFETCHED = 2


class Source:
    """A stream of rows that can be read from any position that it has given.

    The same position gives the same rows in the same batches, as long as the stream did not have to wait for rows in
    between.
    """

    columns: Columns
    place: str
    """What to call the source in messages."""
    live = False
    """Whether rows may still come when all have been read."""
    replayable = True
    """Whether rows can be read again after a restart."""

    def batches(self, position: Position | None = None) -> Iterator[Batch]:
        """Batches from a position on; waits for rows in a live source.

        Raises
        ------
        SourceLostError
            The source cannot be reached at the moment.
        """
        raise NotImplementedError

    def progress(self) -> tuple[int, int] | None:
        """How much was read, and how much there is in all; None where nobody knows."""
        return None

    def acknowledge(self, position: Position) -> None:
        """Take note that everything up to this position is committed."""

    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class IteratorSource(Source):
    """Any iterable of batches: arrays, data frames, Arrow tables.

    Parameters
    ----------
    batches : iterable, or function that returns one
        The batches. A function is called again for each reading, which makes the source replayable.
    names : list of str, optional
        Names of the columns; by default those of the first batch, or numbers.
    place : str
        What to call the source in messages.
    n_rows : int, optional
        Rows in all, where that is known.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn.streams.sources.source import IteratorSource
    >>> source = IteratorSource(lambda: iter([np.ones((3, 2)), np.zeros((1, 2))]), names=["a", "b"])
    >>> [(len(batch.X), batch.position) for batch in source.batches()]
    [(3, {'row': 3}), (1, {'row': 4})]
    >>> [len(batch.X) for batch in source.batches({"row": 2})]
    [1, 1]
    """

    def __init__(
        self,
        batches: Iterable[Any] | Callable[[], Iterable[Any]],
        names: list[str] | None = None,
        place: str = "the iterator",
        n_rows: int | None = None,
    ) -> None:
        self._n_rows, self._row = n_rows, 0
        self.replayable = callable(batches)
        self.place = place
        self._batches = batches
        self._first: list[Any] = []
        if names is None:
            self._opened = iter(self._open())
            self._first = [next(self._opened, np.empty((0, 0)))]
            found = column_names(self._first[0])
            names = [f"column{i}" for i in range(as_rows(self._first[0]).shape[1])] if found is None else found
        self.columns = Columns(list(map(str, names)), {})

    def progress(self) -> tuple[int, int] | None:
        """Rows read so far, and in all."""
        return None if self._n_rows is None else (self._row, self._n_rows)

    def _open(self) -> Iterable[Any]:
        return self._batches() if callable(self._batches) else self._batches

    def batches(self, position: Position | None = None) -> Iterator[Batch]:
        """Batches, without the rows before the position."""
        skip = 0 if position is None else int(position["row"])
        if self._first and not self.replayable:
            # The batch that was taken to see the columns comes once only.
            items: Iterable[Any] = (item for part in ([self._first.pop()], self._opened) for item in part)
        else:
            items = self._open()
        row = 0
        for item in items:
            X = as_rows(item)[max(0, skip - row) :]
            # Counted with the rows that are skipped: positions are rows of the whole stream.
            row += len(as_rows(item))
            self._row = row
            if len(X):
                yield without_infinities(Batch(X, position={"row": row}), f"{self.place}: row ", row - len(X))


class Prefetcher:
    """Reads a source in a thread of its own while the rows before are learned.

    Iterating gives batches, and None whenever there was none for a while.

    Parameters
    ----------
    source : Source
        The source.
    position : dict or None
        Where to begin.
    timeout : float
        Seconds to wait for a batch before None is given.
    """

    def __init__(self, source: Source, position: Position | None, *, timeout: float = 0.2) -> None:
        self._ready: queue.Queue[Any] = queue.Queue(_PREFETCHED)
        self._timeout = timeout
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(source, position), daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch | None]:
        while True:
            try:
                item = self._ready.get(timeout=self._timeout)
            except queue.Empty:
                yield None
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Stop reading; a thread that waits for rows ends with the program."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def _read(self, source: Source, position: Position | None) -> None:
        try:
            for batch in source.batches(position):
                if not self._put(batch):
                    return
        except OSError as error:
            transient = error.errno in _TRANSIENT and not isinstance(error, SourceLostError)
            self._put(SourceLostError(f"{source.place} cannot be read: {error}.") if transient else error)
        # A thread that dies silently would leave the one that learns waiting for ever.
        except BaseException as error:  # raised again in the thread that learns
            self._put(error)
        else:
            self._put(None)

    def _put(self, item: Any) -> bool:
        """Wait for room; returns whether anybody still wants it."""
        # With a timeout: a put without one would never end once the reader of the queue has gone.
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
