"""Waiting for what may come back: a lost broker, a full disk. Each wait is twice as long as the one before."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from everlearn.errors import SourceLostError

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 15.0
# Someone may make room or mend the device while the program waits. EFBIG is not among them: a limit on the size of
# files holds as long as the process does.
TRANSIENT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBUSY, errno.EAGAIN)

Result = TypeVar("Result")


class Backoff:
    """Exponential back-off with a limit.

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
        """Wait a while; raises the error once the limit is reached, or on `stop`."""
        # The monotonic clock: a wait neither ends early nor lasts for ever because the date of the machine was set.
        left = float("inf") if self._end is None else self._end - time.monotonic()
        # Waiting on the event and not in time.sleep, so that Ctrl-C ends a wait of 15 s at once.
        if left <= 0 or self._stop.wait(min(self._wait, left)):
            raise error
        self._wait = min(2 * self._wait, _LONGEST_WAIT)


def retry(
    action: Callable[[], Result], *, limit: float | None, stop: threading.Event, say: Callable[[Exception], None]
) -> Result:
    """Repeat what fails while a source is lost or a disk is full, until it succeeds; `say` hears the first error."""
    backoff = None
    while True:
        try:
            return action()
        except OSError as error:
            if not isinstance(error, SourceLostError) and error.errno not in TRANSIENT:
                raise
            # Said once, not at every attempt; the limit counts from the first failure.
            if backoff is None:
                backoff = Backoff(limit, stop)
                say(error)
            backoff.wait(error)
