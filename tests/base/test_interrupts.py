"""Ctrl-C that waits for the end of a block."""

import asyncio
import signal
import threading
import time

import pytest

from everlearn.base import interrupts
from everlearn.base.interrupts import HeldInterrupts, checkpoint


def wait_for_interrupt():
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        time.sleep(0.001)


def test_it_comes_after_the_block():
    steps = []

    def block_and_wait():
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("whole block")
        wait_for_interrupt()
        steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        block_and_wait()
    assert steps[0] == "whole block"
    assert "never" not in steps
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_comes_before_the_next_block():
    """A loop that does nothing but learn is interrupted too."""
    rounds = []

    def only_blocks():
        for i in range(200_000):
            with HeldInterrupts():
                rounds[:] = [i]
                if i == 100:
                    signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        only_blocks()
    assert 100 <= rounds[0] < 200_000 - 1


def test_a_handler_of_the_program_is_called_and_stays():
    calls = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    try:
        mine = signal.getsignal(signal.SIGINT)
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
            assert not calls
        assert signal.getsignal(signal.SIGINT) is mine
        deadline = time.monotonic() + 5.0
        while not calls and time.monotonic() < deadline:
            time.sleep(0.001)
        assert calls == [1]
    finally:
        signal.signal(signal.SIGINT, before)


def test_blocks_within_blocks():
    with HeldInterrupts():
        held = signal.getsignal(signal.SIGINT)
        with HeldInterrupts():
            pass
        assert signal.getsignal(signal.SIGINT) is held
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_leave_handlers_alone():
    seen = []

    def work():
        with HeldInterrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_only_what_can_be_undone_is_interrupted(monkeypatch):
    """Of blocks within blocks the outermost decides."""
    monkeypatch.setattr(interrupts, "_deliver", lambda: None)
    with HeldInterrupts():
        signal.raise_signal(signal.SIGINT)
        with HeldInterrupts(undoable=True):
            checkpoint()
    with pytest.raises(KeyboardInterrupt), HeldInterrupts():
        pytest.fail("what waits is raised before the block")
    with HeldInterrupts(undoable=True), HeldInterrupts():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            checkpoint()
    assert not interrupts._WAITING


def test_other_signals_wait_too_and_their_handlers_stay():
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    try:
        with HeldInterrupts(undoable=True) as held:
            assert not held.only_interrupts()
            signal.raise_signal(signal.SIGTERM)
            assert not calls
            checkpoint()
            assert calls == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_event_loop_hears_a_signal_once():
    calls = []

    async def learn_and_wait():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, calls.append, 1)
        with HeldInterrupts() as held:
            assert held.only_interrupts()
            signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.05)

    asyncio.run(learn_and_wait())
    assert calls == [1]
