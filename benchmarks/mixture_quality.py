"""Held-out log-likelihood of one streaming pass beside converged batch EM on real data.

    python benchmarks/mixture_quality.py [--quick] [--out benchmarks/results/mixture_quality.md]

Columns are standardised on the training rows; three tenths of the rows are held out. Each set is streamed shuffled and
sorted by class. scikit-learn's GaussianMixture runs to convergence with as many components as each of our models
answers from, once with reg_covar=1e-3 (as much as we add) and once with its default 1e-6, and with the K of least BIC.
With reg_covar=1e-6, columns that hold few distinct values give EM densities without bound: the two stand side by side
for that reason. Then, how often 90 % intervals of each column given the others hold the truth on held-out rows.
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

import everlearn
from everlearn import IncrementalGaussianMixture, datasets

BIC_GRID = (1, 2, 3, 5, 8, 12, 20, 30)
OURS = ("default", "second_look", "tune", "tune + second_look")
RIDGE, SKLEARN = 1e-3, 1e-6
PEERS = {
    "EM, same K, 1e-3": ("same", RIDGE), "EM, same K, 1e-6": ("same", SKLEARN), "EM, BIC's K, 1e-3": ("bic", RIDGE)
}  # fmt: skip


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


class Peer:
    """Held-out scores of converged EM, each fitted once."""

    def __init__(self, train, test):
        self.train, self.test, self.known = train, test, {}
        affordable = [k for k in BIC_GRID if k <= max(1, len(train) // 10)]
        self.K_bic = min(affordable, key=lambda k: self._fitted(k, RIDGE).bic(train))

    def _fitted(self, K, ridge):
        K = max(1, min(K, len(self.train) // 2))
        if (K, ridge) not in self.known:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                self.known[K, ridge] = GaussianMixture(K, reg_covar=ridge, n_init=2, random_state=0).fit(self.train)
        return self.known[K, ridge]

    def score(self, K, ridge):
        return self._fitted(self.K_bic if K == "bic" else K, ridge).score(self.test)


def models_for(train):
    """Our models, fitted; the settings of `tune` are chosen on the stream itself."""
    best = everlearn.tune(train).results[0]
    chosen = {"delta": best["delta"], "beta": best["beta"]}
    parameters = ({}, {"second_look": True}, chosen, {**chosen, "second_look": True})
    return {
        name: IncrementalGaussianMixture(**values).fit(train) for name, values in zip(OURS, parameters, strict=True)
    }


def measure(train, test, peer):
    """For each of our models its score and K, and the scores of its peers."""
    found = {}
    for name, model in models_for(train).items():
        K = model.to_sklearn().n_components
        peers = [peer.score(K if k == "same" else k, ridge) for k, ridge in PEERS.values()]
        found[name] = (model.score(test), K, *peers)
    return found


def coverage(train, test, level=0.9):
    """Share of held-out values inside the interval of each column given the others, over all columns."""
    model = IncrementalGaussianMixture().fit(train)
    inside = []
    for column in range(train.shape[1]):
        _, (low, high) = model.predict_columns(test, [column], interval=level)
        inside.append(np.mean((low[:, 0] <= test[:, column]) & (test[:, column] <= high[:, 0])))
    return 100 * np.mean(inside)


def report(rows, covered):
    """Markdown."""
    lines = [
        "Held-out log-likelihood a row; in brackets the number of components that answer.", "",
        "| set | order | " + " | ".join(OURS) + " | EM, default's K, 1e-3 | the same, 1e-6 | EM, BIC's K | K by BIC |",
        "|---" * (6 + len(OURS)) + "|",
    ]  # fmt: skip
    for name, order, K_bic, found in rows:
        cells = " | ".join(f"{found[ours][0]:.2f} ({found[ours][1]})" for ours in OURS)
        peers = " | ".join(f"{score:.2f}" for score in found["default"][2:])
        lines.append(f"| {name} | {order} | {cells} | {peers} | {K_bic} |")
    lines += ["", "Gap to EM in percent of its |log-likelihood|, positive where EM is better: median / worst.", ""]
    lines += ["| | " + " | ".join(PEERS) + " |", "|---" * (1 + len(PEERS)) + "|"]
    for ours in OURS:
        gaps = [
            [100 * (f[ours][2 + p] - f[ours][0]) / abs(f[ours][2 + p]) for *_, f in rows] for p in range(len(PEERS))
        ]
        lines.append(f"| {ours} | " + " | ".join(f"{np.median(g):.1f} / {max(g):.1f}" for g in gaps) + " |")
    lines += ["", "90 % intervals of each column given the others, share of held-out values inside, percent.", ""]
    lines += ["| set | inside |", "|---|---|", *(f"| {name} | {share:.1f} |" for name, share in covered)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the small sets")
    parser.add_argument("--out", type=Path, help="write the tables here as well")
    arguments = parser.parse_args()
    rows, covered = [], []
    for name, X, y in real_sets(arguments.quick):
        peer = None
        for order, train, test in splits(X, y):
            train, test = np.ascontiguousarray(train), np.ascontiguousarray(test)
            peer = peer or Peer(train, test)
            rows.append((name, order, peer.K_bic, measure(train, test, peer)))
            if order == "shuffled":
                covered.append((name, coverage(train, test)))
            print(f"{name}, {order}: done", flush=True)
    table = report(rows, covered)
    print(table)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        command = "python benchmarks/mixture_quality.py" + (" --quick" if arguments.quick else "")
        arguments.out.write_text(f"# One pass beside batch EM\n\nMade by `{command}`.\n\n{table}\n")


if __name__ == "__main__":
    main()
