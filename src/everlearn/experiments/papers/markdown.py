"""The results of a run as a page of the documentation."""

from __future__ import annotations

import os
from typing import Any

from everlearn.experiments.papers.registry import choose
from everlearn.experiments.papers.report import badge, origins
from everlearn.experiments.papers.results import SKIPPED, VERDICTS, rendered
from everlearn.persistence.atomic_write import write_whole
from everlearn.reporting.tables import Table, escape_markdown


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
    rows = [(f"{s['paper']}:{s['item']}", s["title"], badge(s), f"{s['seconds']:.0f}") for s in sections]
    items = Table(("item", "", "verdict", "seconds"), rows).markdown()
    origin = "\n".join(f"- {line}" for line in origins(record))
    return (
        "# The papers, reproduced\n\n"
        f"{_runs(record)} (seed {record['seed']}): {', '.join(counts)}. This page is made from the results by a "
        "command; `everlearn reproduce` writes them as an HTML report with the figures.\n\n"
        f"{_absent(record)}{origin}\n\n"
        "In the tables our number comes first, ± the spread over runs or folds, and the paper's own behind it in "
        f"brackets.\n\n{items}"
    )


def _runs(record: dict[str, Any]) -> str:
    """Which command made the sections; several where a run was resumed or put together from parts."""
    size = "quick" if record["quick"] else "full"
    commands = list(dict.fromkeys(section["command"] for section in record["sections"].values()))
    if len(commands) == 1:
        return f"One {size} run of `{commands[0]}`"
    return f"Put together from {len(commands)} {size} runs, {', '.join(f'`{command}`' for command in commands)}"


def _absent(record: dict[str, Any]) -> str:
    """Which items the run does not hold, where it is not one of all."""
    known = [item.key for item in choose()]
    run = {f"{s['paper']}:{s['item']}" for s in record["sections"].values()}
    absent = [f"`{name}`" for name in known if name not in run]
    return f"Not run, and so neither reproduced nor refuted here: {', '.join(absent)}.\n\n" if absent else ""


def _section(section: dict[str, Any]) -> str:
    head = f"### {escape_markdown(section['title'])}\n\n**{badge(section).capitalize()}.** "
    if section["verdict"] == SKIPPED:
        return f"{head}{escape_markdown(section['why'])}\n"
    runs = f" {section['n_runs']} runs." if section["n_runs"] > 1 else ""
    claims = "\n".join(
        f"- {escape_markdown(c['said'])} *{c['verdict'].capitalize()}:* {escape_markdown(c['found'])}"
        for c in section["claims"]
    )
    tables = "\n".join(rendered(table).markdown() for table in section["tables"])
    return f"{head}{escape_markdown(section['about'])}{runs}\n\n{claims}\n\n{tables}"


def _claim(claim: dict[str, Any]) -> str:
    said, found = escape_markdown(claim["said"]), escape_markdown(claim["found"])
    return f"- {said} *{claim['verdict'].capitalize()}:* {found}"
