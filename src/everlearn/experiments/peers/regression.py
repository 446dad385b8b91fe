"""A number after one pass, with the rows shuffled and in the order of what is predicted."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.conditional import error_and_coverage
from everlearn.experiments.peers.data import Context
from everlearn.experiments.peers.measure import measured
from everlearn.experiments.peers.supervised import (
    MOST_ROWS_QUICK,
    ORDERS,
    Problem,
    answers,
    learned_per_second,
    of_order,
    regressions,
)
from everlearn.experiments.peers.table import Measure, Row, Value
from everlearn.typing import Array

NAME = "regression"
TITLE = "Regression"
SETS = ("diabetes", "friedman 1", "friedman 2", "friedman 3", "linear", "swiss roll", "sparse")
QUICK_SETS = SETS[:4]
NO_INTERVAL = "no interval"
ABOUT = (
    "Three folds, each row learned once, shuffled and in the order of the target; the targets are asked afterwards. "
    "Mean over diabetes, Friedman's three functions, a linear function of ten columns with noise, the place on a Swiss "
    f"roll, and a function of four in ten columns. With --quick one fold, at most {MOST_ROWS_QUICK} rows of four sets. "
    "Root mean square error in standard deviations of the target; percent of targets inside their 90 % interval. Rows "
    "per second of CPU time, of learning and the first question. Batch models see all rows at once, in any order."
)
MEASURES = [
    Measure("error shuffled", "error, shuffled", "low", ".3f", headline="error of regression, shuffled"),
    Measure("error sorted", "in order of the target", "low", ".3f", headline="error of regression, in order"),
    Measure("inside shuffled", "inside 90 %, shuffled, %", "near", ".1f", 90.0,
            "inside 90 % intervals of regression, %", difference=True),
    Measure("inside sorted", "in order of the target, %", "near", ".1f", 90.0,
            "inside 90 % intervals of regression, in order, %", difference=True),
    Measure("rate", "rows per second", "high", ",.0f", headline="regression: rows per second"),
]  # fmt: skip


def measure(contender: Contender, context: Context) -> Row:
    """Error, coverage and rate of one regression."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def problems(context: Context) -> list[Problem]:
    """The sets of a run, targets standardised."""
    found = regressions(QUICK_SETS if context.quick else SETS, context.rows)
    return [problem._replace(y=(problem.y - problem.y.mean()) / problem.y.std()) for problem in found]


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    found: dict[str, Value] = {}
    given = list(answers(contender, problems(context), context, _ask))
    for order in ORDERS:
        scores = [error_and_coverage(each.found, each.y) for each in of_order(given, order)]
        error, inside = (float(value) for value in np.mean(scores, axis=0))
        if not np.isfinite(error):
            raise ValueError(f"its error is {error} with {order} rows")
        found |= {f"error {order}": error, f"inside {order}": NO_INTERVAL if np.isnan(inside) else inside}
    return {**found, "rate": learned_per_second(given)}


def _ask(model: Any, X: Array) -> tuple[Array, Array, Array]:
    answer: tuple[Array, Array, Array] = model.predict(X)
    return answer
