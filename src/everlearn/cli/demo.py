"""The demonstration stream in the program: its source, and what the model made of it beside the truth."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from everlearn.datasets.demo import COLUMNS, DemoBatch, demo_stream, join, rows_of
from everlearn.reporting.demo_report import DemoReport
from everlearn.reporting.tables import Table, number
from everlearn.streams.prequential import PrequentialResult
from everlearn.streams.sources.parsing import Batch
from everlearn.streams.sources.source import IteratorSource

ROWS = 20_000
_BATCH_ROWS = 100


def source(n_rows: int, seed: int) -> IteratorSource:
    """The stream as a source."""
    return IteratorSource(
        lambda: (batch.X for batch in demo_stream(n_rows, seed=seed, batch_rows=_BATCH_ROWS)),
        names=list(COLUMNS),
        place="the demonstration stream",
        n_rows=n_rows,
    )


def introduce(n_rows: int, console: Console) -> None:
    """Say what is learned."""
    console.print(f"The demonstration stream: {n_rows:,} rows of a machine's {', '.join(COLUMNS)}.\n")


class Observer:
    """Sets what the model predicted beside the truth.

    Parameters
    ----------
    seed, n_rows : int
        The stream.
    """

    def __init__(self, seed: int, n_rows: int) -> None:
        self._report = DemoReport()
        self._stream = demo_stream(n_rows, seed=seed, batch_rows=_BATCH_ROWS)
        self._held: DemoBatch = next(self._stream)
        self._first = 0

    def add(self, batch: Batch, result: PrequentialResult, model: Any) -> None:
        """Take a batch that the model has just learned."""
        first = result.first_row
        # A run that goes on from a state file begins in the middle of the stream.
        if not self._report.n_rows:
            self._report.n_rows = first
        self._report.add(self._truth(first, first + len(batch.X)), result)

    def _truth(self, start: int, stop: int) -> DemoBatch:
        while self._first + len(self._held.X) < stop:
            kept = rows_of(self._held, max(0, start - self._first), len(self._held.X))
            self._first += len(self._held.X) - len(kept.X)
            self._held = join([kept, next(self._stream)])
        return rows_of(self._held, start - self._first, stop - self._first)

    def show(self, model: Any, console: Console) -> None:
        """Print regimes, changes, faults and gaps."""
        self._show_regimes(console)
        self._show_components(model, console)
        changes = self._report.changes()
        console.print(
            f"{changes.n_noticed} of {changes.n_switches} switches of regime were noticed within 25 rows, "
            f"and {changes.n_other} changes elsewhere."
        )
        self._show_faults(console)
        gaps = [(g.column, g.n_gaps, number(g.error), number(g.error_of_mean)) for g in self._report.gaps(model)]
        columns = ("column", "gaps", "error", "error of the mean")
        Table(columns, gaps, "Gaps of the latest rows, filled by the model").show(console)

    def _show_regimes(self, console: Console) -> None:
        rows = [
            (regime.name, f"{regime.n_rows:,}", f"{regime.first_row:,}", regime.first, regime.last)
            for regime in self._report.regimes()
            if regime.n_rows
        ]
        columns = ("regime", "rows", "first at row", "log-likelihood when new", "at last")
        Table(columns, rows, "Regimes of the machine (the model does not know them)", digits=1).show(console)

    def _show_components(self, model: Any, console: Console) -> None:
        found = self._report.components(model)
        rows = [
            (f"{c.share:.1%}", f"{c.regime} ({c.pure:.0%})", f"{c.after_switch:.0%}", f"{c.fault:.0%}") for c in found
        ]
        columns = ("of all rows", "regime", "just after a switch", "of faults")
        Table(columns, rows, f"The {len(found)} components of the model, by what the machine did").show(console)
        settled = [c for c in found if c.after_switch < 0.5 and c.fault <= 0.05]
        regimes = {c.regime for c in settled}
        console.print(
            f"{sum(c.share for c in settled):.0%} of the rows are in {len(settled)} components of {len(regimes)} "
            "settled regimes; the others are of rows after a switch, while the temperature moves, and of faults."
        )

    def _show_faults(self, console: Console) -> None:
        rows = []
        for fault in self._report.faults():
            share = f" ({fault.n_found / fault.n_faults:.0%})" if fault.n_faults else ""
            rows.append((fault.name, fault.n_faults, f"{fault.n_found}{share}"))
        Table(("fault", "times", "found"), rows, "Faults of the machine (the model does not know them)").show(console)
        alarms = self._report.alarms()
        console.print(
            f"Novel rows without a fault: {alarms.new_regime} of new regimes, {alarms.after_switch} just after a "
            f"switch, {alarms.unexplained} of {self._report.n_rows:,} otherwise."
        )
