"""What a run shows while it learns."""

from __future__ import annotations

import math
import time
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from everlearn.reporting.tables import count
from everlearn.streams.session import Session
from everlearn.streams.sources.source import Source
from everlearn.typing import DetectingModel

_REFRESH_SECONDS = 0.5


class Display:
    """A progress bar with rows per second, components, log-likelihood, novelties and changes.

    Parameters
    ----------
    session : Session
        What learns.
    source : Source
        What is read.
    console : Console
        Where it is shown.
    """

    def __init__(self, session: Session, source: Source, console: Console) -> None:
        self._session = session
        self._source = source
        columns = (BarColumn(30), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._first_row = session.monitor.n_rows
        self._started = self._shown = time.perf_counter()

    def __enter__(self) -> Self:
        self._progress.start()
        waiting = "starting (a first run compiles for about half a minute)"
        self._task = self._progress.add_task("learning", total=None, state=waiting)
        return self

    def __exit__(self, *exception: object) -> None:
        # A number of components that is ten seconds old is good enough while it runs, but not as the last word.
        if self._session.monitor.n_rows:
            self._show(fresh=True)
            done = self._session.monitor.n_rows
            self._progress.update(self._task, completed=done, total=done)
        self._progress.stop()

    def say(self, message: str) -> None:
        """Print a message above the bar."""
        self._progress.console.print(f"[yellow]{escape(message)}[/]", soft_wrap=True)

    def update(self) -> None:
        """Show where things stand, if that was not done just now."""
        # A live stream calls this for every row.
        if time.perf_counter() - self._shown > _REFRESH_SECONDS:
            self._show()

    def _show(self, *, fresh: bool = False) -> None:
        self._shown = time.perf_counter()
        values: dict[str, Any] = {"state": self._state(self._session.n_components(fresh=fresh))}
        if (found := self._source.progress()) is not None:
            values["completed"], values["total"] = found
        self._progress.update(self._task, **values)

    def _state(self, components: float) -> str:
        monitor = self._session.monitor
        rate = (monitor.n_rows - self._first_row) / (self._shown - self._started)
        parts = [count(monitor.n_rows, "row"), f"{rate:,.0f}/s"]
        if components == components:
            parts.append(count(round(components), "component"))
        # Of rows that were scored: the first ones are learned before there is a density.
        detects = isinstance(self._session.model, DetectingModel)
        if math.isfinite(monitor.mean_log_likelihood):
            score = "mean log p-value" if detects else "log-likelihood"
            parts.append(f"{score} {monitor.mean_log_likelihood:.2f}")
        if detects:
            parts.append(count(monitor.n_novel, "anomaly", "anomalies"))
        else:
            parts += [f"{monitor.n_novel:,} novel", count(monitor.n_changes, "change")]
        return ", ".join(parts)
