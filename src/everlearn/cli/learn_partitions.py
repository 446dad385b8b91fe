"""everlearn learn --workers, --cluster: partitions learned apart, their models merged."""

from __future__ import annotations

import os
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

import everlearn
from everlearn.cli.common import names_in
from everlearn.cli.models import new_model
from everlearn.cli.summary import show_parts
from everlearn.distributed import Report, fit
from everlearn.reporting.tables import Table

_SHOWN_PARTITIONS = 10
_ALONE = ("demo", "start", "rows", "state", "report", "outputs", "follow", "stop_at_end", "patience")


def check_usage(asked: Any) -> None:
    """Refuse what belongs to a stream that is learned row after row."""
    if asked.workers is not None and asked.cluster is not None:
        raise click.UsageError("Give --workers for processes of this machine, or --cluster, and not both.")
    given = next((name for name in _ALONE if getattr(asked, name)), None)
    if given is not None:
        option = f"--{next(iter(asked.outputs))}" if given == "outputs" else f"--{given.replace('_', '-')}"
        raise click.UsageError(
            f"{option} belongs to a stream that is learned row after row; --workers and --cluster learn whole files "
            "apart and merge the models."
        )


def learn_partitions(asked: Any, console: Console) -> None:
    """Learn files on several processes or a cluster, say how it went, and save the model."""
    model, report = fit(
        new_model(asked.model, asked.settings, asked.seed),
        asked.sources,
        engine=asked.cluster or "processes",
        workers=asked.workers,
        columns=names_in(asked.columns),
        target=asked.target,
        progress=not console.quiet,
    )
    _show_report(report, console)
    show_parts(model, list(report.columns), console)
    if asked.model_file is not None:
        everlearn.save(model, asked.model_file)
        console.print(f"\nSaved to [bold]{escape(asked.model_file)}[/] ({os.path.getsize(asked.model_file):,} bytes).")


def _show_report(report: Report, console: Console) -> None:
    for name, what in report.left_out.items():
        console.print(f"The column [bold]{escape(name)}[/] holds {what} and is left out.")
    n = len(report.partitions)
    rate = report.rows / max(report.seconds, 1e-9)
    title = f"{report.rows:,} rows of {n} partitions in {report.seconds:.1f} s ({rate:,.0f}/s)"
    shown = report.partitions[:_SHOWN_PARTITIONS]
    rows = [(record.name, f"{record.rows:,}", f"{record.seconds:.1f}", record.worker) for record in shown]
    Table(("partition", "rows", "seconds", "worker"), rows, title).show(console)
    if n > _SHOWN_PARTITIONS:
        console.print(f"and {n - _SHOWN_PARTITIONS} partitions more")
    if report.lost_workers:
        console.print(f"[yellow]{report.lost_workers} workers were lost; their partitions were learned again.[/]")
