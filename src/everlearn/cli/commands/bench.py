"""everlearn bench: this machine, everlearn and its peers, side by side."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from everlearn.cli.common import check_place, errors_explained, names_in

_EXAMPLES = """
Examples:

\b
  everlearn bench --quick
  everlearn bench --only classification,regression
  everlearn bench --only anomaly,change,river --out report.md
  everlearn bench --out report.html
"""


@click.command(name="bench", epilog=_EXAMPLES)
@click.option(
    "--quick", is_flag=True, help="Shorter streams, fewer of them, without the slowest models: under a minute."
)
@click.option("--only", multiple=True, metavar="NAME",
              help="Columns (speed, classification, regression, density, missing, conditional, anomaly, change) or "
              "packages (scikit-learn, river, gmr, pomegranate, pysad); may be repeated, or hold several with "
              "commas.")  # fmt: skip
@click.option("--rows", type=click.IntRange(min=1000), help="Most rows of a stream; 50,000, or 1,000 with --quick.")
@click.option("--out", "places", multiple=True, type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the tables to a file that ends in .html or .md; may be repeated.")  # fmt: skip
def command(quick: bool, only: tuple[str, ...], rows: int | None, places: tuple[str, ...]) -> None:
    """Measure everlearn beside its peers: speed, memory, classes, regression, likelihood, gaps, anomalies.

    All are measured in one run on the same rows, with their defaults. Peers that are not installed are named and left
    out; `pip install 'everlearn[peers]'` brings river and gmr.
    """
    from everlearn.experiments.peers import Report, context_for, made_with, tasks, write
    from everlearn.experiments.peers.report import form_of

    console = Console(highlight=False)
    with errors_explained():
        for place in places:
            form_of(place)
            check_place(place, "--out", "report")
        # The commit is asked before the run: the checkout may change meanwhile.
        todo, made = tasks(names_in(only) or (), quick=quick), made_with()
        report = Report(_compared(todo, context_for(quick=quick, rows=rows), console), _asked(), made)
        for place in places:
            write(report, place)
    _show(report, console)
    for place in places:
        console.print(f"Report: [bold]{escape(place)}[/]", soft_wrap=True)


def _asked() -> str:
    """The command as one would type it."""
    return shlex.join(["everlearn", *sys.argv[1:]])


def _compared(todo: list[Any], context: Any, console: Console) -> list[Any]:
    """Measure behind a progress bar."""
    from everlearn.experiments.peers import compare

    with Progress(BarColumn(30), TimeElapsedColumn(), TextColumn("{task.fields[state]}"), console=console) as progress:
        bar = progress.add_task("", total=len(todo), state="starting (a first run compiles for up to a minute)")

        def report(done: int, task: Any) -> None:
            state = f"[bold]{task.column.NAME}[/] {escape(task.contender.title)}"
            progress.update(bar, completed=done, state=state)

        tables = compare(todo, context, report)
        progress.update(bar, completed=len(todo), state="done")
    return tables


def _show(report: Any, console: Console) -> None:
    """Print the tables, the best figures bold, and the summary last, where it is seen."""
    from everlearn.experiments.peers.report import figures, summary_table

    for table in report.tables:
        figures(table)._replace(title=table.title).show(console)
        for note in table.notes():
            console.print(f"[dim]{escape(note)}[/]", soft_wrap=True)
    summary_table(report)._replace(title="Our mixture with its defaults, and the best peer").show(console)
    console.print(report.verdict())
