"""The comparison as Markdown or as one HTML page."""

from __future__ import annotations

import os
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from everlearn.errors import InputError
from everlearn.experiments.papers.provenance import provenance
from everlearn.experiments.peers.adapter import OURS
from everlearn.experiments.peers.table import Headline, Measure, Row, Table, summary
from everlearn.persistence.atomic_write import write_whole
from everlearn.reporting import tables

LEAD = (
    "Every figure comes from one run, all contenders on the same rows, with the defaults of everlearn and of the peers "
    "except where a note says otherwise. The best figure of a column is bold."
)
BNPY = (
    "bnpy is not measured: version 0.1.7, the latest, pins joblib 0.14.1, which current scikit-learn does not accept, "
    "and its runner calls inspect.getargspec, which Python 3.11 no longer has."
)
COLUMNS = ("measure", "everlearn", "best peer", "everlearn / peer, or − peer")


class Report(NamedTuple):
    """What a run found, the command that made it, and with what."""

    tables: list[Table]
    command: str
    made: str

    @property
    def headlines(self) -> list[Headline]:
        """The lines of the summary."""
        return summary(self.tables)

    def verdict(self) -> str:
        """A sentence that says where a peer is better."""
        lost = [line.measure.headline for line in self.headlines if not line.we_win]
        if not self.headlines:
            return "No peer was measured."
        return f"A peer is better at: {'; '.join(lost)}." if lost else "No peer is better at any of these."


def made_with() -> str:
    """Versions and machine, to be asked before a run: the checkout may change meanwhile."""
    found: dict[str, Any] = provenance()
    commit = f", commit {found['commit']}" if found["commit"] else ""
    return (
        f"everlearn {found['everlearn']}{commit}, Python {found['python']}, NumPy {found['numpy']}, {found['machine']}"
    )


def write(report: Report, path: str | os.PathLike[str]) -> None:
    """Write a report; the ending of the path says in which form.

    Parameters
    ----------
    report : Report
        What was found.
    path : path-like
        A file that ends in .html or .md.
    """
    write_whole(path, form_of(path)(report), "report")


def form_of(path: str | os.PathLike[str]) -> Any:
    """The function that turns a report into the text of a file."""
    forms = {".html": html, ".md": markdown}
    ending = Path(path).suffix.lower()
    if ending not in forms:
        raise InputError(f"A report is written to a file that ends in .html or .md; got {os.fspath(path)!r}.")
    return forms[ending]


# -- tables ----------------------------------------------------------------------------------------


def figures(table: Table) -> tables.Table:
    """All figures of one column of the comparison; our rows stand out, the best figure is strong."""
    rows: list[list[tables.Value]] = [
        [row.contender.title, *(_figure(table, measure, row) for measure in table.measures)] for row in table.rows
    ]
    ours = [i for i, row in enumerate(table.rows) if row.contender.package == OURS and not row.contender.baseline]
    return tables.Table(["", *(measure.title for measure in table.measures)], rows, highlighted=ours)


def _figure(table: Table, measure: Measure, row: Row) -> tables.Cell:
    return tables.Cell(measure.show(row.value(measure.key)), strong=table.wins(measure, row))


def summary_table(report: Report) -> tables.Table:
    """Our mixture with its defaults and the best peer of each line."""
    return tables.Table(COLUMNS, [_headline_cells(line) for line in report.headlines])


def _headline_cells(line: Headline) -> tuple[tables.Value, ...]:
    name, ours, peer, compared = line.cells()
    return name, tables.Cell(ours, strong=line.we_win), tables.Cell(peer, strong=not line.we_win), compared


# -- pages -----------------------------------------------------------------------------------------


def markdown(report: Report) -> str:
    """The report as Markdown."""
    parts = [
        f"# Peers, side by side\n\nMade by `{report.command}`: {report.made}.\n\n{LEAD}\n",
        summary_table(report).markdown(),
        f"{report.verdict()}\n",
        *(_section_markdown(table) for table in report.tables),
        f"{BNPY}\n",
    ]
    return "\n".join(parts)


def _section_markdown(table: Table) -> str:
    notes = "".join(f"- {tables.escape_markdown(note)}\n" for note in table.notes())
    return f"## {table.title}\n\n{table.about}\n\n{figures(table).markdown()}\n{notes}"


def html(report: Report) -> str:
    """The report as one page that needs nothing else."""
    style = resources.files("everlearn.experiments.peers").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>everlearn: peers, side by side</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>Peers, side by side</h1>\n<p>{LEAD}</p>\n"
        f'<p class="made"><code>{escape(report.command)}</code><br>{escape(report.made)}</p>\n'
        f"{summary_table(report).html()}<p>{escape(report.verdict())}</p>\n"
        f"{''.join(map(_section_html, report.tables))}<p>{BNPY}</p>\n</main>\n</body>\n</html>\n"
    )


def _section_html(table: Table) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes())
    about = f"<p>{escape(table.about)}</p>"
    return f"<h2>{escape(table.title)}</h2>\n{about}\n{figures(table).html()}<ul>{notes}</ul>\n"
