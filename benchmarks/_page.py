"""The page of a benchmark and the JSON beside it: written whole, by a command, with where they come from.

A benchmark imports this module first, so that commit and machine are asked before it runs, and ends with
`write_page(name, body)`. Every table of the body is kept in the JSON, cell by cell; tests hold the numbers of the
documentation against it. Sentences about results are in the scripts, printed under the condition that they hold.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FORMAT = "everlearn benchmark 1"
STAMP = "%Y-%m-%d %H:%M UTC"
BEGAN = time.perf_counter()
PACKAGES = ("everlearn", "numpy", "scipy", "scikit-learn", "numba", "river", "torch", "pyarrow", "dask", "pyspark")


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def processor() -> str:
    """Name of the processor, or the architecture where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return name or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def code_folders() -> list[str]:
    """The folders of the package, by each of which a page may be out of date."""
    packages = sorted((ROOT / "src" / "everlearn").rglob("__init__.py"))
    return [str(path.parent.relative_to(ROOT)) for path in packages[1:]]


def code_digest(place: Path) -> str:
    """A digest of the code in a file, or in all files of a folder.

    It is found again when the history is not: commits that are rebased or squashed go. Lines that are blank or hold
    a comment only do not count, for they change no figure.
    """
    found = hashlib.sha256()
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        lines = (line.rstrip() for line in path.read_text(encoding="utf-8").splitlines())
        code = [line for line in lines if line and not line.lstrip().startswith("#")]
        found.update("\n".join([path.name, *code, ""]).encode())
    return found.hexdigest()[:12]


@functools.cache
def origin() -> dict[str, Any]:
    """Command, commit, machine, versions and time; the first call, at import, is before the run."""
    # What the command itself writes is no change of the code: pages, and estimates of how long the reproduction takes.
    written = (":!benchmarks/results", ":!src/everlearn/experiments/papers/seconds.json")
    changed = _git("status", "--porcelain", "--untracked-files=no", "src", "benchmarks", *written)
    versions = {package: _version(package) for package in PACKAGES}
    script = Path(sys.argv[0])
    name = str(script.resolve().relative_to(ROOT)) if script.resolve().is_relative_to(ROOT) else script.name
    return {
        "command": shlex.join(["python", name, *sys.argv[1:]]),
        # A tree that was sent to another machine without its history is told its commit.
        "commit": _git("rev-parse", "HEAD") or os.environ.get("EVERLEARN_COMMIT"),
        "changed": sorted(line.split(maxsplit=1)[1] for line in (changed or "").splitlines()),
        "code": {place: code_digest(ROOT / place) for place in (*code_folders(), name) if (ROOT / place).exists()},
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **{k: v for k, v in versions.items() if v is not None}},
        "threads": {k: os.environ[k] for k in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS") if k in os.environ},
        # Times are worth less where other programs took the cores, or the caches, of this one.
        "load": round(os.getloadavg()[0], 1),
        "started": datetime.now(UTC).strftime(STAMP),
    }


origin()


def write_page(name: str, body: str, *, figures: dict[str, float] | None = None, quick: bool = False) -> None:
    """Write `results/NAME.md` and `results/NAME.json`.

    Parameters
    ----------
    name : str
        Name of the page.
    body : str
        Markdown that begins with the title ("# ...").
    figures : dict, optional
        Numbers by name, for those that stand in no table.
    quick : bool
        Whether the run was a quick one; then nothing is written, for such figures are not to be shown.
    """
    text = f"{body.rstrip()}\n\n{signature(origin())}\n"
    print(text)
    if quick:
        print(f"A quick run: results/{name}.md stays as it is.", file=sys.stderr)
        return
    write_record(name, finished(), figures=figures or {}, tables=tables_of(body))
    write_result(f"{name}.md", text)


def write_part(
    name: str, part: str, body: str, *, figures: dict[str, float] | None = None, quick: bool = False
) -> None:
    """Write `results/NAME_PART.json`: a section of a page whose parts run each on its own, on other machines even.

    Parameters are those of `write_page`; the body begins with the heading of the section ("## ...").
    """
    print(body)
    if quick:
        print(f"A quick run: results/{name}_{part}.json stays as it is.", file=sys.stderr)
        return
    write_record(f"{name}_{part}", finished(), figures=figures or {}, tables=tables_of(body), body=body)


def write_page_of_parts(name: str, title: str, parts: Sequence[str]) -> None:
    """Write a page of the parts that are there, each with the command, commit and machine that it comes from."""
    found = [read(f"{name}_{part}") for part in parts if (RESULTS / f"{name}_{part}.json").exists()]
    sections = [f"{each['body'].rstrip()}\n\n{signature(each['origin'])}\n" for each in found]
    # The page is as old as its oldest part.
    made = min((each["origin"] for each in found), key=lambda origin: str(origin["started"]))
    figures = {key: value for each in found for key, value in each["figures"].items()}
    tables = [table for each in found for table in each["tables"]]
    origins = {each["name"]: each["origin"] for each in found}
    write_record(name, made, parts=origins, figures=figures, tables=tables)
    write_result(f"{name}.md", f"# {title}\n\n" + "\n".join(sections))


def finished() -> dict[str, Any]:
    """Where the figures of this run come from, and how long it took, now that they are there."""
    times = os.times()
    took = {
        "seconds": round(time.perf_counter() - BEGAN, 1),
        "cpu_seconds": round(times.user + times.system + times.children_user + times.children_system, 1),
    }
    return {**origin(), "finished": datetime.now(UTC).strftime(STAMP), **took}


def write_record(name: str, made: dict[str, Any], **fields: Any) -> None:
    """Write `results/NAME.json`: where it comes from, and these fields."""
    record = {"format": FORMAT, "name": name, "origin": made, **fields}
    write_result(f"{name}.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def write_result(name: str, content: str) -> None:
    """Write a file of `results`, whole or not at all."""
    RESULTS.mkdir(exist_ok=True)
    scratch = RESULTS / f".{name}.tmp"
    scratch.write_text(content, encoding="utf-8")
    scratch.replace(RESULTS / name)


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the option that every benchmark has."""
    made = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    made.add_argument("--quick", action="store_true", help="small sizes, to see that it runs; no page is written")
    return made


def others_at_work() -> str:
    """A sentence on how busy other programs keep the machine, empty if they do not; to be asked before a run."""
    load = os.getloadavg()[0]
    if load <= 0.5:
        return ""
    return f"\nOther programs kept {load:.1f} processes of the machine's {os.cpu_count()} cores busy at the start.\n"


@contextlib.contextmanager
def printed_page(name: str, *, quick: bool = False) -> Iterator[None]:
    """Make a page of what is printed inside."""
    told = io.StringIO()
    with contextlib.redirect_stdout(_Both(sys.stdout, told)):
        yield
    write_page(name, told.getvalue(), quick=quick)


class _Both(io.TextIOBase):
    """Writes to two places: a long run shows how far it is."""

    def __init__(self, *places: Any) -> None:
        self.places = places

    def write(self, text: str) -> int:
        for place in self.places:
            place.write(text)
        return len(text)

    def flush(self) -> None:
        for place in self.places:
            place.flush()


def signature(made: dict[str, Any]) -> str:
    """The line below a page that says where it comes from."""
    commit = (made["commit"] or "no commit")[:12]
    changed = f" with changes in {len(made['changed'])} files" if made["changed"] else ""
    versions = ", ".join(f"{package} {version}" for package, version in made["versions"].items())
    load = f", load {made['load']} at the start" if "load" in made else ""
    return f"Made by `{made['command']}` at {commit}{changed}, {made['started']}; {made['machine']}{load}; {versions}."


def tables_of(body: str) -> list[dict[str, Any]]:
    """Tables of a Markdown text: the heading that they stand under, their columns and rows."""
    found: list[dict[str, Any]] = []
    heading, open_table = "", None
    for line in body.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").strip()
        cells = _cells(line)
        if cells is None:
            open_table = None
        elif open_table is None:
            open_table = {"heading": heading, "columns": cells, "rows": []}
            found.append(open_table)
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            open_table["rows"].append(cells)
    return found


def _cells(line: str) -> list[str] | None:
    line = line.strip()
    if not (line.startswith("|") and line.endswith("|")):
        return None
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1])]


def read(name: str) -> dict[str, Any]:
    """The record of a page."""
    record: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return record
