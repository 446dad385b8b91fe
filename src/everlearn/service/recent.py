"""Values by name, of which the least recently used are dropped."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class RecentlyUsed(Generic[V]):
    """A cache with least-recently-used eviction, bounded by the number of its values and by their sizes.

    Any thread may use it. Whoever holds a value goes on with it after it was evicted.

    Parameters
    ----------
    most : int
        Most values.
    most_bytes : int, optional
        Most bytes of all values together; one value is kept however large it is.
    """

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._values: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def bytes(self) -> int:
        """Bytes of all values, as they were given."""
        return self._bytes

    def get(self, name: str) -> V | None:
        """A value, which was used now; None if it is not here."""
        with self._lock:
            found = self._values.get(name)
            if found is None:
                return None
            self._values.move_to_end(name)
            return found[0]

    def put(self, name: str, value: V, size: int = 0) -> None:
        """Keep a value; those that were not used for longest leave if there is no room."""
        with self._lock:
            self._drop(name)
            self._values[name] = (value, size)
            self._bytes += size
            # The latest value stays however large it is: a single model beyond the limit would otherwise be loaded for
            # each request.
            while len(self._values) > 1 and (
                len(self._values) > self._most or (self._most_bytes is not None and self._bytes > self._most_bytes)
            ):
                self._drop(next(iter(self._values)))

    def pop(self, name: str) -> None:
        """Drop a value, if it is here."""
        with self._lock:
            self._drop(name)

    def _drop(self, name: str) -> None:
        if name in self._values:
            self._bytes -= self._values.pop(name)[1]
