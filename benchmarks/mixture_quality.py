"""Held-out log-likelihood of one streaming pass beside converged batch EM on real data.

    python benchmarks/mixture_quality.py [--quick] [--out benchmarks/results/mixture_quality.md]

Columns are standardised on the training rows; a third of the rows is held out. Each set is streamed shuffled and sorted
by class. scikit-learn's GaussianMixture runs with the K of our visible components, once with its default
reg_covar=1e-6 and once with 1e-3, and with the K that has the least BIC. With reg_covar=1e-6, columns that hold few
distinct values give EM densities without bound: the two columns stand side by side for that reason.
"""

import argparse
import csv
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn import datasets as sklearn_datasets
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split

from everlearn import IncrementalGaussianMixture, datasets

CANDIDATES = ((1.0, 0.5), (1.0, 0.1), (0.3, 0.1), (0.3, 1e-3))
BIC_GRID = (1, 2, 3, 5, 8, 12, 20, 30)
OURS = ("default", "second_look", "tune", "tune + second_look")
PEERS = ("EM, same K", "EM, same K, ridge", "EM, BIC's K, ridge")


def real_sets(quick):
    for name in ("diabetes", "glass", "ionosphere", "iris"):
        bunch = datasets.load(name)
        yield name, np.asarray(bunch.data, dtype=float), np.asarray(bunch.target)
    for name in ("wine", "breast_cancer"):
        bunch = getattr(sklearn_datasets, f"load_{name}")()
        yield name, bunch.data, bunch.target
    if quick:
        return
    digits = sklearn_datasets.load_digits()
    yield "digits, 16 axes", PCA(16, random_state=0).fit_transform(digits.data), digits.target
    folder = Path(os.environ.get("EVERLEARN_DATA", Path(__file__).parents[2] / "shared" / "data"))
    robot = folder / "streams" / "wall_robot" / "sensor_readings_24.csv"
    if robot.exists():
        with robot.open() as file:
            rows = list(csv.reader(file))[1:]
        yield "wall robot", np.array([row[:-1] for row in rows], dtype=float), np.array([row[-1] for row in rows])


def splits(X, y):
    X = X[:, X.std(axis=0) > 0]
    train, test, labels, _ = train_test_split(X, y, test_size=0.3, random_state=0)
    mean, std = train.mean(axis=0), train.std(axis=0)
    train, test = (train - mean) / std, (test - mean) / std
    yield "shuffled", train, test
    yield "sorted", train[np.argsort(labels, kind="stable")], test


def raced(train):
    """The candidate with the best prequential log-likelihood over the last nine tenths of the stream."""
    scores = [
        np.mean(IncrementalGaussianMixture(delta=d, beta=b, scale=1.0).prequential(train)[len(train) // 10 :])
        for d, b in CANDIDATES
    ]
    return dict(zip(("delta", "beta"), CANDIDATES[int(np.argmax(scores))], strict=True))


def em(train, K, ridge):
    K = min(K, len(train) // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GaussianMixture(K, reg_covar=ridge, n_init=2, random_state=0).fit(train)


def measure(train, test):
    best = raced(train)
    models = {
        "default": IncrementalGaussianMixture(),
        "second_look": IncrementalGaussianMixture(second_look=True),
        "tune": IncrementalGaussianMixture(**best),
        "tune + second_look": IncrementalGaussianMixture(**best, second_look=True),
    }
    scores = {name: model.fit(train).score(test) for name, model in models.items()}
    K = models["default"].n_components_
    scores["EM, same K"] = em(train, K, 1e-6).score(test)
    scores["EM, same K, ridge"] = em(train, K, 1e-3).score(test)
    by_bic = min((em(train, k, 1e-3) for k in BIC_GRID if k <= len(train) // 10), key=lambda m: m.bic(train))
    scores["EM, BIC's K, ridge"] = by_bic.score(test)
    return K, by_bic.n_components, scores


def report(rows):
    lines = [
        "| set | order | K | " + " | ".join(OURS) + " | " + " | ".join(PEERS) + " | K by BIC |",
        "|---" * (4 + len(OURS) + len(PEERS)) + "|",
    ]
    for name, order, K, K_bic, scores in rows:
        cells = " | ".join(f"{scores[column]:.2f}" for column in (*OURS, *PEERS))
        lines.append(f"| {name} | {order} | {K} | {cells} | {K_bic} |")
    lines += ["", "Gap to EM in percent of its |log-likelihood|, positive where EM is better: median / worst.", ""]
    lines += ["| | " + " | ".join(PEERS) + " |", "|---" * (1 + len(PEERS)) + "|"]
    for ours in OURS:
        gaps = [[100 * (s[peer] - s[ours]) / abs(s[peer]) for *_, s in rows] for peer in PEERS]
        lines.append(f"| {ours} | " + " | ".join(f"{np.median(g):.1f} / {max(g):.1f}" for g in gaps) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the small sets")
    parser.add_argument("--out", type=Path, help="write the tables here as well")
    arguments = parser.parse_args()
    rows = []
    for name, X, y in real_sets(arguments.quick):
        for order, train, test in splits(X, y):
            rows.append((name, order, *measure(np.ascontiguousarray(train), test)))
            print(f"{name}, {order}: done", flush=True)
    table = report(rows)
    print(table)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        command = "python benchmarks/mixture_quality.py" + (" --quick" if arguments.quick else "")
        arguments.out.write_text(f"# One pass beside batch EM\n\nMade by `{command}`.\n\n{table}\n")


if __name__ == "__main__":
    main()
