"""Rows with gaps: who takes them, and how well the gaps are filled."""

from __future__ import annotations

import numpy as np

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context
from everlearn.experiments.peers.density import prepared
from everlearn.experiments.peers.measure import FAILED, measured
from everlearn.experiments.peers.table import Measure, Row, Value
from everlearn.typing import Array

NAME = "missing"
TITLE = "Missing values"
ABOUT = (
    "Three values in ten are removed at random, from rows to learn and from rows to test. Root mean square error of "
    "the filled held-out gaps, in standard deviations of a column; means over the sets of the log-likelihood."
)
MEASURES = [
    Measure("taken", "learns from rows with gaps", "high"),
    Measure("error", "error of filled gaps", "low", ".3f", headline="error of filled gaps, 30 % missing"),
]


def measure(contender: Contender, context: Context) -> Row:
    """Whether a model takes gaps, and the error with which it fills them."""
    row = measured(contender, MEASURES, lambda: _figures(contender, context))
    return row._replace(values={**row.values, "taken": "no"}) if row.values["taken"] == FAILED else row


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    # A model that fills no gaps may still learn from rows that have some, which is worth a word in the table.
    if not hasattr(contender.make(), "impute"):
        _learn_and_score(contender, *prepared(context, "shuffled")[0])
        return {"taken": "yes", "error": "fills none"}
    errors = [filling_error(contender, *rows) for rows in prepared(context, "shuffled")]
    return {"taken": "yes", "error": float(np.mean(errors))}


def _learn_and_score(contender: Contender, train: Array, test: Array) -> None:
    model = contender.make()
    model.fit(with_gaps(train, 0))
    if not np.isfinite(model.log_density(test)).all():
        raise ValueError("it learned from rows with gaps, and then gave no finite log-density")


def filling_error(contender: Contender, train: Array, test: Array) -> float:
    """Root mean square error over the gaps of rows that were not learned."""
    model, asked = contender.make(), with_gaps(test, 1)
    model.fit(with_gaps(train, 0))
    gaps = np.isnan(asked)
    return float(np.sqrt(np.mean((model.impute(asked) - test)[gaps] ** 2)))


def with_gaps(X: Array, seed: int) -> Array:
    """Rows with three values in ten missing, at least one in each row left."""
    gaps = np.random.default_rng(seed).random(X.shape) < 0.3
    gaps[gaps.all(axis=1), 0] = False  # a row without any value teaches nothing, and some peers refuse it
    return np.where(gaps, np.nan, X)
