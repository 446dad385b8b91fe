"""What dicts cost beside arrays: processor time of the river learners and of the models behind them, side by side.

OPENBLAS_NUM_THREADS=1 python benchmarks/river_learners.py [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from _page import parser, write_page

from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.river import Density

ROWS = 1000
NOTE = """\
Processor microseconds a row, the least of several runs, turn and turn about. A river learner takes a dict and reads its
columns by name; the model behind it takes an array.\
"""


def one_by_one(function: Callable[[Any], Any], items: Iterable[Any]) -> Callable[[], None]:
    """A call that takes the items one at a time."""

    def call() -> None:
        for item in items:
            function(item)

    return call


def least(calls: tuple[Callable[[], Any], ...], repeats: int) -> list[float]:
    """Microseconds a row of each call, the least of some turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, found in zip(calls, times, strict=True):
            start = time.process_time()
            call()
            found.append(time.process_time() - start)
    return [min(found) / ROWS * 1e6 for found in times]


def table(D: int, repeats: int) -> list[str]:
    """Lines for each model and question in so many columns."""
    X = np.random.default_rng(0).normal(size=(ROWS, D))
    dicts = [{f"f{i:02d}": value for i, value in enumerate(row)} for row in X.tolist()]
    rows = [X[i : i + 1].copy() for i in range(ROWS)]
    lines = []
    for model in (IncrementalGaussianMixture(), OnlinePPCA(n_components=2)):
        learner, arrays = Density(model), model.copy().partial_fit(X)
        learner.learn_many(dicts)
        pairs = {
            "learn_one": (one_by_one(learner.learn_one, dicts), one_by_one(arrays.partial_fit, rows)),
            "score_one": (one_by_one(learner.score_one, dicts), one_by_one(arrays.score_samples, rows)),
            "learn_many": (lambda m=learner: m.learn_many(dicts), lambda m=arrays: m.partial_fit(X)),
            "score_many": (lambda m=learner: m.score_many(dicts), lambda m=arrays: m.score_samples(X)),
        }
        for what, calls in pairs.items():
            ours, other = least(calls, repeats)
            name = type(model).__name__
            lines.append(f"| {name} | {D} | {what} | {ours:.1f} | {other:.1f} | {ours / other:.2f} |")
    return lines


def main() -> None:
    """Write the page."""
    options = parser(__doc__).parse_args()
    lines = ["| model | columns | | dicts | arrays | ratio |", "|---|---:|---|---:|---:|---:|"]
    for D in (3,) if options.quick else (3, 10, 30):
        lines += table(D, 2 if options.quick else 7)
    write_page("river_learners", "\n".join(["# Dicts beside arrays", "", NOTE, "", *lines]), quick=options.quick)


if __name__ == "__main__":
    main()
