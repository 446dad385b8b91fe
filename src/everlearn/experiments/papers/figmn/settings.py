"""Section 4: delta by two-fold cross-validation, and the memory of a random forest beside the mixture's."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

from everlearn import FIGMNClassifier, datasets
from everlearn.experiments.papers.figmn.paper import PAPER
from everlearn.experiments.papers.figmn.weka import BETA, DELTA, PAPER_NAMES, READING, Fold, figmn, folds, split, spread
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Findings, Table, measured

DELTAS = 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0
# Accuracies that differ by less than this many points cannot be told apart: shuffles alone move them as much.
SAME_POINTS = 0.5
TREES = 100
SIX = 3.0, 12.0  # what counts as "six times": a factor of two either way, for other programs and formats
FLOAT = 8  # bytes


# -- delta -----------------------------------------------------------------------------------------


def halves(name: str, seed: int) -> list[Fold]:
    """Both halves of a set, its rows shuffled."""
    data = datasets.load(name)
    order = np.random.default_rng(seed).permutation(len(data.data))
    X, y = data.data[order], data.target[order]
    # Weka's cross-validation is stratified by default; the paper says "2-fold" and no more.
    parts = StratifiedKFold(2, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        return [split(X, y, data.categorical, *rows) for rows in parts.split(X, y)]


def accuracy(delta: float, part: Fold) -> float:
    """Accuracy in percent of the paper's classifier with another delta."""
    model = FIGMNClassifier(delta=delta, beta=BETA, scale=spread(part.X)).fit(part.known, part.y)
    return 100.0 * float(np.mean(model.predict(part.test_known) == part.test_y))


@PAPER.item("delta", "Section 4: delta chosen by two-fold cross-validation")
def delta_by_halves(context: Context) -> Findings:
    """Accuracy of two-fold cross-validation by delta, one value for all sets."""
    names = context.pick(("glass", "iris", "labor"), datasets.NAMES)
    repeats = context.pick(1, 5)
    scores = {
        (name, delta): [
            float(np.mean([accuracy(delta, part) for part in halves(name, context.seed + r)])) for r in range(repeats)
        ]
        for name in context.track(names, "sets")
        for delta in DELTAS
    }
    # One choice a shuffle: that is what choosing by a single two-fold cross-validation would have done.
    means = {d: np.mean([scores[name, d] for name in names], axis=0) for d in DELTAS}
    chosen = [max(DELTAS, key=lambda d: means[d][r]) for r in range(repeats)]
    overall = {d: float(values.mean()) for d, values in means.items()}
    best = max(DELTAS, key=lambda d: overall[d])
    rows: list[list[Cell]] = [[PAPER_NAMES[name], *(measured(scores[name, d]) for d in DELTAS)] for name in names]
    rows.append(["Average", *(measured(means[d], mark="*" if d == best else "") for d in DELTAS)])
    counted = ", ".join(f"{d:g} ({chosen.count(d)} of {repeats})" for d in DELTAS if d in chosen)
    near = [d for d in DELTAS if overall[best] - overall[d] <= SAME_POINTS]
    claim = Claim(
        f"Two-fold cross-validation chooses delta = {DELTA:g}, one value for all sets.",
        f"Chosen: {counted} (threshold: {DELTA:g} in more than half). On average {best:g} is best, "
        f"{overall[best] - overall[DELTA]:.2f} points above {DELTA:g}; within {SAME_POINTS:g} points of it lie "
        f"{', '.join(f'{d:g}' for d in near)}.",
        2 * chosen.count(DELTA) > repeats,
    )
    table = Table("Accuracy in percent by delta", ["", *(f"{d:g}" for d in DELTAS)], rows, "* best on average")
    about = f"{READING.split('rows shuffled')[0]}rows shuffled, two folds."
    return Findings(about, [claim], [table], n_runs=repeats)


# -- memory ----------------------------------------------------------------------------------------


def mixture_bytes(model: FIGMNClassifier) -> int:
    """What the paper's model holds: mean, precision, determinant, two counts for every component."""
    # D counts the class columns, which the paper's network has beside the inputs.
    K, D = model.n_components_, model.n_features_in_ + len(model.classes_)
    # The whole matrix: the equations of the paper make no use of its symmetry.
    return FLOAT * K * (D + D * D + 3)


def forest_bytes(forest: RandomForestClassifier) -> tuple[int, int]:
    """What a forest holds: as pickled, and its nodes alone as five numbers each and the counts of a leaf's classes."""
    nodes = sum(tree.tree_.node_count for tree in forest.estimators_)
    leaves = sum(tree.tree_.n_leaves for tree in forest.estimators_)
    return len(pickle.dumps(forest)), FLOAT * (5 * nodes + forest.n_classes_ * leaves)


@PAPER.item("memory", "Section 4: memory of the random forest beside the mixture's")
def memory(context: Context) -> Findings:
    """Bytes of both models on nine tenths of each set."""
    names = context.pick(("glass", "iris", "labor"), datasets.NAMES)
    sizes = {}
    for name in context.track(names, "sets"):
        part = folds(name, context.seed)[0]
        forest = RandomForestClassifier(TREES, random_state=context.seed).fit(part.known, part.y)
        sizes[name] = mixture_bytes(figmn(part)), *forest_bytes(forest)
    kB = np.array(list(sizes.values())) / 1024
    ratios = kB[:, 1:] / kB[:, :1]
    # The geometric mean, because ratios of 2 and 1/2 should cancel.
    typical = np.exp(np.log(ratios).mean(axis=0))
    rows: list[list[Cell]] = [
        [PAPER_NAMES[name], *(measured(v) for v in kB[i]), *(measured(v) for v in ratios[i])]
        for i, name in enumerate(names)
    ]
    rows.append(["Geometric mean", "", "", "", *(measured(v, "6", digits=1) for v in typical)])
    columns = ["", "FIGMN, kB", "forest, pickled, kB", "forest, nodes, kB", "ratio, pickled", "ratio, nodes"]
    claim = Claim(
        "The random forest's model uses 6 times more memory than the mixture's.",
        f"A forest of {TREES} trees takes {typical[1]:.1f} times the memory (geometric mean of the sets, from "
        f"{ratios[:, 1].min():.1f} to {ratios[:, 1].max():.1f}), {typical[0]:.1f} times as scikit-learn pickles it "
        f"(threshold: {SIX[0]:g} to {SIX[1]:g}).",
        bool(SIX[0] <= typical[1] <= SIX[1]),
    )
    about = (
        f"Models of nine tenths of each set. The mixture's numbers are those that the paper keeps; a forest has "
        f"{TREES} trees, scikit-learn's default (Weka's had 10 or 100, by version; the paper does not say), "
        "and its nodes are counted as child, child, column, threshold and class counts of a leaf."
    )
    return Findings(about, [claim], [Table("Memory", columns, rows)])
