"""One column from the others: accuracy, and how honest the intervals are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context, split, streams_folder, wall_robot
from everlearn.experiments.peers.measure import measured
from everlearn.experiments.peers.table import Measure, Row, Value
from everlearn.typing import Array

NAME = "conditional"
TITLE = "Conditional prediction"
ABOUT = (
    "A target from the other columns, learned in one pass over shuffled rows and asked on the three tenths held out: "
    "diabetes, Friedman's function with noise, and (where the data is there) the first sensor of the wall robot. Root "
    "mean square error in standard deviations of the target; percent of targets inside their 90 % interval."
)
MEASURES = [
    Measure("error", "error", "low", ".3f", headline="error of predicted columns"),
    Measure("coverage", "inside 90 % intervals, %", "near", ".1f", 90.0, "inside 90 % intervals, %", difference=True),
]


def measure(contender: Contender, context: Context) -> Row:
    """Error and coverage of one model."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    found = np.mean([prediction(contender, X, y) for X, y in problems(context)], axis=0)
    return {"error": float(found[0]), "coverage": "no interval" if np.isnan(found[1]) else float(found[1])}


def problems(context: Context) -> Iterator[tuple[Array, Array]]:
    """Columns and targets, standardised."""
    from sklearn import datasets

    sets = [
        datasets.load_diabetes(return_X_y=True),
        datasets.make_friedman1(min(context.rows, 2000), noise=1.0, random_state=0),
    ]
    if not context.quick and (folder := streams_folder()) and (folder / "wall_robot").is_dir():
        ranges = wall_robot(folder)[0]
        sets.append((ranges[:, 1:], ranges[:, 0]))
    for X, y in sets:
        yield (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def prediction(contender: Contender, X: Array, y: Array) -> tuple[float, float]:
    """Error and coverage of a model that has learned seven tenths of the rows, on the others."""
    train, test = split(X)
    model = contender.make()
    model.fit(X[train], y[train])
    return error_and_coverage(model.predict(X[test]), y[test])


def error_and_coverage(answer: tuple[Array, Array, Array], y: Array) -> tuple[float, float]:
    """Root mean square error, and percent of targets inside their interval (NaN where there is none)."""
    mean, low, high = answer
    error = np.sqrt(np.mean((mean - y) ** 2))
    inside = np.nan if np.isnan(low).any() else 100 * np.mean((low <= y) & (y <= high))
    return float(error), float(inside)
