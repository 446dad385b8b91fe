"""everlearn bench: how fast this machine learns and answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from everlearn.cli.common import show_table
from everlearn.cli.models import KINDS, new_model

_EXAMPLES = """
Examples:

\b
  everlearn bench
  everlearn bench --model ppca --columns 100
"""
_GROUPS = 5


@click.command(name="bench", epilog=_EXAMPLES)
@click.option("--model", type=click.Choice(["mixture", "ppca", "variational"]), default="mixture", show_default=True,
              help="What to measure.")  # fmt: skip
@click.option("--columns", type=click.IntRange(min=1), multiple=True, default=(2, 10, 50), show_default=True,
              help="Numbers of columns.")  # fmt: skip
@click.option("--rows", type=click.IntRange(min=500), default=20_000, show_default=True, help="Rows of each stream.")
def command(model: str, columns: tuple[int, ...], rows: int) -> None:
    """Measure rows a second, learning and scoring streams of a few groups of normal rows."""
    console = Console(highlight=False)
    table = Table("columns", "learned a second", "scored a second", "one row at a time, learned", title=KINDS[model])
    for d in columns:
        table.add_row(f"{d}", *(f"{rate:,.0f}" for rate in _rates(model, _rows(rows, d))))
    show_table(table, console)


def _rates(kind: str, X: Any) -> tuple[float, float, float]:
    """Rows a second: learned at once, scored at once, learned one by one."""
    learned = new_model(kind, (), 0).partial_fit(X)
    return (
        len(X) / _seconds(lambda: new_model(kind, (), 0).partial_fit(X)),
        len(X) / _seconds(lambda: learned.score_samples(X)),
        500 / _seconds(lambda: _one_by_one(learned.copy(), X[:500])),
    )


def _rows(n: int, d: int) -> Any:
    rng = np.random.default_rng(0)
    centres = 8.0 * rng.normal(size=(_GROUPS, d))
    return centres[rng.integers(_GROUPS, size=n)] + rng.normal(size=(n, d))


def _one_by_one(model: Any, X: Any) -> None:
    for i in range(len(X)):
        model.partial_fit(X[i : i + 1])


def _seconds(action: Callable[[], Any]) -> float:
    """The best of three times."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)
