"""Rows learned per second, and the size of what was learned."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context, groups
from everlearn.experiments.peers.measure import FAILED, WHY, failure, measured
from everlearn.experiments.peers.table import Measure, Row, Value

NAME = "speed"
TITLE = "Speed and memory"
ABOUT = (
    "Rows learned per second of CPU time, five groups in eight columns: the first 2,000 (1,000 with --quick) at once, "
    "then one at a time and in batches of 1,000. Rows are already in the form that a model takes: dicts for river, one "
    "after the other (EmpiricalPrecision's update_many is slower). Memory is the size of the pickled model. The "
    "summary compares models that have a joint density of all columns."
)
MEASURES = [
    Measure("one", "one row at a time", "high", ",.0f", headline="rows per second, one at a time", joint=True),
    Measure("many", "batches of 1,000", "high", ",.0f", headline="rows per second, batches of 1,000", joint=True),
    Measure("all", "first rows at once", "high", ",.0f"),
    Measure("size", "kB", "low", ",.1f", headline="memory, kB", joint=True),
]
WARM, PATIENCE = 2000, 0.5
BATCH_ONLY = "batch only"


def measure(contender: Contender, context: Context) -> Row:
    """Rates and size of one model."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    warm = min(WARM, context.rows)
    X = groups(warm + min(context.rows, 10_000))[0]
    contender.make().fit(X[:500])  # what is compiled or imported at the first call is not counted
    model = contender.make()
    at_once = rate(model.fit, [X[:warm]], len)
    if contender.batch:
        return {"one": BATCH_ONLY, "many": BATCH_ONLY, "all": at_once, "size": model.size() / 1000}
    many = rate(model.learn, model.pieces(X[warm:], 1000), lambda piece: 1000)
    return {**_row_by_row(model, X[warm:]), "many": many, "all": at_once, "size": model.size() / 1000}


def _row_by_row(model: Any, X: Any) -> dict[str, Value]:
    try:
        return {"one": rate(model.learn, model.pieces(X, 1), lambda piece: 1)}
    except ValueError as error:
        return {"one": FAILED, WHY: f"single rows {failure(error)}"}


def rate(action: Callable[[Any], Any], pieces: list[Any], length: Callable[[Any], int]) -> float:
    """Rows per second of CPU time, over the pieces that fit into half a second."""
    # CPU time and not the clock: other programs on the machine would count against a model.
    n, started = 0, time.process_time()
    for piece in pieces:
        action(piece)
        n += length(piece)
        if time.process_time() - started > PATIENCE:
            break
    return n / max(time.process_time() - started, 1e-9)
