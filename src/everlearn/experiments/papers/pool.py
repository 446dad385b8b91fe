"""Papers side by side, each in a process of its own; what measures times runs afterwards, alone."""

from __future__ import annotations

import functools
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import joblib

from everlearn.errors import EverlearnError
from everlearn.experiments.papers.data import mnist_from
from everlearn.experiments.papers.registry import Context, Item
from everlearn.experiments.papers.run import Record, run_item

Report = Callable[[Item, int, int, str], None]
Keep = Callable[[Item, Record], None]


class LostProcessError(EverlearnError, RuntimeError):
    """A process ended before its work did."""


class Settings(NamedTuple):
    """What every item is run with."""

    quick: bool = False
    seed: int = 0
    data: str | None = None
    fetch: bool = False

    def contexts(self) -> Callable[[Callable[[int, int, str], None]], Context]:
        """Return what makes a context that reports progress; all of them load MNIST once."""
        return functools.partial(self._context, mnist_from(self.data, fetch=self.fetch))

    def _context(self, mnist: Callable[[], Any], report: Callable[[int, int, str], None]) -> Context:
        return Context(quick=self.quick, seed=self.seed, mnist=mnist, report=report)

    def cost(self, items: Sequence[Item]) -> float:
        """About how many seconds the items take, one after the other."""
        return sum(item.seconds[0 if self.quick else 1] for item in items)


class Plan(NamedTuple):
    """What runs side by side, a list for each process, and what runs alone after it."""

    shares: list[list[Item]]
    alone: list[Item]


def plan(items: Sequence[Item], settings: Settings, processes: int | None = None) -> Plan:
    """Deal papers to processes, the longest first; the items of a paper stay together, for they share work.

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
        Only one share where there is a single paper or a single core.
    """
    together = [item for item in items if not item.alone]
    papers = [[item for item in together if item.paper == key] for key in dict.fromkeys(i.paper for i in together)]
    shares: list[list[Item]] = [[] for _ in range(min(processes or joblib.cpu_count(), len(papers)))]
    for paper in sorted(papers, key=settings.cost, reverse=True):
        min(shares, key=settings.cost).extend(paper)
    return Plan(shares, [item for item in items if item.alone])


def duration(plan: Plan, settings: Settings) -> float:
    """About how many seconds a plan takes."""
    return max(map(settings.cost, plan.shares), default=0.0) + settings.cost(plan.alone)


def run(plan: Plan, settings: Settings, keep: Keep, report: Report) -> None:
    """Run what is planned; `keep` is given each finding as soon as it is there, `report` told of progress.

    An error, or an interrupt, ends everything; what was found before has been kept.
    """
    if len(plan.shares) > 1:
        _run_side_by_side(plan.shares, settings, keep, report)
    else:
        _run_here([item for share in plan.shares for item in share], settings, keep, report)
    _run_here(plan.alone, settings, keep, report)


def _run_here(items: Sequence[Item], settings: Settings, keep: Keep, report: Report) -> None:
    context = settings.contexts()
    for item in items:
        report(item, 0, 1, "")
        keep(item, run_item(item, context(functools.partial(report, item))))


def _run_side_by_side(shares: list[list[Item]], settings: Settings, keep: Keep, report: Report) -> None:
    with _workers(shares, settings) as workers:
        for kind, *what in _messages(workers):
            if kind == "failed":
                error, trace = what
                error.add_note(trace)
                raise error
            (keep if kind == "found" else report)(*what)


@contextmanager
def _workers(shares: list[list[Item]], settings: Settings) -> Iterator[dict[Connection, BaseProcess]]:
    """Start a process for each share, by the pipe on which it speaks; end them, whatever happens."""
    spawn = multiprocessing.get_context("spawn")
    workers: dict[Connection, BaseProcess] = {}
    try:
        for share in shares:
            reader, writer = spawn.Pipe(duplex=False)
            workers[reader] = spawn.Process(target=_work, args=(share, settings, writer), daemon=True)
            with _interrupts_held():
                workers[reader].start()
            writer.close()
        yield workers
    finally:
        for worker in workers.values():
            if worker.pid is not None:
                worker.terminate()
                worker.join()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let an interrupt wait until this is over; a process that starts meanwhile never hears of one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _messages(workers: dict[Connection, BaseProcess]) -> Iterator[tuple[Any, ...]]:
    """Yield what the processes say, until all have ended."""
    speaking = dict(workers)
    while speaking:
        ready = wait(list(speaking))
        for reader in [reader for reader in speaking if reader in ready]:
            try:
                yield reader.recv()
            except EOFError:
                worker = speaking.pop(reader)
                worker.join()
                if worker.exitcode:
                    raise LostProcessError(
                        f"A process that ran items ended with status {worker.exitcode}; perhaps the memory did not "
                        "suffice. What was found is kept: run the command again with --resume."
                    ) from None


def _work(share: Sequence[Item], settings: Settings, messages: Connection) -> None:
    """Run items in this process, and say what happens. An interrupt is the first process' affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _run_here(
            share,
            settings,
            keep=lambda item, section: messages.send(("found", item, section)),
            report=lambda item, done, total, stage: messages.send(("progress", item, done, total, stage)),
        )
    except Exception as error:
        messages.send(("failed", error, traceback.format_exc()))
        sys.exit(1)
