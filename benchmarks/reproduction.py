"""The papers, reproduced: `everlearn reproduce`, its record and pages in docs, the estimates of the next run.

    python benchmarks/reproduction.py [--quick] [--resume]

Items are run into a file of their own (`docs/reproduction.partial.json`, which git ignores) and taken into
`docs/reproduction.json` when all are done: an interrupted run leaves the pages as they are. `--resume` takes up what
such a run has left, and runs the items that are missing or older than the code they measure; without it all are run.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _imports import places
from _page import ROOT, parser
from _stale import why_changed

DOCS = ROOT / "docs"
RECORD = DOCS / "reproduction.json"
PARTIAL = DOCS / "reproduction.partial.json"
ESTIMATES = ROOT / "src" / "everlearn" / "experiments" / "papers" / "seconds.json"
PAGES = ("--markdown", str(DOCS / "reproduction.md"), "--verdicts", str(DOCS / "verdicts.md"))
# Papers whose folders have other names.
NAMES = {"nat_oem": "nat-oem", "online_vb": "online-vb", "continual_learning": "continual"}
PAPERS = ROOT / "src" / "everlearn" / "experiments" / "papers"


def read(path: Path) -> dict[str, Any]:
    """The sections of a record by the keys of their items; none if there is no such file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["sections"] if path.exists() else {}
    return found


@functools.cache
def scripts() -> dict[str, Path]:
    """The file of each item."""
    found = {}
    for path in sorted(PAPERS.glob("*/*.py")):
        paper = NAMES.get(path.parent.name, path.parent.name)
        for item in re.findall(r'@PAPER\.item\("([\w-]+)"', path.read_text(encoding="utf-8")):
            found[f"{paper}:{item}"] = path
    return found


def origin_of(section: dict[str, Any]) -> dict[str, Any]:
    """Where an item comes from, as the pages of benchmarks tell it: a plus behind the commit is a dirty tree."""
    commit = section["made"]["commit"] or ""
    changed = ["src"] if commit.endswith("+") else []
    return {"commit": commit.rstrip("+"), "changed": changed, "seconds": section["seconds"]}


def stale_items(items: list[str]) -> dict[str, str]:
    """Why items are to be run again, those for which there is a reason."""
    sections, found = read(RECORD), {}
    # Many items come from one run and one script: git is asked once for each commit and script.
    known: dict[tuple[Path, str], str] = {}
    for item in items:
        if item not in sections:
            found[item] = "it was never run"
            continue
        key = scripts()[item], sections[item]["made"]["commit"]
        if key not in known:
            known[key] = why_changed(origin_of(sections[item]), places(key[0]))
        if known[key]:
            found[item] = known[key]
    return found


def all_items() -> list[str]:
    """The keys of all items, in the order of the papers: those that have an estimate, and a test sees that all have."""
    # Not from the package: to list what is stale, seconds of imports would be too many.
    return list(json.loads(ESTIMATES.read_text(encoding="utf-8")))


def why_stale() -> str:
    """Why the page is to be made again; nothing if it is not."""
    items = all_items()
    found = stale_items(items)
    if not found:
        return ""
    item, why = next(iter(found.items()))
    return f"{len(found)} of {len(items)} items, {item} the first: {why}"


def last_seconds() -> float | None:
    """Seconds that the items took when they were run, one after the other; None if there is no record."""
    sections = read(RECORD)
    return sum(section["seconds"] for section in sections.values()) if sections else None


def reproduce(*arguments: str) -> None:
    """Call the program; what it says is shown."""
    subprocess.run([sys.executable, "-m", "everlearn", "reproduce", *arguments], cwd=ROOT, check=True)


def take_partial() -> None:
    """Put what was run into the record, and write the pages and the estimates from it."""
    with tempfile.TemporaryDirectory() as scratch:
        report = ("--output", str(Path(scratch, "reproduction.html")))
        ran = {item for item, section in read(PARTIAL).items() if section["verdict"] != "skipped"}
        if ran == set(all_items()):
            # One run of everything: its command is that of the whole record.
            shutil.copy(PARTIAL, RECORD)
            reproduce("--render", "--json", str(RECORD), *report, *PAGES)
        else:
            reproduce("--merge", str(PARTIAL), "--json", str(RECORD), *report, *PAGES)
    subprocess.run([sys.executable, "tools/estimates.py", str(RECORD)], cwd=ROOT, check=True)
    PARTIAL.unlink()


def run(items: list[str], *, resume: bool) -> None:
    """Run items into the partial record, and take it up."""
    with tempfile.TemporaryDirectory() as scratch:
        place = ("--json", str(PARTIAL), "--output", str(Path(scratch, "reproduction.html")))
        # Of a run that was interrupted inside an item, the program keeps the parts beside the partial record.
        reproduce(*items, *(("--resume",) if resume else ()), *place)
    take_partial()


def main() -> None:
    """Run the reproduction, or what is missing of it."""
    options = parser(__doc__)
    options.add_argument("--resume", action="store_true", help="run only what is missing or out of date")
    chosen = options.parse_args()
    if chosen.quick:
        with tempfile.TemporaryDirectory() as scratch:
            reproduce("--quick", "--output", str(Path(scratch, "reproduction.html")))
        return
    if not chosen.resume:
        run([], resume=False)
        return
    if read(PARTIAL):
        take_partial()
    stale = list(stale_items(all_items()))
    if stale:
        run(stale, resume=True)


if __name__ == "__main__":
    main()
