"""What dicts cost beside arrays: microseconds a row, and their ratio in one run.

Run with one BLAS thread (OPENBLAS_NUM_THREADS=1) for figures that compare.
"""

from __future__ import annotations

import time

import numpy as np

from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.river import AnomalyDetector

ROWS = 1000


def best_of(function, repeats: int = 7) -> float:
    """CPU microseconds a row of the fastest call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times) / ROWS * 1e6


def one_by_one(function, items):
    """A call that takes the items one at a time."""

    def call() -> None:
        for item in items:
            function(item)

    return call


def compare(what: str, ours: float, other: float) -> None:
    """Print one line of the table."""
    print(f"  {what:<36} {ours:8.2f} {other:8.2f}   + {ours - other:6.2f}   x {ours / other:5.2f}")


def main() -> None:
    """Print a table for each number of features and each model."""
    rng = np.random.default_rng(0)
    for D in (3, 10, 30):
        X = rng.normal(size=(ROWS, D))
        dicts = [{f"f{i:02d}": value for i, value in enumerate(row)} for row in X.tolist()]
        rows = [X[i : i + 1].copy() for i in range(ROWS)]
        for model in (IncrementalGaussianMixture(), OnlinePPCA(n_components=2)):
            detector, array_model = AnomalyDetector(model), model.copy().partial_fit(X)
            detector.learn_many(dicts)
            print(f"{D} features, {type(model).__name__}: dicts, arrays")
            compare("learn_one, partial_fit of a row", best_of(one_by_one(detector.learn_one, dicts)),
                    best_of(one_by_one(array_model.partial_fit, rows)))  # fmt: skip
            compare("score_one, score_samples of a row", best_of(one_by_one(detector.score_one, dicts)),
                    best_of(one_by_one(array_model.score_samples, rows)))  # fmt: skip
            compare("learn_many, partial_fit", best_of(lambda d=detector, x=dicts: d.learn_many(x)),
                    best_of(lambda m=array_model, x=X: m.partial_fit(x)))  # fmt: skip
            compare("score_many, score_samples", best_of(lambda d=detector, x=dicts: d.score_many(x)),
                    best_of(lambda m=array_model, x=X: m.score_samples(x)))  # fmt: skip


if __name__ == "__main__":
    main()
