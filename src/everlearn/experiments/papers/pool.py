"""Papers in parallel, each in a process of its own; what measures times runs afterwards, with nothing beside it."""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, NamedTuple

import joblib

from everlearn.errors import EverlearnError
from everlearn.experiments.papers.data import mnist_from
from everlearn.experiments.papers.registry import Context, Item
from everlearn.experiments.papers.run import Record, run_item

Report = Callable[[Item, int, int, str], None]
Keep = Callable[[Item, Record], None]

# An item that takes longer is given to a process by itself: what it shares with others is less. The simulations that
# the first figure of a paper makes for all of them take about 100 seconds, and must stay with the others.
LONG_SECONDS = 150.0
POLL_SECONDS = 0.1  # how often the parent looks for messages: a progress bar needs no more


class LostProcessError(EverlearnError, RuntimeError):
    """A process ended before its work did."""


class Settings(NamedTuple):
    """What every item is run with."""

    quick: bool = False
    seed: int = 0
    data: str | None = None
    fetch: bool = False
    jobs: int = 1  # processes of an item that runs alone
    parts: str | None = None  # folder of what interrupted items have found

    def contexts(self) -> Callable[[Callable[[int, int, str], None]], Context]:
        """Return what makes a context that reports progress; all of them load MNIST once."""
        return functools.partial(self._context, mnist_from(self.data, fetch=self.fetch))

    def _context(self, mnist: Callable[[], Any], report: Callable[[int, int, str], None]) -> Context:
        return Context(quick=self.quick, seed=self.seed, mnist=mnist, report=report, jobs=self.jobs, parts=self.parts)

    def cost(self, items: Sequence[Item]) -> float:
        """About how many seconds the items take, one after the other."""
        return sum(item.seconds[0 if self.quick else 1] for item in items)


class Plan(NamedTuple):
    """What runs in parallel, a list for each process, and what runs alone after it."""

    shares: list[list[Item]]
    alone: list[Item]


def plan(items: Sequence[Item], settings: Settings, processes: int | None = None) -> Plan:
    """Assign papers to processes, the longest first; short items of a paper stay together, because they share work.

    Parameters
    ----------
    items : sequence of Item
        What is to run.
    settings : Settings
        Tells how long items take.
    processes : int, optional
        How many there may be; by default as many as there are cores.

    Returns
    -------
    Plan
        Only one share where there is a single group or a single core.
    """
    together = [item for item in items if not item.alone]
    long = [item for item in together if settings.cost([item]) > LONG_SECONDS]
    short = [item for item in together if item not in long]
    groups = [[item for item in short if item.paper == key] for key in dict.fromkeys(i.paper for i in short)]
    groups += [[item] for item in long]
    shares: list[list[Item]] = [[] for _ in range(min(processes or joblib.cpu_count(), len(groups)))]
    for group in sorted(groups, key=settings.cost, reverse=True):
        # Largest first, each to the process with the least so far. Items of a paper stay together where they are short:
        # they share simulations and imports.
        min(shares, key=settings.cost).extend(group)
    return Plan(shares, [item for item in items if item.alone])


def duration(plan: Plan, settings: Settings) -> float:
    """About how many seconds a plan takes."""
    return max(map(settings.cost, plan.shares), default=0.0) + settings.cost(plan.alone)


def run(plan: Plan, settings: Settings, keep: Keep, report: Report) -> None:
    """Run what is planned; `keep` is given each finding as soon as it is there, `report` told of progress.

    An error, or an interrupt, ends everything; what was found before has been kept.
    """
    if len(plan.shares) > 1:
        _run_in_processes(plan.shares, settings, keep, report)
    else:
        _run_here([item for share in plan.shares for item in share], settings, keep, report)
    # Nothing runs beside these: an item whose runs are independent may have all cores.
    _run_here(plan.alone, settings._replace(jobs=joblib.cpu_count()), keep, report)


def _run_here(items: Sequence[Item], settings: Settings, keep: Keep, report: Report) -> None:
    context = settings.contexts()
    for item in items:
        report(item, 0, 1, "")
        keep(item, run_item(item, context(functools.partial(report, item))))


def _run_in_processes(shares: list[list[Item]], settings: Settings, keep: Keep, report: Report) -> None:
    # A fork would copy locks of BLAS threads that it does not copy.
    spawn = multiprocessing.get_context("spawn")
    messages = spawn.SimpleQueue()
    with _executor(len(shares), spawn, messages) as executor:
        with _interrupts_held():
            running = {executor.submit(_run_share, share, settings) for share in shares}
            # CPython's executor begins to watch a process only at the next call after the one that started it: without
            # this call the abrupt end of the last process is noticed when another one has done its work.
            executor.submit(_do_nothing)
        while running:
            done, running = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            # Findings come before the error that ended their process: what was found is kept.
            while not messages.empty():
                item, *what = messages.get()
                (keep if len(what) == 1 else report)(item, *what)
            for future in done:
                _raise_failure(future)


def _raise_failure(future: Future[None]) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise LostProcessError(
            "A process that ran items ended abruptly; perhaps the memory did not suffice. What was found is kept: run "
            "the command again with --resume."
        ) from error


@contextmanager
def _executor(n: int, spawn: Any, messages: Any) -> Iterator[ProcessPoolExecutor]:
    """An executor whose processes are ended however the block is left; its own exit would wait for their work."""
    before = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(n, mp_context=spawn, initializer=_begin, initargs=(messages,))
    try:
        yield executor
    finally:
        for worker in set(multiprocessing.active_children()) - before:
            worker.terminate()
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let an interrupt wait until this is over.

    Processes started meanwhile inherit the blocked signal: Ctrl-C goes to the whole group, and a process that is
    still importing would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in a process of the pool ------------------------------------------------------------------------

_messages: Any = None  # the queue to the parent; a queue cannot be an argument of a submitted function


def _begin(messages: Any) -> None:
    """Leave interrupts to the parent process, and keep the queue to it."""
    global _messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _messages = messages


def _do_nothing() -> None:
    """A call that only wakes the executor."""


def _run_share(share: Sequence[Item], settings: Settings) -> None:
    """Run items and send what happens: (item, record), or (item, done, total, stage)."""
    _run_here(
        share,
        settings,
        keep=lambda item, record: _messages.put((item, record)),
        report=lambda item, done, total, stage: _messages.put((item, done, total, stage)),
    )
