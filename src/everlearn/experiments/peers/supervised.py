"""Sets with a target, their folds, and the orders in which their rows come.

The columns `classification` and `regression` and the benchmark of one pass beside batch models share them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.datasets import weka
from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context
from everlearn.typing import Array

FOLDS = 3
MOST_ROWS, MOST_ROWS_QUICK = 2000, 120  # river's adaptive forest learns 200 to 600 rows a second
ORDERS = ("shuffled", "sorted")
Rows = NDArray[np.intp]


class Problem(NamedTuple):
    """Rows and their targets; the targets of a classification are numbered from 0."""

    name: str
    X: Array
    y: NDArray[Any]
    classes: bool

    def folds(self) -> list[tuple[Rows, Rows]]:
        """Rows to learn, shuffled, and rows to test, of each fold; classes have the same shares in all of them."""
        from sklearn.model_selection import KFold, StratifiedKFold

        splitter = (StratifiedKFold if self.classes else KFold)(FOLDS, shuffle=True, random_state=0)
        return [(np.random.default_rng(0).permutation(train), test) for train, test in splitter.split(self.X, self.y)]


def classifications(names: Sequence[str], rows: int = MOST_ROWS) -> Iterator[Problem]:
    """Sets with classes, by name: those of Weka, those that come with scikit-learn, and some that are drawn.

    Drawn sets have at most `rows` rows; of the others all are there.
    """
    from sklearn import datasets

    n = min(rows, MOST_ROWS)
    known: dict[str, Callable[[], Any]] = {
        **{name: functools.partial(_of_weka, name) for name in weka.NAMES},
        "wine": lambda: datasets.load_wine(return_X_y=True),
        "wisconsin": lambda: datasets.load_breast_cancer(return_X_y=True),
        "digits": lambda: datasets.load_digits(return_X_y=True),
        "moons": lambda: datasets.make_moons(n, noise=0.3, random_state=0),
        "hypercube": lambda: datasets.make_classification(
            n, n_features=10, n_informative=6, n_redundant=2, n_classes=4, random_state=0
        ),
    }
    for name in names:
        X, labels = known[name]()
        yield Problem(name, np.asarray(X, dtype=float), np.unique(labels, return_inverse=True)[1], classes=True)


def regressions(names: Sequence[str], rows: int = MOST_ROWS) -> Iterator[Problem]:
    """Sets with a number to predict, by name; those of Friedman (1991) have noise of a tenth of the target's spread."""
    from sklearn import datasets

    n = min(rows, MOST_ROWS)
    known: dict[str, Callable[[], Any]] = {
        "friedman 1": lambda: datasets.make_friedman1(n, noise=0.5, random_state=0),
        "friedman 2": lambda: datasets.make_friedman2(n, noise=38.0, random_state=0),
        "friedman 3": lambda: datasets.make_friedman3(n, noise=0.03, random_state=0),
        "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
        "linear": lambda: datasets.make_regression(n, 10, n_informative=6, noise=50.0, random_state=0),
        "swiss roll": lambda: datasets.make_swiss_roll(n, noise=0.5, random_state=0),
        "sparse": lambda: datasets.make_sparse_uncorrelated(n, random_state=0),
    }
    for name in names:
        X, y = known[name]()[:2]
        yield Problem(name, X, y, classes=False)


def _of_weka(name: str) -> tuple[Array, Array]:
    bunch = weka.load(name)
    return bunch.data, bunch.target


def shortened(problem: Problem, most: int) -> Problem:
    """Some rows of a set, in a random order."""
    rows = np.random.default_rng(1).permutation(len(problem.X))[:most]
    return problem._replace(X=problem.X[rows], y=problem.y[rows])


def prepared(problems: Sequence[Problem], context: Context) -> Iterator[tuple[Problem, Rows, Rows]]:
    """Sets and folds of a run, the columns standardised on the rows to learn; a quick run has one short fold a set."""
    for problem in problems:
        problem = shortened(problem, MOST_ROWS_QUICK) if context.quick else problem
        for train, test in problem.folds()[: 1 if context.quick else None]:
            X = problem.X[:, problem.X[train].std(axis=0) > 0]
            yield problem._replace(X=(X - X[train].mean(axis=0)) / X[train].std(axis=0)), train, test


class Answers(NamedTuple):
    """What a model said of the rows that it had not learned, in one order of those that it had."""

    order: str
    found: Any
    y: NDArray[Any]
    rows: int
    seconds: float


def answers(
    contender: Contender, problems: Sequence[Problem], context: Context, ask: Callable[[Any, Array], Any]
) -> Iterator[Answers]:
    """Teach a model every fold in both orders, and ask it."""
    for problem, train, test in prepared(problems, context):
        # A batch model sees all rows at once: their order is nothing to it.
        for order in ORDERS[:1] if contender.batch else ORDERS:
            rows = train if order == "shuffled" else train[np.argsort(problem.y[train], kind="stable")]
            model = contender.make()
            (piece,) = model.pieces(problem.X[rows], len(rows))
            started = time.process_time()
            model.learn(piece, problem.y[rows])
            ask(model, problem.X[test[:1]])  # a model that puts work off does it now
            seconds = time.process_time() - started
            yield Answers(order, ask(model, problem.X[test]), problem.y[test], len(rows), seconds)


def learned_per_second(given: Sequence[Answers]) -> float:
    """Rows learned per second of processor time, the shuffled ones."""
    shuffled = [each for each in given if each.order == "shuffled"]
    return sum(each.rows for each in shuffled) / max(sum(each.seconds for each in shuffled), 1e-9)


def of_order(given: Sequence[Answers], order: str) -> list[Answers]:
    """Answers after rows in an order; those of a batch model hold for any."""
    return [each for each in given if each.order == order] or list(given)
