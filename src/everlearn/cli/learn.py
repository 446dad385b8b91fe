"""everlearn learn: a model from a stream."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import everlearn
from everlearn.cli.common import check_place, errors_explained, names_in, number, show_table
from everlearn.streams.csv import CsvSource
from everlearn.streams.demo import COLUMNS, demo_stream
from everlearn.streams.demo_report import DemoReport
from everlearn.streams.monitor import Foresight, Monitor

Array = NDArray[np.float64]

DEMO_ROWS = 20_000
_DEMO_BATCH = 100
_REFRESH_SECONDS = 0.5
_SHOWN_COMPONENTS = 6
_SHOWN_COLUMNS = 6
_EXAMPLES = """
Examples:

\b
  everlearn learn --demo
  everlearn learn sensors.csv --model-file machine.evl
  everlearn learn sensors.csv --columns 'temp*,rpm' --rows 100000
"""


@click.command(name="learn", epilog=_EXAMPLES)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--demo", is_flag=True, help="Learn the demonstration stream: a machine with regimes, gaps and faults.")
@click.option("--model-file", type=click.Path(dir_okay=False), help="Save the model here.")
@click.option("--columns", multiple=True, help="Names or patterns of the columns to learn, separated by commas.")
@click.option("--rows", type=click.IntRange(min=1), help=f"Learn at most this many rows; the demo has {DEMO_ROWS}.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all randomness.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    file: str | None,
    demo: bool,
    model_file: str | None,
    columns: tuple[str, ...],
    rows: int | None,
    seed: int,
    quiet: bool,
) -> None:
    """Learn a Gaussian mixture from a CSV file, one row after the other.

    Columns of text or times are left out with a word about it, and so are rows that cannot be read. Empty cells are
    gaps, which the model takes as they are.
    """
    if demo == (file is not None):
        raise click.UsageError("Give a CSV file to learn from, or --demo, and not both.")
    if demo and columns:
        raise click.UsageError("--columns chooses columns of a file; the demonstration stream is learned whole.")
    console = Console(quiet=quiet, highlight=False)
    with errors_explained():
        check_place(model_file, "--model-file", "model")
        model = everlearn.IncrementalGaussianMixture(random_state=seed)
        if demo:
            _learn_demo(model, rows or DEMO_ROWS, seed, console)
        else:
            _learn_file(model, str(file), names_in(columns), rows, console)
        if model_file is not None:
            everlearn.save(model, model_file)
            console.print(f"\nSaved to [bold]{escape(model_file)}[/] ({os.path.getsize(model_file):,} bytes).")
        _suggest(model_file, demo, console)


# -- learning --------------------------------------------------------------------------------------


def _learn_demo(model: Any, n_rows: int, seed: int, console: Console) -> None:
    console.print(f"The demonstration stream: {n_rows:,} rows of a machine's {', '.join(COLUMNS)}.\n")
    monitor, report = Monitor(model), DemoReport()
    batches = list[Any]()

    def rows() -> Iterator[Array]:
        for batch in demo_stream(n_rows, seed=seed, batch_rows=_DEMO_BATCH):
            batches[:] = [batch]
            yield batch.X

    for seen in _watched(monitor, rows(), list(COLUMNS), console, lambda: (monitor.n_rows, n_rows)):
        report.add(batches[0], seen)
    _show_summary(monitor, list(COLUMNS), console)
    _show_demo(report, model, console)


def _learn_file(model: Any, file: str, columns: list[str] | None, n_rows: int | None, console: Console) -> None:
    with CsvSource(file, columns=columns) as source:
        if columns is None:
            for name, what in source.left_out.items():
                console.print(f"The column [bold]{escape(name)}[/] holds {what} and is left out.")
        monitor = Monitor(model)
        for _ in _watched(monitor, _first(source, n_rows), source.names, console, source.progress):
            pass
    for reason, count in source.bad_rows.items():
        console.print(f"[yellow]Rows left out: {count:,} with {reason} (first at line {source.first_bad[reason]}).[/]")
    if monitor.n_rows == 0:
        raise click.ClickException(f"{file} has no row that can be learned.")
    _show_summary(monitor, source.names, console)


def _first(batches: Iterable[Array], n_rows: int | None) -> Iterator[Array]:
    """Batches up to a number of rows in all."""
    left = n_rows
    for batch in batches:
        yield batch if left is None else batch[:left]
        left = None if left is None else left - len(batch)
        if left is not None and left <= 0:
            return


def _watched(
    monitor: Monitor, batches: Iterable[Array], names: list[str], console: Console, position: Any
) -> Iterator[Foresight]:
    """Learn the batches behind a progress bar; Ctrl-C ends the learning, not the program."""
    start = shown = time.perf_counter()
    with _progress(console) as progress:
        task = progress.add_task("learning", total=None, state="starting (a first run compiles for some seconds)")
        try:
            for X in batches:
                yield monitor.learn(X)
                if monitor.n_rows == len(X):
                    monitor.model.feature_names_in_ = np.array(names, dtype=object)
                if time.perf_counter() - shown > _REFRESH_SECONDS:
                    shown = time.perf_counter()
                    done, total = position()
                    progress.update(task, completed=done, total=total, state=_state(monitor, shown - start))
        except KeyboardInterrupt:
            progress.console.print(f"[yellow]Stopped after {monitor.n_rows:,} rows.[/]")
        if monitor.n_rows:
            state = _state(monitor, time.perf_counter() - start)
            progress.update(task, completed=monitor.n_rows, total=monitor.n_rows, state=state)


def _progress(console: Console) -> Progress:
    return Progress(BarColumn(30), TextColumn("{task.fields[state]}"), TimeElapsedColumn(), console=console)


def _state(monitor: Monitor, seconds: float) -> str:
    return (
        f"{monitor.n_rows:,} rows, {monitor.n_rows / seconds:,.0f}/s, {monitor.model.n_components_} components, "
        f"log-likelihood {monitor.mean_log_likelihood:.2f}, {monitor.n_novel} novel, {monitor.n_changes} changes"
    )


# -- showing ---------------------------------------------------------------------------------------


def _show_summary(monitor: Monitor, names: list[str], console: Console) -> None:
    model = monitor.model
    weights, means, covariances = model.weights_, model.means_, model.covariances_
    centre = weights @ means
    spread = np.sqrt(np.einsum("k,kd->d", weights, np.diagonal(covariances, axis1=1, axis2=2) + (means - centre) ** 2))
    columns = Table("column", "mean", "std", "gaps", title=f"{len(names)} columns, {monitor.n_rows:,} rows")
    for row in itertools.islice(zip(names, centre, spread, monitor.n_gaps, strict=True), 20):
        name, mean, std, gaps = row
        columns.add_row(escape(name), number(mean), number(std), f"{gaps / monitor.n_rows:.1%}")
    show_table(columns, console)
    shown = names[:_SHOWN_COLUMNS]
    heaviest = np.argsort(-weights)[:_SHOWN_COMPONENTS]
    components = Table("weight", *map(escape, shown), title=f"The heaviest of {len(weights)} components: their means")
    for k in heaviest:
        components.add_row(f"{weights[k]:.1%}", *(number(means[k, j]) for j in range(len(shown))))
    show_table(components, console)


def _show_demo(report: DemoReport, model: Any, console: Console) -> None:
    regimes = Table(
        "regime", "rows", "first at row", "log-likelihood when new", "at last", title="Regimes (the model was not told)"
    )
    for regime in report.regimes():
        if regime.n_rows:
            row = [f"{regime.n_rows:,}", f"{regime.first_row:,}", f"{regime.first:.1f}", f"{regime.last:.1f}"]
            regimes.add_row(regime.name, *row)
    show_table(regimes, console)
    changes = report.changes()
    console.print(
        f"{changes.n_noticed} of {changes.n_switches} switches of regime were noticed within 25 rows, "
        f"and {changes.n_other} changes elsewhere."
    )
    _show_faults(report, console)
    gaps = Table("column", "gaps", "error", "error of the mean", title="Gaps of the latest rows, filled by the model")
    for gap in report.gaps(model):
        gaps.add_row(gap.column, f"{gap.n_gaps}", number(gap.error), number(gap.error_of_mean))
    show_table(gaps, console)


def _show_faults(report: DemoReport, console: Console) -> None:
    table = Table("fault", "times", "found", title="Faults (nor of these)")
    for fault in report.faults():
        share = f" ({fault.n_found / fault.n_faults:.0%})" if fault.n_faults else ""
        table.add_row(fault.name, f"{fault.n_faults}", f"{fault.n_found}{share}")
    show_table(table, console)
    alarms = report.alarms()
    console.print(
        f"Novel rows without a fault: {alarms.new_regime} of new regimes, {alarms.after_switch} just after a switch, "
        f"{alarms.unexplained} of {report.n_rows:,} otherwise."
    )


def _suggest(model_file: str | None, demo: bool, console: Console) -> None:
    console.print("\nTo try next:")
    if model_file is None:
        console.print("  add [bold]--model-file machine.evl[/] to keep what was learned", soft_wrap=True)
    else:
        code = f"import everlearn; m = everlearn.load({model_file!r}); print(m.means_)"
        console.print(f"  [bold]python -c {escape(repr(code))}[/]", soft_wrap=True)
    if demo:
        console.print("  [bold]everlearn learn --demo --seed 7[/] for another machine", soft_wrap=True)
        console.print("  [bold]everlearn learn FILE.csv --model-file FILE.evl[/] for your own", soft_wrap=True)
