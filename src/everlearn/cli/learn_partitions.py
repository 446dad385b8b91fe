"""everlearn learn --workers, --cluster: partitions learned apart, their models merged."""

from __future__ import annotations

import os

from rich.console import Console
from rich.markup import escape

from everlearn.cli.common import check_place, errors_explained, names_in
from everlearn.cli.models import new_model
from everlearn.cli.options import LearnOptions, save_model
from everlearn.cli.summary import show_parts
from everlearn.distributed import Report, fit
from everlearn.reporting.tables import Table

_SHOWN_PARTITIONS = 10


def learn_partitions(asked: LearnOptions, console: Console) -> None:
    """Learn files on several processes or a cluster, say how it went, and save the model."""
    with errors_explained():
        check_place(asked.model_file, "--model-file", "model")
        model, report = fit(
            new_model(asked.model, asked.settings, asked.seed),
            asked.sources,
            engine=asked.cluster or "processes",
            workers=asked.workers,
            columns=names_in(asked.columns),
            target=asked.target,
            progress=not console.quiet,
        )
        # Saved before anything is shown: a terminal that went away must not cost the model.
        if asked.model_file is not None:
            save_model(asked, model)
    _show_report(report, console)
    show_parts(model, list(report.columns), console)
    if asked.model_file is not None:
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
