"""The papers and their items: what can be reproduced, how long it takes, what it needs."""

from __future__ import annotations

import functools
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from everlearn.errors import EverlearnError, InputError
from everlearn.experiments.papers.provenance import commit
from everlearn.experiments.papers.results import Findings
from everlearn.persistence.atomic_write import write_whole

T = TypeVar("T")
R = TypeVar("R")

MODULES = ("nat_oem", "figmn", "online_vb", "continual_learning")
"""Modules of this folder, each with a `PAPER`; a package imports the files that hold its items."""


ESTIMATES = "seconds.json"
"""File of this folder with the processor seconds of every item in the last run; `tools/estimates.py` writes it."""
UNKNOWN = (10.0, 60.0)
"""Seconds of an item that was never run."""


@functools.cache
def estimates() -> dict[str, dict[str, float]]:
    """Seconds of items by key, "quick" and "full"."""
    text = resources.files("everlearn.experiments.papers").joinpath(ESTIMATES).read_text(encoding="utf-8")
    found: dict[str, dict[str, float]] = json.loads(text)
    return found


def estimate(key: str) -> tuple[float, float]:
    """About how many seconds an item takes, quick and full, on a core that does nothing else."""
    known = estimates().get(key, {})
    return known.get("quick", UNKNOWN[0]), known.get("full", UNKNOWN[1])


class Skip(EverlearnError):
    """An item cannot run here; the message says what is missing and how to get it."""


class Context:
    """What an item is told when it runs.

    Parameters
    ----------
    quick : bool
        Whether to take fewer runs and smaller sizes.
    seed : int
        Source of all randomness.
    mnist : callable
        Gives the MNIST images, or raises `Skip`.
    report : callable (done, total, what), optional
        Told of progress.
    jobs : int, default=1
        Processes that `each` may use.
    parts : path-like, optional
        Folder in which `each` keeps what it has, so that an item that was interrupted goes on where it was.
    """

    def __init__(
        self,
        *,
        quick: bool = False,
        seed: int = 0,
        mnist: Callable[[], Any] | None = None,
        report: Callable[[int, int, str], None] | None = None,
        jobs: int = 1,
        parts: str | os.PathLike[str] | None = None,
    ) -> None:
        self.jobs = jobs
        self.earlier_seconds = 0.0  # processor time of parts that an interrupted run has left
        self._parts = None if parts is None else Path(parts)
        self.quick = quick
        self.seed = seed
        self._mnist = mnist
        self._report = report or (lambda done, total, what: None)

    def pick(self, quick: T, full: T) -> T:
        """Return the first if the run is a quick one, else the second."""
        return quick if self.quick else full

    def mnist(self) -> Any:
        """Return the bunch of `everlearn.datasets.load_mnist`; the item is skipped where there is none."""
        if self._mnist is None:
            raise Skip("No place to look for MNIST was given.")
        return self._mnist()

    def track(self, things: Iterable[T], what: str) -> Iterator[T]:
        """Yield things and report how many are done."""
        # A list, because progress needs the total before the first of them.
        listed: Sequence[T] = list(things)
        for i, thing in enumerate(listed):
            self._report(i, len(listed), what)
            yield thing
        self._report(len(listed), len(listed), what)

    def each(
        self, function: Callable[..., R], arguments: Iterable[tuple[Any, ...]], what: str, *, keep: bool = False
    ) -> list[R]:
        """Call a function with each tuple of arguments, in processes where there may be several; results in order.

        What is called must not depend on what was called before: results are the same for any number of processes.
        With `keep` arguments and results are what JSON holds, and a result that is known from an interrupted run of the
        same code is not computed again.
        """
        listed = list(arguments)
        kept = [self._part(function, one) if keep else None for one in listed]
        known = {}
        for i, path in enumerate(kept):
            if path and path.exists():
                part = json.loads(path.read_text("utf-8"))
                known[i] = part["result"]
                self.earlier_seconds += part["cpu_seconds"]
        todo = [i for i in range(len(listed)) if i not in known]
        calls = self._calls(function, [(listed[i], kept[i]) for i in todo])
        for done, (i, result) in enumerate(zip(todo, calls, strict=True), 1):
            known[i] = result
            self._report(len(listed) - len(todo) + done, len(listed), what)
        return [known[i] for i in range(len(listed))]

    def _calls(self, function: Callable[..., R], calls: list[tuple[tuple[Any, ...], Path | None]]) -> Iterator[R]:
        """Results in order, each as soon as it is there."""
        if self.jobs == 1 or len(calls) <= 1:
            yield from (_call(function, *call) for call in calls)
            return
        # Spawned, as the processes of the pool are: a fork copies locks of the BLAS threads that it does not copy.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.jobs, len(calls)), mp_context=spawn) as executor:
            yield from executor.map(_call, itertools.repeat(function), *zip(*calls, strict=True))

    def _part(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Path | None:
        """Where a result is kept: by the commit, if nothing was changed since, the function and its arguments."""
        code = commit()
        if self._parts is None or code is None or code.endswith("+"):
            return None
        said = json.dumps([code, function.__module__, function.__qualname__, arguments])
        return self._parts / f"{hashlib.sha256(said.encode()).hexdigest()[:24]}.json"


def _call(function: Callable[..., R], arguments: tuple[Any, ...], kept: Path | None) -> R:
    start = cpu_seconds()
    with threadpool_limits(1):
        result = function(*arguments)
    if kept is not None:
        # By the process that has it: what others have found by then must not wait for the first.
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = {"result": result, "cpu_seconds": round(cpu_seconds() - start, 2)}
        write_whole(kept, json.dumps(part), "part of the results")
    return result


def cpu_seconds() -> float:
    """Processor time of this process and of those that have ended in it: an item may use several."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


Run = Callable[[Context], Findings]


@dataclass(frozen=True)
class Item:
    """A table, a figure or a result of a paper."""

    paper: str
    name: str
    title: str
    seconds: tuple[float, float]
    """About how long it takes, quick and full."""
    run: Run
    alone: bool = False

    @property
    def key(self) -> str:
        """How the item is asked for: ``paper:name``."""
        return f"{self.paper}:{self.name}"


@dataclass
class Paper:
    """A paper and its items.

    Parameters
    ----------
    key : str
        Its name on the command line.
    title, authors : str
        As printed.
    order : tuple of str, optional
        Names of items in the order of the report; by default that in which they are registered.
    """

    key: str
    title: str
    authors: str
    order: tuple[str, ...] = ()
    _items: dict[str, Item] = field(default_factory=dict)

    @property
    def items(self) -> dict[str, Item]:
        """Items by name, in the order of the report."""
        # The files of a paper are imported by name, and the report follows the order of the paper.
        places = {name: i for i, name in enumerate(self.order)}
        return dict(sorted(self._items.items(), key=lambda entry: places.get(entry[0], len(places))))

    def item(self, name: str, title: str, *, alone: bool = False) -> Callable[[Run], Run]:
        """Register a function as an item.

        Parameters
        ----------
        name : str
            Its name on the command line.
        title : str
            What it shows.
        alone : bool, default=False
            Whether nothing may run beside it, because its findings are times.

        Returns
        -------
        decorator
            Gives the function back.
        """

        def register(run: Run) -> Run:
            self._items[name] = Item(self.key, name, title, estimate(f"{self.key}:{name}"), run, alone)
            return run

        return register


def papers() -> list[Paper]:
    """Return all papers, in the order of the report."""
    return [importlib.import_module(f"everlearn.experiments.papers.{module}").PAPER for module in MODULES]


def choose(wanted: Sequence[str] = ()) -> list[Item]:
    """Return the items that were asked for, in the order of the report.

    Parameters
    ----------
    wanted : sequence of str, default=()
        ``paper`` or ``paper:item``; nothing asks for everything.

    Returns
    -------
    list of Item
        Each once.
    """
    known = {paper.key: paper for paper in papers()}
    chosen = {item.key for name in wanted for item in _named(name, known)}
    everything = [item for paper in known.values() for item in paper.items.values()]
    return [item for item in everything if not wanted or item.key in chosen]


def _named(name: str, known: dict[str, Paper]) -> list[Item]:
    key, _, part = name.partition(":")
    if key not in known:
        raise InputError(f"There is no paper {key!r}. The papers are: {', '.join(known)}.")
    paper = known[key]
    if not part:
        return list(paper.items.values())
    if part not in paper.items:
        raise InputError(f"The paper {key!r} has no item {part!r}. It has: {', '.join(paper.items)}.")
    return [paper.items[part]]
