"""Section 1: similar performance and a similar number of clusters in any order of the rows."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from everlearn import FIGMN, IncrementalGaussianMixture, datasets
from everlearn.experiments.papers.figmn.paper import PAPER
from everlearn.experiments.papers.figmn.weka import BETA, DELTA, PAPER_NAMES, spread
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Findings, Table, measured
from everlearn.typing import Array

ORDERS = 10
# "Similar" has no number in the paper. Components: a spread of a quarter of their mean. Clusters: an adjusted Rand
# index of 0.8 between two orders, above which partitions are usually called the same in substance.
ALIKE_COUNT, ALIKE_CLUSTERS = 0.25, 0.8
PAPER_MODE, DEFAULT, BATCH = "FIGMN", "everlearn default", "batch EM, ten starts"


def columns(name: str) -> Array:
    """Inputs of a set without gaps, in units of their spread; what does not vary is left out."""
    X = datasets.load(name).data
    # Gaps are filled for all three alike: batch EM takes none.
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    return np.ascontiguousarray((X / spread(X))[:, X.std(axis=0) > 0.0])


def partitions(X: Array, make: Any, seed: int, n_orders: int) -> tuple[list[Any], list[int], list[float]]:
    """Clusters of the rows, number of components and mean log-density, once for each order of learning."""
    clusters, counts, scores = [], [], []
    for order in range(n_orders):
        rows = np.random.default_rng([seed, order]).permutation(len(X))
        model = make(order).fit(X[rows])
        # All rows in their own order, so that partitions of different runs can be compared row by row.
        clusters.append(model.predict(X))
        counts.append(len(model.weights_))
        scores.append(float(model.score(X)))
    return clusters, counts, scores


def agreement(clusters: list[Any]) -> float:
    """Mean adjusted Rand index of all pairs of partitions: 1 the same, 0 no more alike than by chance."""
    return float(np.mean([adjusted_rand_score(a, b) for a, b in combinations(clusters, 2)]))


@PAPER.item("orders", "Section 1: similar clusters in any order of the rows")
def orders(context: Context) -> Findings:
    """Adjusted Rand index and number of components over ten orders, in paper mode and by default."""
    names = context.pick(("iris", "glass"), ("iris", "glass", "diabetes", "ionosphere"))
    n_orders = context.pick(4, ORDERS)
    found: dict[tuple[str, str], tuple[list[Any], list[int], list[float]]] = {}
    for name in context.track(names, "sets"):
        X = columns(name)
        found[name, PAPER_MODE] = partitions(X, lambda i: FIGMN(delta=DELTA, beta=BETA), context.seed, n_orders)
        found[name, DEFAULT] = partitions(X, lambda i: IncrementalGaussianMixture(), context.seed, n_orders)
        # As many components as the default has: batch EM does not depend on the order, but on where it starts.
        k = max(1, round(float(np.mean(found[name, DEFAULT][1]))))
        found[name, BATCH] = partitions(
            X, lambda i, k=k: GaussianMixture(k, random_state=i, reg_covar=1e-3), context.seed, n_orders
        )
    alike = {key: agreement(value[0]) for key, value in found.items()}
    rows: list[list[Cell]] = [
        [
            PAPER_NAMES[name],
            method,
            measured(counts),
            measured(alike[name, method], digits=2),
            measured(scores, digits=2),
        ]
        for (name, method), (_, counts, scores) in found.items()
    ]
    table = Table(
        f"Over {n_orders} orders", ["", "", "components", "adjusted Rand index", "log-likelihood, nats a row"], rows
    )
    about = (
        f"Inputs alone, without the class; each column in units of its spread. {PAPER_MODE} has the settings of Tables "
        f"2 and 3. The adjusted Rand index is the mean over all pairs of orders. Batch EM knows no order: its "
        f"{n_orders} runs differ in where they start, with as many components as the default finds."
    )
    return Findings(about, _claims(names, found, alike), [table], n_runs=n_orders)


def _claims(names: Any, found: Any, alike: dict[tuple[str, str], float]) -> list[Claim]:
    share = {
        m: max(float(np.std(found[name, m][1], ddof=1) / np.mean(found[name, m][1])) for name in names)
        for m in (PAPER_MODE, DEFAULT)
    }
    least = {m: min(alike[name, m] for name in names) for m in (PAPER_MODE, DEFAULT, BATCH)}
    mean = {m: float(np.mean([alike[name, m] for name in names])) for m in least}
    return [
        Claim(
            "A similar number of clusters in any order.",
            "Largest spread over orders, as a share of the mean: "
            + ", ".join(f"{m} {value:.0%}" for m, value in share.items())
            + f" (threshold: {ALIKE_COUNT:.0%}).",
            share[PAPER_MODE] <= ALIKE_COUNT,
            share[DEFAULT] <= ALIKE_COUNT,
        ),
        Claim(
            "The clusters themselves are similar in any order.",
            "Adjusted Rand index between orders, mean of the sets and least: "
            + ", ".join(f"{m} {mean[m]:.2f} and {least[m]:.2f}" for m in least)
            + f" (threshold for the mean: {ALIKE_CLUSTERS}).",
            mean[PAPER_MODE] >= ALIKE_CLUSTERS,
            mean[DEFAULT] >= ALIKE_CLUSTERS,
        ),
    ]
