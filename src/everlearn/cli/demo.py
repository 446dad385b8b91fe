"""The demonstration stream in the program: its source, and what the model made of it beside the truth."""

from __future__ import annotations

import itertools
from typing import Any

from rich.console import Console

from everlearn.datasets.demo import COLUMNS, DemoBatch, demo_stream, join, rows_of
from everlearn.reporting.demo_report import DemoReport, Regimes, find_faults, find_regimes
from everlearn.reporting.regimes import Stay
from everlearn.reporting.tables import Table, count, number
from everlearn.streams.prequential import PrequentialResult
from everlearn.streams.sources.parsing import Batch
from everlearn.streams.sources.source import IteratorSource

# Enough for four regimes and faults of each kind. Seeds 0 to 7 find 188 of 196 faults (96 %), with 50 false alarms in
# 80,000 rows; with 20,000 rows each, which take a second more, 415 of 431 (96 %) and 91 in 160,000.
ROWS = 10_000
_BATCH_ROWS = 100
_MOST_ROWS = 200_000  # rows in which regimes are looked for: their labels are in memory together
_SHOWN = ("rpm", "vibration")  # columns that tell the regimes apart


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
    """Sets what the model found beside the truth.

    Parameters
    ----------
    seed, n_rows : int
        The stream.
    """

    def __init__(self, seed: int, n_rows: int) -> None:
        self._report = DemoReport()
        self._seed, self._n_rows = seed, n_rows
        # The same seed gives the same stream: the truth is made beside it, and the source tells the model nothing.
        self._stream = demo_stream(n_rows, seed=seed, batch_rows=_BATCH_ROWS)
        self._held: DemoBatch = next(self._stream)
        self._first = 0
        self.stays: list[Stay] = []
        self.findings: list[Table] = []

    def add(self, batch: Batch, result: PrequentialResult) -> None:
        """Take a batch that the model has just learned."""
        first = result.first_row
        # A run that goes on from a state file begins in the middle of the stream.
        if not self._report.n_rows:
            self._report.n_rows = first
        self._report.add(self._truth(first, first + len(batch.X)), result)

    def _truth(self, start: int, stop: int) -> DemoBatch:
        # Rows before `start` are dropped on the way: a few batches are held, not the stream.
        while self._first + len(self._held.X) < stop:
            kept = rows_of(self._held, max(0, start - self._first), len(self._held.X))
            self._first += len(self._held.X) - len(kept.X)
            self._held = join([kept, next(self._stream)])
        return rows_of(self._held, start - self._first, stop - self._first)

    def show(self, model: Any, console: Console) -> None:
        """Print regimes, faults and gaps: three tables, which are kept for the report."""
        console.print("The model was told nothing but the rows. The stream is made up, so the truth can stand beside.")
        # The stream is made anew: nothing of it was kept.
        n = min(self._report.n_rows, _MOST_ROWS)
        batches = itertools.islice(
            demo_stream(self._n_rows, seed=self._seed, batch_rows=_BATCH_ROWS), -(-n // _BATCH_ROWS)
        )
        whole = rows_of(join(list(batches)), 0, n)
        regimes = find_regimes(model, whole)
        self.stays = regimes.stays
        self.findings = [self._regimes(regimes, model), self._faults(regimes, whole), self._gaps(model)]
        for table in self.findings:
            table._replace(note="").show(console)
            # Below the table and not as its caption, which would be as narrow as the table.
            if table.note:
                console.print(table.note)

    def _regimes(self, regimes: Regimes, model: Any) -> Table:
        shown = [COLUMNS.index(name) for name in _SHOWN]
        rows = [
            (str(k), f"{r.share:.0%}", f"{r.first_row:,} to {r.last_row:,}", *(number(r.medians[j]) for j in shown),
             f"{r.name} ({r.agree:.0%})")
            for k, r in enumerate(regimes.found, start=1)
        ]  # fmt: skip
        note = ""
        if regimes.n_switches:
            wrong = "none is" if not regimes.n_other else f"{regimes.n_other} are"
            note = (
                f"It went from one regime to another {regimes.n_switches} times: {regimes.n_seen} of these are seen "
                f"within 25 rows, and {wrong} seen elsewhere. Of the {model.n_components_} components of the mixture "
                f"{len(rows)} are regimes; the others hold rows on the way from one to the next, and faults."
            )
        columns = ("regime", "share", "active in rows", *_SHOWN, "in truth")
        return Table(columns, rows, f"The machine has {len(rows)} regimes, by the model", note)

    def _faults(self, regimes: Regimes, whole: DemoBatch) -> Table:
        found, n_false = find_faults(whole, regimes.usual)
        rows = []
        for fault, at_once in zip(found, self._report.faults(), strict=True):
            share = f" ({fault.n_found / fault.n_faults:.0%})" if fault.n_faults else ""
            blamed = f"{fault.blamed} ({fault.n_blamed} of {fault.n_found})" if fault.n_blamed else ""
            rows.append((fault.name, fault.n_faults, f"{fault.n_found}{share}", blamed, at_once.n_found))
        alarms = self._report.alarms()
        note = (
            "Found: looking back, a row of it is outside of every regime and of the ways between them; "
            f"{count(n_false, 'false alarm')} in {len(whole.X):,} rows. At once: it surprised the model just before it "
            f"was learned; of other rows that did, {alarms.new_regime} began a regime never seen before, "
            f"{alarms.after_switch} came just after a switch, and {alarms.unexplained} had no such reason. The mixture "
            "learns every row: a fault that comes often is no longer novel to it (`everlearn watch` holds strange rows "
            "back instead)."
        )
        columns = ("fault", "times", "found", "sensors named", "at once")
        return Table(columns, rows, "Faults, and the sensors to blame", note)

    def _gaps(self, model: Any) -> Table:
        rows = [
            (g.column, g.n_gaps, number(g.error), number(g.error_of_mean), f"{g.n_inside} of {g.n_gaps}")
            for g in self._report.gaps(model)
        ]
        columns = ("column", "lost", "typical error", "of filling in the mean", "inside the 90% interval")
        return Table(columns, rows, "Values lost in the latest 2,000 rows, filled by the model")
