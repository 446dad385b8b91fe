"""Ctrl-C between two rows, never within one.

Compiled kernels change the arrays of a model in place. Python delivers an interrupt between two of its own
instructions, so that it can fall between two kernels that belong together, or into the Python code that numba runs
while it looks up the types of a kernel's arguments, where it ends the process. So interrupts wait while a model
learns. A large batch is learned with a copy to go back to, and asks at safe places, by `checkpoint`, whether an
interrupt waits. For a few rows a copy would cost more than the learning: there the interrupt waits until they are
learned, and then falls into the caller's code, or into the next call before that has changed anything. Either way an
exception that comes out of `partial_fit` means that nothing was learned.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

try:
    # The functions of `signal` convert arguments to enumerations and back, which takes 10 us; these take 0.5.
    from _signal import getsignal as _get_handler  # type: ignore[import-not-found]
    from _signal import signal as _set_handler
except ImportError:  # another Python than CPython
    _get_handler, _set_handler = signal.getsignal, signal.signal

_DELIVERY_SECONDS = 0.002
_WAITING: list[int] = []  # at most one signal; appending and popping are atomic
_OUTER: list[Any] = []  # the handler outside the block, while there is one


class HeldInterrupts:
    """Context in which Ctrl-C waits; it does nothing outside the main thread, which alone is interrupted.

    Entering raises an interrupt that still waits from an earlier block.
    """

    def __enter__(self) -> None:
        self._before: Any = None
        if _thread.get_ident() != threading.main_thread().ident:
            return
        before = _get_handler(signal.SIGINT)
        if _WAITING and before is not _hold and _claim() and callable(before):
            before(signal.SIGINT, sys._getframe())
        # None is a handler of another language, which could not be put back; `_hold` that of a block around this one.
        if before is not None and before is not _hold:
            self._before = before
            _OUTER.append(before)
            _set_handler(signal.SIGINT, _hold)

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            _set_handler(signal.SIGINT, self._before)
            _OUTER.pop()


def checkpoint() -> None:
    """Raise an interrupt that waits, here, in the main thread: a place where a model can go back to its copy."""
    if _WAITING and _OUTER and _thread.get_ident() == threading.main_thread().ident and _claim():
        handler = _OUTER[-1]
        if callable(handler):
            handler(signal.SIGINT, sys._getframe())


def _hold(number: int, frame: FrameType | None) -> None:
    """Remember the interrupt and have it delivered a little later."""
    if not _WAITING:
        _WAITING.append(number)
        threading.Thread(target=_deliver, name="everlearn-interrupt", daemon=True).start()


def _deliver() -> None:
    """Interrupt the main thread once it has left the block, unless the next block has raised the interrupt."""
    while _WAITING:
        time.sleep(_DELIVERY_SECONDS)
        if signal.getsignal(signal.SIGINT) is not _hold and _claim():
            _thread.interrupt_main()


def _claim() -> bool:
    """Take the waiting interrupt; the main thread and the one that delivers may both try, and one succeeds."""
    try:
        _WAITING.pop()
    except IndexError:
        return False
    return True
