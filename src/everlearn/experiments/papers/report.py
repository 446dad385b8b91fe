"""The report: one HTML page with everything in it."""

from __future__ import annotations

import json
import os
from html import escape
from importlib import resources
from typing import Any

from everlearn.errors import MissingExtraError, require
from everlearn.experiments.papers.results import (
    NOT_REPRODUCED,
    PAPER_MODE_ONLY,
    REPRODUCED,
    SKIPPED,
    VERDICTS,
    rendered,
)
from everlearn.persistence.atomic_write import write_whole

CLASSES = {REPRODUCED: "reproduced", PAPER_MODE_ONLY: "paper-mode", NOT_REPRODUCED: "not", SKIPPED: "skipped"}
LEAD = (
    "Every table and figure of the papers behind everlearn, made anew. Numbers were computed in this run; the small "
    "ones beneath them are the papers' own."
)


def write_report(record: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the results of a run as one HTML page; without plotly it has no figures, and says so.

    Parameters
    ----------
    record : dict
        What `Reproduction` keeps or `read` gives.
    path : path-like
        The page.
    """
    write_whole(path, page(record), "report")


def page(record: dict[str, Any]) -> str:
    """Return the page."""
    plots: list[Any] = []
    body = "".join(_paper(record, key, plots) for key in record["papers"])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>everlearn: the papers, reproduced</title>\n<style>\n{_file('page.css')}</style>\n</head>\n<body>\n"
        f'<div class="layout">\n{_navigation(record)}\n<main>\n{_top(record)}\n{body}\n</main>\n</div>\n'
        f'<script type="application/json" id="plots">{_safe(plots)}</script>\n'
        f"<script>{plotly_script() if plots else ''}</script>\n<script>\n{_file('page.js')}</script>\n"
        "</body>\n</html>\n"
    )


def plotly_script() -> str:
    """Return plotly's JavaScript, or nothing where it is not installed."""
    try:
        script: str = require("plotly.offline", extra="plot").get_plotlyjs()
    except MissingExtraError:
        return ""
    return script


def _file(name: str) -> str:
    return resources.files("everlearn.experiments.papers").joinpath(f"page/{name}").read_text(encoding="utf-8")


def _safe(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    # "</script>" in a title would end the element, whatever the JSON says: no "<" is left in it.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


# -- the frame -------------------------------------------------------------------------------------


def _navigation(record: dict[str, Any]) -> str:
    parts = []
    for key in record["papers"]:
        links = [
            f'<a href="#{_anchor(section)}" class="{CLASSES[section["verdict"]]}"><span class="dot"></span>'
            f"{escape(section['title'])}</a>"
            for section in _sections(record, key)
        ]
        parts.append(f"<h2>{escape(key)}</h2>{''.join(links)}")
    return f"<nav>{''.join(parts)}</nav>"


def _top(record: dict[str, Any]) -> str:
    sections = list(record["sections"].values())
    counts = {verdict: sum(section["verdict"] == verdict for section in sections) for verdict in VERDICTS}
    boxes = "".join(
        f'<div class="{CLASSES[verdict]}"><b>{count}</b><span>{verdict}</span></div>'
        for verdict, count in counts.items()
        if count
    )
    head = f'<h1>The papers, reproduced</h1>\n<p class="lead">{LEAD}</p>'
    return f'{head}\n<div class="counts">{boxes}</div>\n{made(record)}'


def made(record: dict[str, Any]) -> str:
    """Return how the results were made, as a paragraph."""
    lines = [
        f"<code>{escape(record['command'])}</code>, {'quick run' if record['quick'] else 'full run'}, seed "
        f"{record['seed']}"
    ]
    return f'<p class="made">{"<br>".join([*lines, *map(escape, origins(record))])}</p>'


def origins(record: dict[str, Any]) -> list[str]:
    """Return one line for each version of the program and machine that sections were made with."""
    found: dict[str, list[str]] = {}
    for section in record["sections"].values():
        made_with = section["made"]
        commit = f", commit {made_with['commit']}" if made_with["commit"] else ""
        text = (
            f"everlearn {made_with['everlearn']}{commit}, Python {made_with['python']}, NumPy {made_with['numpy']}, "
            f"{made_with['machine']}"
        )
        found.setdefault(text, []).append(made_with["finished"])
    return [f"{text}; {min(times)} to {max(times)}" for text, times in found.items()]


def _sections(record: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [section for section in record["sections"].values() if section["paper"] == key]


def _anchor(section: dict[str, Any]) -> str:
    return f"{section['paper']}-{section['item']}"


# -- a paper and its sections ----------------------------------------------------------------------


def _paper(record: dict[str, Any], key: str, plots: list[Any]) -> str:
    about = record["papers"][key]
    head = f'<div class="paper"><h2>{escape(about["title"])}</h2><p>{escape(about["authors"])}</p></div>'
    return head + "".join(_section(section, plots) for section in _sections(record, key))


def _section(section: dict[str, Any], plots: list[Any]) -> str:
    tone = CLASSES[section["verdict"]]
    head = f'<header><h3>{escape(section["title"])}</h3><span class="badge {tone}">{badge(section)}</span></header>'
    if section["verdict"] == SKIPPED:
        return f'<section id="{_anchor(section)}">{head}<p class="about">{escape(section["why"])}</p></section>\n'
    runs = f"{section['n_runs']} runs, " if section["n_runs"] > 1 else ""
    command = f"everlearn reproduce {section['paper']}:{section['item']}"
    parts = [
        head,
        f'<p class="about">{escape(section["about"])}</p>',
        _claims(section["claims"]),
        *(rendered(table, "paper ").html() for table in section["tables"]),
        *(_figure(figure, plots) for figure in section["figures"]),
        f'<p class="took">{runs}{section["seconds"]:.0f} s &middot; <code>{command}</code></p>',
    ]
    return f'<section id="{_anchor(section)}">\n{"".join(parts)}</section>\n'


def badge(section: dict[str, Any]) -> str:
    """Return the verdict in words, and how many claims hold where not all do."""
    claims = section["claims"]
    hold = sum(claim["verdict"] != NOT_REPRODUCED for claim in claims)
    part = section["verdict"] == NOT_REPRODUCED and hold
    return f"{section['verdict']}{f': {hold} of {len(claims)} claims hold' if part else ''}"


def _claims(claims: list[dict[str, Any]]) -> str:
    items = "".join(
        f'<li class="{CLASSES[claim["verdict"]]}"><span class="dot" title="{claim["verdict"]}"></span><div>'
        f"<p>{escape(claim['said'])}</p>"
        f'<p class="found"><span class="word">{claim["verdict"].capitalize()}.</span> {escape(claim["found"])}</p>'
        "</div></li>"
        for claim in claims
    )
    return f'<ul class="claims">{items}</ul>'


def _figure(figure: dict[str, Any], plots: list[Any]) -> str:
    plots.append(figure["plot"])
    note = f"<figcaption>{escape(figure['note'])}</figcaption>" if figure["note"] else ""
    place = f'<div class="plot" data-plot="{len(plots) - 1}"></div>'
    return f"<figure><h4>{escape(figure['title'])}</h4>{place}{note}</figure>"
