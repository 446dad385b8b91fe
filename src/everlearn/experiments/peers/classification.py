"""Classes after one pass, with the rows shuffled and class after class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context
from everlearn.experiments.peers.measure import measured
from everlearn.experiments.peers.supervised import (
    MOST_ROWS_QUICK,
    ORDERS,
    Answers,
    Problem,
    answers,
    classifications,
    learned_per_second,
    of_order,
)
from everlearn.experiments.peers.table import Measure, Row, Value
from everlearn.typing import Array

NAME = "classification"
TITLE = "Classification"
SETS = ("diabetes", "glass", "ionosphere", "iris", "wine", "wisconsin", "moons", "hypercube", "digits")
QUICK_SETS = ("diabetes", "glass", "iris", "wine", "moons")
LEAST = 1e-3  # of a probability: a forest of a hundred trees says 0 where it means less than a hundredth
ABOUT = (
    "Three folds, each row learned once, shuffled and class after class; the classes are asked afterwards. Mean over "
    "four sets of Weka's (diabetes, glass, ionosphere, iris), scikit-learn's wine, breast cancer and digits (raw "
    "pixels), moons with noise, and a hypercube of four classes in ten columns; columns standardised on the rows "
    f"learned. With --quick one fold, at most {MOST_ROWS_QUICK} rows of a set, five of the sets. Log-loss in nats; a "
    f"probability below {LEAST} counts as {LEAST}. Rows per second of CPU time, of learning and the first question. "
    "Batch models see all rows at once, in any order."
)
MEASURES = [
    Measure("accuracy shuffled", "accuracy, shuffled, %", "high", ".1f", headline="accuracy, shuffled, %",
            difference=True),
    Measure("accuracy sorted", "class after class, %", "high", ".1f", headline="accuracy, class after class, %",
            difference=True),
    Measure("loss shuffled", "log-loss, shuffled", "low", ".3f", headline="log-loss, shuffled"),
    Measure("loss sorted", "class after class", "low", ".3f", headline="log-loss, class after class"),
    Measure("rate", "rows per second", "high", ",.0f", headline="classes: rows per second"),
]  # fmt: skip


def measure(contender: Contender, context: Context) -> Row:
    """Accuracy, log-loss and rate of one classifier."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def problems(context: Context) -> list[Problem]:
    """The sets of a run."""
    return list(classifications(QUICK_SETS if context.quick else SETS, context.rows))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    found: dict[str, Value] = {}
    given = list(answers(contender, problems(context), context, _ask))
    for order in ORDERS:
        found[f"accuracy {order}"] = 100 * _mean(of_order(given, order), accuracy)
        found[f"loss {order}"] = _mean(of_order(given, order), log_loss)
    return {**found, "rate": learned_per_second(given)}


def _ask(model: Any, X: Array) -> Array:
    return np.asarray(model.probabilities(X))


def _mean(given: Sequence[Answers], score: Any) -> float:
    return float(np.mean([score(each.found, each.y) for each in given]))


def accuracy(probabilities: Array, y: Array) -> float:
    """Share of rows whose most probable class is the true one."""
    return float(np.mean(probabilities.argmax(axis=1) == y))


def log_loss(probabilities: Array, y: Array) -> float:
    """Mean of -log of the probability of the true class."""
    true = probabilities[np.arange(len(y)), y]
    if np.isnan(true).any():
        raise ValueError("it gave a probability that is no number")
    return float(-np.mean(np.log(np.clip(true, LEAST, 1.0))))
