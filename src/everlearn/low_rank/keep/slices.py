"""Work that is done in slices between the rows of a stream, or at once on all cores.

Work is a generator. Between two slices it yields None. Where parts of it are independent it yields the list of them,
works themselves, and is sent the list of their results.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from everlearn.linalg.backend import each

Work = Generator[Any, Any, Any]


def at_once(work: Work, D: int) -> Any:
    """The result of work, done to its end; independent parts with matrices of D columns on several cores."""
    answer = None
    while True:
        try:
            parts = work.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = None if parts is None else each(lambda part: at_once(part, D), parts, D)


def sliced(work: Work) -> Generator[None, None, Any]:
    """The same work one slice after the other: a generator that yields between them and returns the result."""
    answer: list[Any] | None = None
    while True:
        try:
            parts = work.send(answer)
        except StopIteration as stop:
            return stop.value
        if parts is None:
            answer = None
            yield
        else:
            answer = []
            for part in parts:
                answer.append((yield from sliced(part)))
