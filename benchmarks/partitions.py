"""Partitions that are not alike: what merging keeps and what it loses, beside one pass over the same rows.

    OPENBLAS_NUM_THREADS=1 python benchmarks/partitions.py [--quick]

Data come from scikit-learn and, where $EVERLEARN_DATA or ../shared/data is at hand, from its streams.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from _page import parser, write_page
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import everlearn
from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier, OnlinePPCA

ROOT = Path(__file__).parents[1]
STREAMS = Path(os.environ.get("EVERLEARN_DATA", ROOT.parent / "shared" / "data")) / "streams"
MODELS = {
    "mixture": IncrementalGaussianMixture(),
    "mixture without rows": IncrementalGaussianMixture(reservoir=0),
    "PPCA, 5 axes": OnlinePPCA(5),
    "classifier": IncrementalGaussianMixtureClassifier(),
}


def synthetic() -> tuple[np.ndarray, np.ndarray]:
    """Ten sensors that measure the same, each around its own mean."""
    rng = np.random.default_rng(0)
    sensor = np.repeat(np.arange(10), 2000)
    mixing = rng.normal(size=(6, 6))
    return rng.normal(size=(10, 6))[sensor] * 2 + rng.normal(size=(20_000, 6)) @ mixing, sensor


def data_sets() -> list[tuple[str, np.ndarray, np.ndarray, int]]:
    """Name, rows, class or sensor of each, number of partitions."""
    digits = load_digits()
    sets = [("digits, 20 axes", PCA(20, random_state=0).fit_transform(digits.data), digits.target, 10)]
    sets.append(("ten sensors", *synthetic(), 10))
    robot = STREAMS / "wall_robot" / "sensor_readings_24.csv"
    if robot.is_file():
        table = np.genfromtxt(robot, delimiter=",", skip_header=1, dtype=str)
        sets.append(("wall-following robot", table[:, :24].astype(float), table[:, 24], 4))
    return sets


def arrangements(y: np.ndarray, n: int) -> dict[str, list[np.ndarray]]:
    """Indices of n partitions: shuffled, and sorted by class or sensor."""
    shuffled = np.random.default_rng(0).permutation(len(y))
    return {"alike": np.array_split(shuffled, n), "a class each": np.array_split(np.argsort(y, kind="stable"), n)}


def score(model: everlearn.IncrementalGaussianMixture, X: np.ndarray, y: np.ndarray) -> float:
    """Mean log-likelihood, or accuracy in percent."""
    return 100.0 * model.score(X, y) if isinstance(model, IncrementalGaussianMixtureClassifier) else model.score(X)


def compare(name: str, X: np.ndarray, y: np.ndarray, n: int) -> list[str]:
    """Lines of the table for one data set."""
    test = np.random.default_rng(1).random(len(X)) < 0.2
    train, labels = X[~test], y[~test]
    lines = []
    for kind, model in MODELS.items():
        cells = [f"{name}, {n} partitions", kind]
        for parts in arrangements(labels, n).values():
            order = np.concatenate(parts)
            single = score(model.copy().partial_fit(train[order], labels[order]), X[test], y[test])
            learned = [model.copy().partial_fit(train[part], labels[part]) for part in parts]
            cells += [f"{single:.2f}", f"{score(everlearn.merge(learned), X[test], y[test]):.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure and write."""
    head = ["data", "model", "alike: one pass", "merged", "a class each: one pass", "merged"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    options = parser(__doc__).parse_args()
    for item in list(data_sets())[: 1 if options.quick else None]:
        lines += compare(*item)
    table = "\n".join(lines)
    text = f"""# Partitions that are not alike

Held-out log-likelihood of a row in nats (of the classifier: accuracy in percent) of one pass over all rows, and of
models that learned a partition each and were merged. "Alike": rows dealt out at random. "A class each": rows sorted by
their class or sensor first, so that a partition sees one or two of them; the single pass sees them in that order, too.

{table}
"""
    write_page("partitions", text, quick=options.quick)


if __name__ == "__main__":
    main()
