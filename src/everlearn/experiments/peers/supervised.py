"""Sets, orders and scores that classification and regression share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.experiments.peers.adapter import Array
from everlearn.experiments.peers.data import Context, groups, split, streams_folder, wall_robot

SMALLEST = 1e-6  # probabilities are clipped here: one wrong certainty would otherwise decide the mean log-loss
BATCH = 100  # rows of a batch, for models that take batches


class Problem(NamedTuple):
    """Rows to learn in their order, and rows to judge by."""

    name: str
    X: Array
    y: NDArray[Any]
    X_test: Array
    y_test: NDArray[Any]

    def in_order(self, order: str) -> Problem:
        """The same rows shuffled, or sorted by class or target."""
        if order == "shuffled":
            return self
        by = np.argsort(self.y, kind="stable")
        return self._replace(X=self.X[by], y=self.y[by])


def problem(name: str, X: Array, y: Any) -> Problem:
    """Seven tenths to learn, shuffled; columns standardised on them."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    train, test = split(X)
    X = X[:, X[train].std(axis=0) > 0]
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return Problem(name, X[train], y[train], X[test], y[test])


def class_problems(context: Context) -> Iterator[Problem]:
    """Sets with classes, numbered from 0."""
    from sklearn import datasets as sets

    from everlearn import datasets

    yield problem("wine", *sets.load_wine(return_X_y=True))
    yield problem("breast cancer", *sets.load_breast_cancer(return_X_y=True))
    if context.quick:
        return
    yield problem("digits", *sets.load_digits(return_X_y=True))
    yield problem("five groups", *groups(min(context.rows, 4000)))
    for name in ("iris", "glass", "ionosphere", "diabetes"):
        bunch = datasets.load(name)
        yield problem(f"{name} (Weka)", bunch.data, bunch.target)
    if (folder := streams_folder()) and (folder / "wall_robot").is_dir():
        X, manoeuvres = wall_robot(folder)
        yield problem("wall robot", X, np.unique(manoeuvres, return_inverse=True)[1])


def number_problems(context: Context) -> Iterator[Problem]:
    """Sets with a number to predict, in standard deviations of it."""
    from sklearn import datasets as sets

    def standardised(name: str, X: Array, y: Array) -> Problem:
        found = problem(name, X, y)
        mean, std = found.y.mean(), found.y.std()
        return found._replace(y=(found.y - mean) / std, y_test=(found.y_test - mean) / std)

    n = min(context.rows, 2000)
    yield standardised("diabetes", *sets.load_diabetes(return_X_y=True))
    yield standardised("Friedman 1", *sets.make_friedman1(n, noise=1.0, random_state=0))
    if context.quick:
        return
    yield standardised("Friedman 2", *sets.make_friedman2(n, noise=100.0, random_state=0))
    yield standardised("Friedman 3", *sets.make_friedman3(n, noise=0.1, random_state=0))
    for name, load, column in (("petal width", sets.load_iris, 3), ("alcohol", sets.load_wine, 0)):
        rows = load().data
        yield standardised(name, np.delete(rows, column, axis=1), rows[:, column])
    if (folder := streams_folder()) and (folder / "wall_robot").is_dir():
        ranges = wall_robot(folder)[0]
        yield standardised("first range of the wall robot", ranges[:, 1:], ranges[:, 0])


def timed_fit(model: Any, X: Array, y: NDArray[Any], **known: Any) -> float:
    """Learn in one pass; returns seconds of CPU time."""
    begun = time.process_time()
    model.fit(X, y, **known)
    return time.process_time() - begun
