"""Numbers in one pass: error in two orders of the same rows, coverage of intervals, speed."""

from __future__ import annotations

import numpy as np

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.data import Context
from everlearn.experiments.peers.measure import measured
from everlearn.experiments.peers.supervised import Problem, number_problems, timed_fit
from everlearn.experiments.peers.table import Measure, Row, Value

NAME = "regression"
TITLE = "Regression"
ABOUT = (
    "One pass over seven tenths of each set, judged on the rest: diabetes, Friedman's first function and (not with "
    "--quick) his second and third, petal width of iris, alcohol of wine and, where the data is there, the first range "
    "of the wall robot. The same rows come shuffled, and sorted by the target; batch models see all at once. Root mean "
    "square errors in standard deviations of the target, and percent of targets inside their 90 % interval: means over "
    "the sets. Rows learned a second of CPU time, over all sets."
)
MEASURES = [
    Measure("error", "error, shuffled", "low", ".3f", headline="regression error in one pass"),
    Measure("sorted", "sorted by target", "low", ".3f", headline="regression error, sorted by target"),
    Measure("coverage", "inside 90 % intervals, %", "near", ".1f", 90.0),
    Measure("rate", "rows a second", "high", ",.0f"),
]


def measure(contender: Contender, context: Context) -> Row:
    """Figures of one regression."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    problems = list(number_problems(context))
    contender.make().fit(problems[0].X, problems[0].y)  # the first call compiles or imports: it is not counted
    shuffled = [judged(contender, problem) for problem in problems]
    error, coverage = np.array([figures[:2] for figures in shuffled]).mean(axis=0)
    seconds = sum(figures[2] for figures in shuffled)
    rows = sum(len(problem.X) for problem in problems)
    values: dict[str, Value] = {
        "error": float(error),
        "coverage": "no interval" if np.isnan(coverage) else float(coverage),
        "rate": rows / max(seconds, 1e-9),
    }
    if contender.batch:
        return {**values, "sorted": "batch only"}
    by_target = [judged(contender, problem.in_order("sorted"))[0] for problem in problems]
    return {**values, "sorted": float(np.mean(by_target))}


def judged(contender: Contender, problem: Problem) -> tuple[float, float, float]:
    """Root mean square error, percent inside the interval (NaN where there is none), seconds of learning."""
    model = contender.make()
    seconds = timed_fit(model, problem.X, problem.y)
    mean, low, high = model.predict(problem.X_test)
    error = float(np.sqrt(np.mean((mean - problem.y_test) ** 2)))
    if not np.isfinite(error):
        raise ValueError(f"it gave an error of {error}")
    inside = np.nan if np.isnan(low).any() else 100 * np.mean((low <= problem.y_test) & (problem.y_test <= high))
    return error, float(inside), seconds
