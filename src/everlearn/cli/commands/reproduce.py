"""everlearn reproduce: the tables and figures of the papers, beside the printed ones."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from everlearn.cli.common import check_place, errors_explained
from everlearn.experiments.papers import pool as workers
from everlearn.experiments.papers.markdown import write_markdown, write_verdicts
from everlearn.experiments.papers.registry import Item, choose, papers
from everlearn.experiments.papers.report import write_report
from everlearn.experiments.papers.results import NOT_REPRODUCED, PAPER_MODE_ONLY, REPRODUCED, SKIPPED
from everlearn.experiments.papers.run import Reproduction, merged, read, write_record
from everlearn.reporting.tables import Table

_COLOURS = {REPRODUCED: "green", PAPER_MODE_ONLY: "yellow", NOT_REPRODUCED: "red", SKIPPED: "dim"}
_PLACES = ("--output", "--json", "--data", "--markdown", "--verdicts")
_EXAMPLES = """
Examples:

\b
  everlearn reproduce --quick
  everlearn reproduce figmn:table2
  everlearn reproduce figmn online-vb --data ~/data --output papers.html
  everlearn reproduce figmn:table5 --json table5.json
  everlearn reproduce --merge table5.json --json reproduction.json
  everlearn reproduce --list
"""


@click.command(epilog=_EXAMPLES)
@click.argument("what", nargs=-1, metavar="[PAPER[:ITEM]]...")
@click.option("--quick", is_flag=True, help="Fewer runs and smaller sizes: under two minutes for everything.")
@click.option(
    "--output", type=click.Path(dir_okay=False), default="reproduction.html", show_default=True, help="The report."
)
@click.option("--json", "results", type=click.Path(dir_okay=False), help="The results; by default beside the report.")
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False), help="Folder of MNIST's four files, or of mnist/."
)
@click.option("--fetch", is_flag=True, help="Download MNIST from OpenML if there are no files.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all randomness.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep what --json holds already, go on with an item that was interrupted, and run the rest.",
)
@click.option("--render", is_flag=True, help="Run nothing: write the report from --json.")
@click.option(
    "--merge",
    "parts",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Run nothing: put the items of this file, a --json of another run, into --json. May be repeated.",
)
@click.option("--markdown", type=click.Path(dir_okay=False), help="Write the results as Markdown too.")
@click.option("--verdicts", type=click.Path(dir_okay=False), help="Write every claim and its verdict as Markdown too.")
@click.option("--list", "only_list", is_flag=True, help="List papers and items.")
def command(
    what: tuple[str, ...],
    quick: bool,
    output: str,
    results: str | None,
    data: str | None,
    fetch: bool,
    seed: int,
    resume: bool,
    render: bool,
    parts: tuple[str, ...],
    markdown: str | None,
    verdicts: str | None,
    only_list: bool,
) -> None:
    """Make the tables and figures of the papers anew, and set them beside the printed ones.

    Writes one HTML page that holds everything, and the results as JSON. What needs data or an extra that is not there
    is skipped, with a message.
    """
    console = Console(highlight=False)
    place = results or str(Path(output).with_suffix(".json"))
    with errors_explained():
        items = choose(what)
        if only_list:
            _list(console)
            return
        for path, option in (
            (output, "--output"),
            (place, "--json"),
            (markdown, "--markdown"),
            (verdicts, "--verdicts"),
        ):
            check_place(path, option, "results")
        if parts:
            record = merged([*([place] if Path(place).exists() else []), *parts])
            write_record(record, place)
        elif render:
            record = read(place)
        else:
            reproduction = Reproduction(_asked(sys.argv[1:]), quick=quick, seed=seed)
            if resume:
                reproduction.resume(place)
            kept = Path(place).with_suffix(".parts")
            # Parts are found by commit and arguments; those of a run that nobody resumes would only lie about.
            if not resume:
                _forget(kept)
            _run(reproduction, items, workers.Settings(quick, seed, data, fetch, parts=str(kept)), place, console)
            _forget(kept)
            record = reproduction.record
        write_report(record, output)
        if markdown:
            write_markdown(record, markdown)
        if verdicts:
            write_verdicts(record, verdicts)
        _summary(record, output, place, console)


def _forget(folder: Path) -> None:
    """Remove what items of an earlier run have left; a run that ended needs it no more."""
    for part in folder.glob("*.json"):
        part.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _asked(arguments: list[str]) -> str:
    """The command as one would type it, without the places of files: they are no part of what was found."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        name, _, value = argument.partition("=")
        if not skip and name not in _PLACES:
            kept.append(argument)
        skip = not skip and name in _PLACES and not value
    return shlex.join(["everlearn", *kept])


def _list(console: Console) -> None:
    for paper in papers():
        items = paper.items.values()
        rows = [(item.key, item.title, *(f"{seconds:.0f} s" for seconds in item.seconds[:2])) for item in items]
        Table(("item", "", "quick", "full"), rows, f"{paper.title}\n{paper.authors}").show(console)


def _run(
    reproduction: Reproduction, items: list[Item], settings: workers.Settings, place: str, console: Console
) -> None:
    """Run what is missing behind a progress bar; the results are on disk after every item."""
    todo = reproduction.missing(items)
    plan = workers.plan(todo, settings)
    items_word = "item" if len(todo) == 1 else "items"
    console.print(
        f"{len(todo)} {items_word}, about {_duration(workers.duration(plan, settings))} (the very first run compiles "
        "for half a minute more).",
        soft_wrap=True,
    )
    with Progress(BarColumn(30), TimeElapsedColumn(), TextColumn("{task.fields[state]}"), console=console) as progress:
        bar = _Bar(progress, todo, settings)

        def keep(item: Item, section: dict[str, Any]) -> None:
            reproduction.add(item, section)
            # The whole file after every item: an interrupt of a run of hours leaves all that is done.
            reproduction.write(place)
            verdict = section["verdict"]
            why = f": {escape(section['why'])}" if verdict == SKIPPED else ""
            progress.console.print(f"  {item.key:<22} [{_COLOURS[verdict]}]{verdict}[/]{why}", soft_wrap=True)
            bar.finish(item)

        workers.run(plan, settings, keep, bar.report)


class _Bar:
    """How much is done, weighed by how long items take, and what is running."""

    def __init__(self, progress: Progress, items: list[Item], settings: workers.Settings) -> None:
        self._progress, self._settings = progress, settings
        self._done = 0.0
        self._running: dict[Item, tuple[float, str]] = {}
        self._bar = progress.add_task("", total=max(settings.cost(items), 1.0), state="")

    def report(self, item: Item, done: int, total: int, stage: str) -> None:
        """Show how far an item is."""
        share = done / max(total, 1)
        self._running[item] = self._settings.cost([item]) * share, f"{stage} {done}/{total}" if stage else ""
        self._show()

    def finish(self, item: Item) -> None:
        """Show that an item is done."""
        self._running.pop(item, None)
        self._done += self._settings.cost([item])
        self._show()

    def _show(self) -> None:
        state = ", ".join(f"[bold]{item.key}[/] {stage}".rstrip() for item, (_, stage) in self._running.items())
        begun = sum(cost for cost, _ in self._running.values())
        self._progress.update(self._bar, completed=self._done + begun, state=state)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def _summary(record: dict[str, Any], output: str, place: str, console: Console) -> None:
    verdicts = [section["verdict"] for section in record["sections"].values()]
    counted = ", ".join(f"[{_COLOURS[v]}]{verdicts.count(v)} {v}[/]" for v in _COLOURS if v in verdicts)
    console.print(f"\n{counted}")
    console.print(f"Report: [bold]{escape(output)}[/]   results: [bold]{escape(place)}[/]", soft_wrap=True)
