"""Held-out log-likelihood of one streaming pass beside converged batch EM on real data.

    python benchmarks/mixture_quality.py [--quick] [--out benchmarks/results/mixture_quality.md]

Held-out log-likelihood a row; in brackets the number of components that answer. Columns are standardised on the
training rows; three tenths of the rows are held out. Sets of fewer than 800 rows: means over three splits, since a few
dozen held-out rows tell scores apart by some percent only. Each set is streamed shuffled and sorted by class.
scikit-learn's GaussianMixture runs to convergence (the better of two starts) with as many components as each of our
models answers from, and with the K of least BIC.

Like is compared with like where EM has as many components and reg_covar=1e-3, as much as our answers add to every
variance. With scikit-learn's default, 1e-6, columns that hold few distinct values (diabetes, glass) let EM put
components of almost no width on single values: its densities there grow without bound as the ridge shrinks, and where
held-out rows miss such a component they fall as far. With BIC's K, EM may use another number of components than ours.
90 % intervals: how often that of a column given the others holds the truth on held-out rows.
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
SPLITS, SMALL = 3, 800
PEERS = {
    "EM, same K, 1e-3": ("same", RIDGE), "EM, same K, 1e-6": ("same", SKLEARN), "EM, BIC's K, 1e-3": ("bic", RIDGE)
}  # fmt: skip


def shared_streams():
    return Path(os.environ.get("EVERLEARN_DATA", Path(__file__).parents[2] / "shared" / "data")) / "streams"


def chosen_on(quick):
    """Sets that the constants of the defaults were chosen on."""
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
    robot = shared_streams() / "wall_robot" / "sensor_readings_24.csv"
    if robot.exists():
        with robot.open() as file:
            rows = list(csv.reader(file))[1:]
        yield "wall robot", np.array([row[:-1] for row in rows], dtype=float), np.array([row[-1] for row in rows])


def fresh(quick):
    """Sets that nothing was chosen on; those without classes are sorted by the quarter of their first column."""
    bunch = sklearn_datasets.load_diabetes(scaled=False)
    yield "diabetes progression", *_by_quarter(np.column_stack([bunch.data, bunch.target]))
    for name, values in (("ambient_temperature", "ambient temperature"), ("ec2_request_latency", "request latency")):
        file = shared_streams() / "nab" / f"{name}_system_failure.csv"
        if file.exists():
            lags = np.lib.stride_tricks.sliding_window_view(np.genfromtxt(file, delimiter=",", skip_header=1)[:, 1], 4)
            yield f"{values}, 4 lags", *_by_quarter(lags[::2].copy())
    rng = np.random.default_rng(0)
    centres, shapes, k = rng.normal(0, 2, (7, 5)), rng.normal(0, 0.6, (7, 5, 5)), rng.integers(7, size=1500)
    yield "seven Gaussians", centres[k] + np.einsum("nij,nj->ni", shapes[k], rng.normal(size=(1500, 5))), k
    yield "Swiss roll", *_by_quarter(sklearn_datasets.make_swiss_roll(1500, noise=0.3, random_state=0)[0])
    yield "moons", *sklearn_datasets.make_moons(1000, noise=0.1, random_state=0)
    X, y = sklearn_datasets.make_friedman1(1200, n_features=6, random_state=0)
    yield "Friedman's function", *_by_quarter(np.column_stack([X, y]))


GROUPS = {"Sets that the defaults were chosen on": chosen_on, "Sets that nothing was chosen on": fresh}


def _by_quarter(X):
    return X, np.searchsorted(np.quantile(X[:, 0], [0.25, 0.5, 0.75]), X[:, 0])


def splits(X, y, seed):
    X = X[:, X.std(axis=0) > 0]
    train, test, labels, _ = train_test_split(X, y, test_size=0.3, random_state=seed)
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
    """Our models, fitted."""
    return dict(
        zip(
            OURS,
            (
                IncrementalGaussianMixture().fit(train),
                IncrementalGaussianMixture(second_look=True).fit(train),
                everlearn.tune(train).model,
                everlearn.tune(train, second_look=True).model,
            ),
            strict=True,
        )
    )


def measure(train, test, peer):
    """For each of our models its score and K, and the scores of its peers."""
    found = {}
    for name, model in models_for(train).items():
        K = model.to_sklearn().n_components
        peers = [peer.score(K if k == "same" else k, ridge) for k, ridge in PEERS.values()]
        found[name] = (model.score(test), K, *peers)
    return found


def measure_set(X, y):
    """For each order the K by BIC and what was measured, means over the splits; and the share of values covered."""
    runs, K_bic, covered = {}, [], []
    for seed in range(SPLITS if len(X) < SMALL else 1):
        peer = None
        for order, train, test in splits(X, y, seed):
            train, test = np.ascontiguousarray(train), np.ascontiguousarray(test)
            peer = peer or Peer(train, test)
            runs.setdefault(order, []).append(measure(train, test, peer))
            if order == "shuffled":
                covered.append(coverage(train, test))
        K_bic.append(peer.K_bic)
    means = {order: {ours: np.mean([f[ours] for f in found], axis=0) for ours in OURS} for order, found in runs.items()}
    return means, np.mean(K_bic), np.mean(covered)


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
        "| set | order | " + " | ".join(OURS) + " | EM, default's K, 1e-3 | the same, 1e-6 | EM, BIC's K | K by BIC |",
        "|---" * (6 + len(OURS)) + "|",
    ]  # fmt: skip
    for name, order, K_bic, found in rows:
        cells = " | ".join(f"{found[ours][0]:.2f} ({found[ours][1]:.0f})" for ours in OURS)
        peers = " | ".join(f"{score:.2f}" for score in found["default"][2:])
        lines.append(f"| {name} | {order} | {cells} | {peers} | {K_bic:.0f} |")
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
    parts = [__doc__.split("\n\n", 2)[2].strip()]
    for title, sets in GROUPS.items():
        rows, covered = [], []
        for name, X, y in sets(arguments.quick):
            means, K_bic, share = measure_set(X, y)
            rows += [(name, order, K_bic, found) for order, found in means.items()]
            covered.append((name, share))
            print(f"{name}: done", flush=True)
        parts += [f"## {title}", report(rows, covered)]
        print("\n\n".join(parts[-2:]), flush=True)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        command = "python benchmarks/mixture_quality.py" + (" --quick" if arguments.quick else "")
        text = "\n\n".join(["# One pass beside batch EM", f"Made by `{command}`.", *parts])
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
