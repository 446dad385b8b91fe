"""The results of a run as pages of the documentation: everything, and the verdicts alone."""

from __future__ import annotations

import os
from typing import Any

from everlearn.experiments.papers.registry import choose
from everlearn.experiments.papers.report import badge, origins
from everlearn.experiments.papers.results import (
    NOT_REPRODUCED,
    PAPER_MODE_ONLY,
    REPRODUCED,
    SKIPPED,
    VERDICTS,
    rendered,
)
from everlearn.persistence.atomic_write import write_whole
from everlearn.reporting.tables import Cell, Table, escape_markdown


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
    return f"Put together from {len(commands)} {size} runs; each item names its own"


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
    return f"{head}{escape_markdown(section['about'])}{runs}\n\n{claims}\n\n{tables}\n{_origin(section)}"


def _origin(section: dict[str, Any]) -> str:
    made = section["made"]
    commit = f"commit {made['commit']}, " if made["commit"] else ""
    return f"Made by `{section['command']}`: {commit}{made['machine']}, {made['finished']}.\n"


# -- the verdicts alone ----------------------------------------------------------------------------

_SHORT = {REPRODUCED: "holds", PAPER_MODE_ONLY: "as printed only", NOT_REPRODUCED: "does not hold"}
# Claims that are no paper's begin so; they are counted apart.
_OURS = "Ours"


def write_verdicts(record: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the claims of a run and their verdicts, one line each, as Markdown.

    Parameters
    ----------
    record : dict
        What `Reproduction` keeps or `read` gives.
    path : path-like
        The file.
    """
    write_whole(path, verdicts(record), "page")


def verdicts(record: dict[str, Any]) -> str:
    """Return the page of verdicts: how many claims of each paper hold, then every claim with what was found."""
    claims = [(s, c) for s in record["sections"].values() for c in s["claims"] if s["verdict"] != SKIPPED]
    printed = [(s, c) for s, c in claims if not c["said"].startswith(_OURS)]
    rows: list[list[str | int]] = [
        [about["title"], *_counts([c for s, c in printed if s["paper"] == key])] for key, about in _papers(record)
    ]
    rows.append(["all", *_counts([c for _, c in printed])])
    parts = [
        "# What holds of the papers\n\n"
        "Every claim that was put to the test, with its verdict. *As printed only*: it holds for the paper's own "
        "algorithm and settings, and not for everlearn's default. This page is made from the results of "
        "`everlearn reproduce --verdicts`; [reproduction](reproduction.md) has the tables behind it, and "
        "[errata](errata.md) what is wrong in print.\n\n"
        + Table(("paper", "claims", *_SHORT.values()), rows).markdown()
    ]
    for key, about in _papers(record):
        parts.append(f"## {about['title']}\n\n{about['authors']}.\n\n{_verdict_table(printed, key)}")
    ours = [(s, c) for s, c in claims if c["said"].startswith(_OURS)]
    if ours:
        parts.append(f"## Ours\n\nWhat no paper says, measured beside its claims.\n\n{_verdict_table(ours)}")
    return "\n".join(parts)


def _papers(record: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    return list(record["papers"].items())


def _counts(claims: list[dict[str, Any]]) -> list[int]:
    return [len(claims), *(sum(c["verdict"] == verdict for c in claims) for verdict in _SHORT)]


def _verdict_table(claims: list[tuple[dict[str, Any], dict[str, Any]]], paper: str = "") -> str:
    rows = [
        (Cell(c["said"], beneath=c["found"]), Cell(_SHORT[c["verdict"]], strong=True), f"{s['paper']}:{s['item']}")
        for s, c in claims
        if not paper or s["paper"] == paper
    ]
    return Table(("claim (and what was found)", "verdict", "item"), rows).markdown()
