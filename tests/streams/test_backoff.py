"""Waiting for what may come back."""

import errno
import threading
import time

import pytest

from everlearn.errors import SourceLostError
from everlearn.streams import backoff
from everlearn.streams.backoff import Backoff, retry


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(backoff, "_FIRST_WAIT", 0.01)


def failing(errors):
    """An action that raises each of some errors once, and then succeeds."""
    left = list(errors)

    def action():
        if left:
            raise left.pop(0)
        return "done"

    return action


def test_what_passes_is_tried_again_and_said_once():
    said = []
    errors = [SourceLostError("away"), OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "disk")]
    assert retry(failing(errors), limit=None, stop=threading.Event(), say=said.append) == "done"
    assert said == errors[:1]


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EFBIG])
def test_what_does_not_pass_is_raised_at_once(number):
    with pytest.raises(OSError, match="never"):
        retry(failing([OSError(number, "never")]), limit=None, stop=threading.Event(), say=pytest.fail)


def test_waits_double_up_to_the_limit_and_end_with_the_error():
    waits = Backoff(0.1, threading.Event())
    started = time.monotonic()

    def wait_often():
        for _ in range(100):
            waits.wait(SourceLostError("away"))

    with pytest.raises(SourceLostError, match="away"):
        wait_often()
    assert 0.09 <= time.monotonic() - started < 2.0


def test_stop_ends_the_waiting():
    stop = threading.Event()
    stop.set()
    with pytest.raises(SourceLostError):
        Backoff(None, stop).wait(SourceLostError("away"))
