"""The results of a run as a page of the documentation."""

from __future__ import annotations

import os
from typing import Any

from everlearn.experiments.papers.registry import choose
from everlearn.experiments.papers.report import badge, origins
from everlearn.experiments.papers.results import SKIPPED, VERDICTS, Cell, shown
from everlearn.persistence.atomic_write import write_whole


def write_markdown(record: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the results of a run as Markdown.

    Parameters
    ----------
    record : dict
        What `Reproduction` keeps or `read` gives.
    path : path-like
        The file.
    """
    write_whole(path, markdown(record), "page")


def markdown(record: dict[str, Any]) -> str:
    """Return the page."""
    parts = [_head(record)]
    for key, about in record["papers"].items():
        parts.append(f"## {about['title']}\n\n{about['authors']}. `everlearn reproduce {key}`\n")
        parts += [_section(section) for section in record["sections"].values() if section["paper"] == key]
    return "\n".join(parts)


def _head(record: dict[str, Any]) -> str:
    sections = list(record["sections"].values())
    counts = [f"{sum(s['verdict'] == verdict for s in sections)} {verdict}" for verdict in VERDICTS]
    rows = "\n".join(
        f"| `{s['paper']}:{s['item']}` | {plain(s['title'])} | {badge(s)} | {s['seconds']:.0f} |" for s in sections
    )
    origin = "\n".join(f"- {line}" for line in origins(record))
    kind = "A quick run" if record["quick"] else "A full run"
    return (
        "# The papers, reproduced\n\n"
        f"{kind} of `{record['command']}` (seed {record['seed']}): {', '.join(counts)}. This page is made from its "
        "results; the same command writes them as an HTML report with the figures.\n\n"
        f"{_absent(record)}{origin}\n\n"
        "In the tables our number comes first, ± the spread over runs or folds, and the paper's own behind it in "
        f"brackets.\n\n| item | | verdict | seconds |\n|---|---|---|---|\n{rows}\n"
    )


def _absent(record: dict[str, Any]) -> str:
    """Which items the run does not hold, where it is not one of all."""
    known = [item.key for item in choose()]
    run = {f"{s['paper']}:{s['item']}" for s in record["sections"].values()}
    absent = [f"`{name}`" for name in known if name not in run]
    return f"Not run, and so neither reproduced nor refuted here: {', '.join(absent)}.\n\n" if absent else ""


def _section(section: dict[str, Any]) -> str:
    head = f"### {plain(section['title'])}\n\n**{badge(section).capitalize()}.** "
    if section["verdict"] == SKIPPED:
        return f"{head}{plain(section['why'])}\n"
    runs = f" {section['n_runs']} runs." if section["n_runs"] > 1 else ""
    claims = "\n".join(
        f"- {plain(c['said'])} *{c['verdict'].capitalize()}:* {plain(c['found'])}" for c in section["claims"]
    )
    tables = "\n".join(_table(table) for table in section["tables"])
    return f"{head}{plain(section['about'])}{runs}\n\n{claims}\n\n{tables}"


def _table(table: dict[str, Any]) -> str:
    lines = [
        f"{plain(table['title'])}:\n",
        _row([plain(name) for name in table["columns"]]),
        _row(["---"] * len(table["columns"])),
        *(_row([_cell(cell) for cell in row]) for row in table["rows"]),
    ]
    note = f"\n{plain(table['note'])}\n" if table["note"] else ""
    return "\n".join(lines) + f"\n{note}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    printed = cell["printed"] if isinstance(cell, dict) else ""
    return plain(shown(cell)) + (f" ({plain(printed)})" if printed else "")


def plain(words: str) -> str:
    """Words in which nothing is markup of Markdown."""
    for sign in ("\\", "*", "_", "|", "<", "`"):
        words = words.replace(sign, f"\\{sign}")
    return words
