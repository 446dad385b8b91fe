"""Run an item, and keep what items find in a JSON file."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from everlearn.errors import InputError, MissingExtraError
from everlearn.experiments.papers.provenance import provenance
from everlearn.experiments.papers.registry import Context, Item, Skip, cpu_seconds, papers
from everlearn.experiments.papers.results import SKIPPED
from everlearn.persistence.atomic_write import write_whole

FORMAT = "everlearn reproduction 1"

Record = dict[str, Any]


def run_item(item: Item, context: Context) -> Record:
    """Run one item on one BLAS thread; what it needs and does not find makes it a skipped one.

    Parameters
    ----------
    item : Item
        What to run.
    context : Context
        Size, seed, data, progress.

    Returns
    -------
    dict
        Verdict, claims, tables, figures, how long it took, and the commit and machine it began with.
    """
    # Asked before the run: the checkout may change while an item runs, and the code that runs is the one loaded now.
    made = {"started": _now(), **provenance()}
    start, cpu = time.perf_counter(), cpu_seconds()
    try:
        # One thread: items run side by side, and times are compared with single-threaded programs of the papers.
        with threadpool_limits(1):
            found = item.run(context).as_dict()
    except (Skip, MissingExtraError) as error:
        found = {"verdict": SKIPPED, "why": str(error), "about": "", "claims": [], "tables": [], "figures": []}
    # Estimates of later runs are made of the processor time: that of the parts of an interrupted run belongs to it.
    cpu = cpu_seconds() - cpu + context.earlier_seconds
    took = {"seconds": round(time.perf_counter() - start, 1), "cpu_seconds": round(cpu, 1)}
    made["finished"] = _now()
    return {"paper": item.paper, "item": item.name, "title": item.title, **found, **took, "made": made}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


class Reproduction:
    """The findings of a run, kept in a file as they come.

    Parameters
    ----------
    command : str
        How the run was asked for.
    quick : bool
        Whether it is a quick run.
    seed : int
        Its seed.
    """

    def __init__(self, command: str, *, quick: bool, seed: int) -> None:
        self.record: Record = {
            "format": FORMAT,
            "command": command,
            "quick": quick,
            "seed": seed,
            "papers": {},
            "sections": {},
        }

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Take over the sections of an earlier run of the same size and seed; a file that is not there has none."""
        if not Path(path).exists():
            return
        earlier = read(path)
        for name in ("quick", "seed"):
            if earlier[name] != self.record[name]:
                raise InputError(
                    f"{path} holds a run with {name}={earlier[name]}, this one has {name}={self.record[name]}. Give "
                    "the same options to resume it, or another file."
                )
        # What was skipped may run now, because its data or its extra has come.
        done = {key: section for key, section in earlier["sections"].items() if section["verdict"] != SKIPPED}
        self._take(done)

    def missing(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are still to run."""
        return [item for item in items if item.key not in self.record["sections"]]

    def add(self, item: Item, section: Record) -> None:
        """Take up what an item has found."""
        self._take({item.key: {**section, "command": self.record["command"]}})

    def _take(self, sections: Record) -> None:
        """Take up sections; all stay in the order of the papers."""
        known = {**self.record["sections"], **sections}
        listed = papers()
        order = [item.key for paper in listed for item in paper.items.values()]
        self.record["sections"] = {key: known[key] for key in order if key in known}
        about = {paper.key: {"title": paper.title, "authors": paper.authors} for paper in listed}
        used = {section["paper"] for section in self.record["sections"].values()}
        self.record["papers"] = {key: words for key, words in about.items() if key in used}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write everything so far as JSON."""
        # After every item, whole: an interrupt leaves the results of the items before it.
        write_record(self.record, path)


def merged(paths: Sequence[str | os.PathLike[str]]) -> Record:
    """Put the items of several runs of one size and seed together; of an item in two files the later one holds.

    Parameters
    ----------
    paths : sequence of path-like
        Files that runs have written.

    Returns
    -------
    dict
        What was found; every section keeps the command, the commit and the machine that made it.
    """
    first, *others = [read(path) for path in paths]
    whole = Reproduction(first["command"], quick=first["quick"], seed=first["seed"])
    whole._take(first["sections"])
    for path, other in zip(paths[1:], others, strict=True):
        for name in ("quick", "seed"):
            if other[name] != first[name]:
                raise InputError(
                    f"{path} holds a run with {name}={other[name]}, {paths[0]} one with {name}={first[name]}. Merge "
                    "runs of one size and seed."
                )
        # An item that was skipped there has found nothing: what is known of it stays.
        whole._take({key: s for key, s in other["sections"].items() if s["verdict"] != SKIPPED})
    return whole.record


def write_record(record: Record, path: str | os.PathLike[str]) -> None:
    """Write what was found as JSON."""
    write_whole(path, _compact(json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False)), "results")


def read(path: str | os.PathLike[str]) -> Record:
    """Read the JSON file of a run.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    dict
        What was found.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{path} does not hold the results of `everlearn reproduce`.")
    return record


def _compact(text: str) -> str:
    """Put lists of numbers on one line."""
    return re.sub(r"\[\s+((?:[-\d.eE+]+|null)(?:,\s+(?:[-\d.eE+]+|null))*)\s+\]", _one_line, text)


def _one_line(match: Any) -> str:
    return "[" + ",".join(part.strip() for part in match.group(1).split(",")) + "]"
