"""Held-out log-likelihood after one pass, in two orders of the same rows."""

from __future__ import annotations

import functools

import numpy as np

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context, labelled, split
from everlearn.experiments.peers.measure import measured
from everlearn.experiments.peers.table import Measure, Row, Value
from everlearn.typing import Array

NAME = "density"
TITLE = "Held-out log-likelihood"
ABOUT = (
    "Nats a row on the three tenths that were held out, columns standardised on the rows learned; mean over five "
    "groups in eight columns, breast cancer and (not with --quick) digits on 16 axes and, where the data is there, "
    "the wall robot. The same rows come shuffled, and sorted by class. Batch models see all rows at once, in any order."
)
MEASURES = [
    Measure("shuffled", "shuffled", "high", ".2f", headline="held-out log-likelihood, shuffled", difference=True),
    Measure("sorted", "sorted by class", "high", ".2f", headline="held-out log-likelihood, sorted", difference=True),
]


def measure(contender: Contender, context: Context) -> Row:
    """Mean log-likelihood of one model over the sets."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    scores = {key: [held_out(contender, *rows) for rows in prepared(context, key)] for key in ("shuffled", "sorted")}
    return {key: float(np.mean(values)) for key, values in scores.items()}


@functools.lru_cache
def prepared(context: Context, order: str) -> list[tuple[Array, Array]]:
    """Rows to learn and rows to test of every set."""
    found = []
    for _, X, labels in labelled(context):
        X = X[:, X.std(axis=0) > 0]  # a constant column has infinite density, and decides every comparison
        # Both orders have the same rows to learn and to test: the difference is the order alone.
        train, test = split(X)
        X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
        if order == "sorted":
            train = train[np.argsort(np.asarray(labels)[train], kind="stable")]
        found.append((X[train], X[test]))
    return found


def held_out(contender: Contender, train: Array, test: Array) -> float:
    """Mean log-density of rows that were not learned."""
    model = contender.make()
    model.fit(train)
    value = float(np.mean(model.log_density(test)))
    if not np.isfinite(value):
        raise ValueError(f"it gave a log-likelihood of {value}")
    return value
