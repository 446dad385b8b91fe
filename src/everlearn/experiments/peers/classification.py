"""Classes in one pass: accuracy in two orders of the same rows, log-loss, speed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everlearn.experiments.peers.adapter import Array, Contender
from everlearn.experiments.peers.data import Context
from everlearn.experiments.peers.measure import measured
from everlearn.experiments.peers.supervised import SMALLEST, Problem, class_problems, timed_fit
from everlearn.experiments.peers.table import Measure, Row, Value

NAME = "classification"
TITLE = "Classification"
ABOUT = (
    "One pass over seven tenths of each set, judged on the rest: wine, breast cancer and (not with --quick) digits, "
    "five groups, four of Weka's sets and, where the data is there, the wall robot. The same rows come shuffled, and "
    "class by class; batch models see all at once. Means over the sets; the log-loss is in nats, probabilities "
    f"clipped at {SMALLEST:g}; rows learned a second of CPU time, over all sets."
)
MEASURES = [
    Measure("accuracy", "accuracy, shuffled, %", "high", ".1f", headline="accuracy in one pass, %", difference=True),
    Measure("sorted", "class by class, %", "high", ".1f", headline="accuracy, class by class, %", difference=True),
    Measure("loss", "log-loss, shuffled", "low", ".3f", headline="log-loss in one pass", difference=True),
    Measure("rate", "rows a second", "high", ",.0f"),
]


def measure(contender: Contender, context: Context) -> Row:
    """Figures of one classifier."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    problems = list(class_problems(context))
    # The first call compiles or imports: it is not counted.
    contender.make().fit(problems[0].X, problems[0].y, classes=np.unique(problems[0].y))
    shuffled = [judged(contender, problem) for problem in problems]
    found = np.array([figures[:2] for figures in shuffled]).mean(axis=0)
    seconds = sum(figures[2] for figures in shuffled)
    rows = sum(len(problem.X) for problem in problems)
    values: dict[str, Value] = {"accuracy": float(found[0]), "loss": float(found[1]), "rate": rows / max(seconds, 1e-9)}
    if contender.batch:
        return {**values, "sorted": "batch only"}
    by_class = [judged(contender, problem.in_order("sorted"))[0] for problem in problems]
    return {**values, "sorted": float(np.mean(by_class))}


def judged(contender: Contender, problem: Problem) -> tuple[float, float, float]:
    """Accuracy in percent, log-loss in nats and seconds of learning."""
    classes = np.unique(np.concatenate([problem.y, problem.y_test]))
    model = contender.make()
    seconds = timed_fit(model, problem.X, problem.y, classes=classes)
    return *scores(model.predict_proba(problem.X_test), problem.y_test, classes), seconds


def scores(probabilities: Array, y: NDArray[np.int64], classes: NDArray[np.int64]) -> tuple[float, float]:
    """Accuracy in percent and mean -log probability of the true class; columns are `classes`."""
    if probabilities.shape != (len(y), len(classes)) or not np.isfinite(probabilities).all():
        raise ValueError(f"probabilities of shape {probabilities.shape} for {len(y)} rows and {len(classes)} classes")
    true = np.searchsorted(classes, y)
    clipped = np.clip(probabilities, SMALLEST, None)
    clipped /= clipped.sum(axis=1, keepdims=True)
    loss = -np.log(clipped[np.arange(len(y)), true]).mean()
    return 100.0 * float(np.mean(probabilities.argmax(axis=1) == true)), float(loss)
