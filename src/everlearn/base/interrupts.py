"""Ctrl-C between two batches, never within one.

Compiled kernels change the arrays of a model in place. Python delivers a signal between two of its own instructions, so
that the exception of its handler can fall between two kernels that belong together, or into the Python code that numba
runs while it looks up the types of a kernel's arguments, where it ends the process. So signals wait while a model
learns. A batch that is learned with a copy to go back to asks at safe places, by `checkpoint`, whether one waits, and
is undone. For a few rows a copy would cost more than the learning: there Ctrl-C waits until they are learned, and then
falls into the caller's code, or into the next call before that has changed anything; other failures are undone with the
redo log (`base/redo_log.py`). Either way an exception that comes out of `partial_fit` means that nothing was learned.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Self

try:
    # The functions of `signal` convert arguments to enumerations and back, which takes 10 us; these take 0.5.
    from _signal import getsignal as _get_handler  # type: ignore[import-not-found]
    from _signal import signal as _set_handler
except ImportError:  # another Python than CPython
    _get_handler, _set_handler = signal.getsignal, signal.signal

_DELIVERY_SECONDS = 0.002
_SIGINT = int(signal.SIGINT)
# Ctrl-C, and signals that programs handle by raising an exception: for time limits, and to end in good order.
_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_WAITING: list[int] = []  # signals, each once; appending and popping are atomic
_OUTERMOST: list[HeldInterrupts] = []  # the block around all others, while there is one


class HeldInterrupts:
    """Context in which signals wait; it does nothing outside the main thread, which alone runs their handlers.

    Entering raises an interrupt that still waits from an earlier block.

    Parameters
    ----------
    undoable : bool
        Whether what the block does can be undone, so that `checkpoint` may raise in it. Of blocks within blocks the
        outermost decides.
    """

    def __init__(self, *, undoable: bool = False) -> None:
        self.undoable = undoable
        self.handlers: dict[int, Any] | None = None

    def __enter__(self) -> Self:
        if _OUTERMOST or _thread.get_ident() != threading.main_thread().ident:
            return self
        while _WAITING and (number := _claim()):
            _call(_get_handler(number), number)
        handlers = {}
        for number in _SIGNALS:
            handler = _get_handler(number)
            # Numbers stand for the system's own handlers, None for one of another language, which could not be put
            # back. That of an event loop does nothing; the loop has been told already, and would be told twice.
            if type(handler) is not int and callable(handler) and not _is_of_event_loop(handler):
                handlers[number] = handler
        self.handlers = handlers
        _OUTERMOST.append(self)
        try:
            for number in handlers:
                _set_handler(number, _hold)
        except BaseException:  # of a signal that came before its turn
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        handlers, self.handlers = self.handlers, None
        if handlers is not None:
            _OUTERMOST.clear()
            try:
                for number, handler in handlers.items():
                    _set_handler(number, handler)
            except BaseException:  # of a handler that was put back already
                for number, handler in handlers.items():
                    _set_handler(number, handler)
                raise

    def only_interrupts(self) -> bool:
        """Whether Ctrl-C is the only signal that could raise here.

        It may come at any time and so may wait for the end of the block. Other signals may be meant for the block: a
        time limit that is heard after the `try` around the call would end the program.
        """
        return not self.handlers or (len(self.handlers) == 1 and _SIGINT in self.handlers)


def checkpoint() -> None:
    """Raise a signal that waits, here, in the main thread: a place where a model can go back to its copy."""
    if _WAITING and _OUTERMOST and _thread.get_ident() == threading.main_thread().ident:
        outermost = _OUTERMOST[0]
        if outermost.undoable and outermost.handlers and (number := _claim()):
            _call(outermost.handlers[number], number)


def _is_of_event_loop(handler: Any) -> bool:
    return getattr(handler, "__module__", None) == "asyncio.unix_events"


def _call(handler: Any, number: int) -> None:
    if callable(handler):
        handler(number, sys._getframe(1))


def _hold(number: int, frame: FrameType | None) -> None:
    """Remember a signal and have it delivered a little later."""
    if number not in _WAITING:
        _WAITING.append(number)
        if len(_WAITING) == 1:
            threading.Thread(target=_deliver, name="everlearn-interrupt", daemon=True).start()


def _deliver() -> None:
    """Interrupt the main thread once it has left the block, unless the next block has raised the signal."""
    while _WAITING:
        time.sleep(_DELIVERY_SECONDS)
        if not _OUTERMOST and (number := _claim()):
            _thread.interrupt_main(signal.Signals(number))


def _claim() -> int:
    """Take a waiting signal, or 0; the main thread and the one that delivers may both try, and one succeeds."""
    try:
        return _WAITING.pop()
    except IndexError:
        return 0
