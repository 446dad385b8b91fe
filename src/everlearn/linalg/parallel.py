"""Several cores for independent pieces of work, or for the matrix products of one: never both.

How many threads BLAS may use says how many there are, so that the usual ways to limit it (OPENBLAS_NUM_THREADS,
threadpoolctl) limit all. With a BLAS other than OpenBLAS, all is left to its threads. What an item gives does not
depend on the thread that works on it. Threads are kept for the next pieces, which may be short.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Library(NamedTuple):
    """Reads and sets the number of threads of one BLAS, for the whole process."""

    get: Callable[[], int]
    set: Callable[[int], None]


class _Limit:
    """The threads that each BLAS had before the first of the sections that are under way gave it one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sections = 0
        self.before: list[int] = []


_limit = _Limit()
_mine = threading.local()  # what is true of this thread only


@cache
def _libraries() -> tuple[_Library, ...]:
    """Every BLAS that is loaded; none if one of them is not an OpenBLAS with threads of its own."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    if any(library.internal_api != "openblas" or library.threading_layer != "pthreads" for library in found):
        return ()
    return tuple(_library(library.dynlib) for library in found)


def _library(loaded: Any) -> _Library:
    """The library's own functions: threadpoolctl lets only one thread of the process use them."""
    names = (f"{prefix}openblas_%s_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64"))
    name = next(name for name in names if hasattr(loaded, name % "set"))
    return _Library(getattr(loaded, name % "get"), getattr(loaded, name % "set"))


def available() -> int:
    """Threads that may be used: as many as BLAS would."""
    # Inside a section BLAS would answer one; what it had before says how many there are.
    with _limit.lock:
        counts = _limit.before if _limit.sections else [library.get() for library in _libraries()]
    return min(counts, default=1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A section in which BLAS has one thread; sections may overlap, in this thread or others."""
    with _limit.lock:
        # The number of threads belongs to the process: the first section in
        # takes it down, the last one out restores it.
        if _limit.sections == 0:
            _limit.before = [library.get() for library in _libraries()]
            _set([1] * len(_limit.before))
        _limit.sections += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.sections -= 1
            if _limit.sections == 0:
                _set(_limit.before)


def _set(counts: list[int]) -> None:
    for library, count in zip(_libraries(), counts, strict=True):
        library.set(count)


def each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results of a function for independent items; those of a single item may use the threads of BLAS."""
    if len(items) < 2:
        return [function(item) for item in items]
    # Work that is a share already is not divided again: the other threads are busy with shares of their own.
    n = 1 if is_shared() else min(available(), len(items))
    with _sharing():
        return _in_threads(function, items, n) if n > 1 else [function(item) for item in items]


def is_shared() -> bool:
    """Whether this is the work on one of several items, which had better not be divided again."""
    return getattr(_mine, "shared", False)


@contextmanager
def _sharing() -> Iterator[None]:
    before, _mine.shared = is_shared(), True
    try:
        yield
    finally:
        _mine.shared = before


@cache
def _pool(n: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n, "everlearn")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # which has none of the threads


def _in_threads(function: Callable[[Item], Result], items: Sequence[Item], n: int) -> list[Result]:
    """Each item by the next of n threads that is free; this thread is one of them."""
    results: dict[int, Result] = {}
    waiting = deque(enumerate(items))

    def work() -> None:
        with _sharing():
            while waiting:
                try:
                    number, item = waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                results[number] = function(item)

    with one_blas_thread():
        helpers = [_pool(n - 1).submit(work) for _ in range(n - 1)]
        try:
            work()
        finally:
            # After an exception nobody begins another item. Threads that have begun are
            # waited for: they work on the caller's arrays.
            waiting.clear()
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
    # Exceptions of the helpers come out here.
    for helper in begun:
        helper.result()
    return [results[number] for number in range(len(items))]
