"""Trees of reductions, and mode-IMM for mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster import hierarchy
from sklearn.metrics import adjusted_rand_score

import everlearn
from everlearn import FIGMN, IncrementalGaussianMixture
from everlearn.experiments.papers.continual_learning.gaussians import crowd
from everlearn.experiments.papers.continual_learning.paper import PAPER
from everlearn.experiments.papers.figures import Panel, figure, line
from everlearn.experiments.papers.registry import Context
from everlearn.experiments.papers.results import Cell, Claim, Figure, Findings, Table, measured
from everlearn.gaussian.mixture import Mixture, log_density, sample
from everlearn.typing import Array

CENTRES = 4  # of `crowd`, whose components go around them in turn
# "The same clusters" has no number in the slides: an adjusted Rand index above which partitions are usually called so.
ALIKE = 0.8


# -- the tree --------------------------------------------------------------------------------------


@PAPER.item("hierarchy", "Goldberger and Roweis: the tree of reductions, cut at any number")
def tree_of_reductions(context: Context) -> Findings:
    """Cut trees at every number of components: what is lost, and whether the centres are found."""
    n_runs = context.pick(4, 30)
    K = 24
    heights, losses = np.empty((n_runs, K)), np.empty((n_runs, K))
    found = []
    for run in context.track(range(n_runs), "mixtures"):
        f = crowd(np.random.default_rng([context.seed, run]), K)
        tree = everlearn.hierarchy(f)
        X, _ = sample(f, context.pick(2000, 20_000), np.random.default_rng([context.seed, run, 1]))
        own = log_density(X, f)
        for n in range(1, K + 1):
            heights[run, n - 1] = 0.0 if n == K else tree.linkage[K - n - 1, 2]
            losses[run, n - 1] = np.mean(own - log_density(X, tree.cut(n)[0]))
        # SciPy cuts the same tree by its own code.
        by_scipy = hierarchy.fcluster(tree.linkage, CENTRES, "maxclust")
        labels = tree.cut(CENTRES)[1]
        found.append((adjusted_rand_score(np.arange(K) % CENTRES, labels), adjusted_rand_score(by_scipy, labels)))
    right, same = np.array(found).T
    # The divergence is estimated on rows: its standard error is far below the third digit that is shown.
    share = float(np.mean(losses <= heights + 0.01))
    rows: list[list[Cell]] = [
        [f"{n}", measured(heights[:, n - 1], digits=3), measured(losses[:, n - 1], digits=3)]
        for n in (16, 12, 8, 4, 2, 1)
    ]
    claims = [
        Claim(
            "The components of a mixture can be clustered into fewer, at any number of them.",
            f"Cut at four, the trees of {n_runs} mixtures of 24 components agree with their four centres to an "
            f"adjusted Rand index of {right.mean():.2f} (threshold: {ALIKE}); SciPy cuts them "
            f"alike ({same.min():.2f}).",
            bool(right.mean() > ALIKE and same.min() == 1.0),
        ),
        Claim(
            "Ours: the height of a cut bounds the Kullback-Leibler divergence from the mixture to its reduction.",
            f"It does in {share:.1%} of {losses.size} cuts; at four components it is {heights[:, 3].mean():.2f} nats "
            f"and the divergence {losses[:, 3].mean():.2f}.",
            share == 1.0,
        ),
    ]
    table = Table("Height of a cut and what it loses, in nats", ["components", "height", "divergence"], rows)
    about = (
        "everlearn.hierarchy merges the cheapest pair by Runnalls' bound until one component is left; its linkage is "
        "what SciPy's dendrogram takes, cut(n) the mixture of n components. Mixtures of 24 components "
        "around four centres; divergences on rows drawn from the mixture."
    )
    drawn = _dendrogram(crowd(np.random.default_rng([context.seed, 0]), K))
    return Findings(about, claims, [table], [drawn], n_runs)


def _dendrogram(f: Mixture) -> Figure:
    drawn = hierarchy.dendrogram(everlearn.hierarchy(f).linkage, no_plot=True)
    traces = [
        line(x, y, "merges", "ours", width=1.5, legend=i == 0)
        for i, (x, y) in enumerate(zip(drawn["icoord"], drawn["dcoord"], strict=True))
    ]
    # SciPy puts leaf number i at 10 i + 5.
    ticks = {"tickvals": [10 * i + 5 for i in range(len(drawn["ivl"]))], "ticktext": drawn["ivl"]}
    panel = Panel("24 components", traces, {"title": "component", **ticks}, {"title": "height, nats"})
    return Figure("Dendrogram of a mixture", figure([panel], height=380))


# -- mode-IMM for mixtures -------------------------------------------------------------------------


SHARDS = 4
METHODS = ("auto", "mean", "mode")
MODELS: dict[str, Any] = {
    "IncrementalGaussianMixture": IncrementalGaussianMixture,
    "FIGMN": lambda: FIGMN(scale=np.ones(3), delta=1.0),
}


def hills(rng: np.random.Generator, n: int, shift: float = 0.0) -> tuple[Array, Any]:
    """Rows of four hills in three columns, and their hills."""
    centres = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 3.0], [0.0, 9.0, -3.0], [9.0, 9.0, 0.0]])
    spreads = np.array([[1.0, 1.0, 1.0], [2.0, 0.7, 1.0], [0.6, 1.5, 1.0], [1.0, 1.0, 2.0]])
    of = rng.integers(len(centres), size=n)
    return centres[of] + spreads[of] * rng.normal(size=(n, 3)) + shift, of


def shards(protocol: str, rng: np.random.Generator, n: int) -> list[Array]:
    """What each of four models learns: rows of all hills, of one hill each, or of hills that are elsewhere a little."""
    if protocol == "one hill each":
        X, of = hills(rng, n)
        return [X[of == k] for k in range(SHARDS)]
    shifts = 0.5 * rng.normal(size=SHARDS) if protocol == "shifted" else np.zeros(SHARDS)
    return [hills(rng, n // SHARDS, shift)[0] for shift in shifts]


@PAPER.item("pool", "Mode-IMM as a method of merging mixtures")
def pool_of_mixtures(context: Context) -> Findings:
    """Models of four shards merged by each method, beside one pass over all rows."""
    n_runs, n = context.pick((1, 2000), (5, 8000))
    protocols = ("all hills", "one hill each", "shifted")
    gaps: dict[tuple[str, str, str], list[float]] = {}
    for run in context.track(range(n_runs), "runs"):
        for p, protocol in enumerate(protocols):
            parts = shards(protocol, np.random.default_rng([context.seed, run, p]), n)
            test = hills(np.random.default_rng([context.seed, run, 9]), 4000)[0]
            for name, make in MODELS.items():
                whole = make().partial_fit(np.random.default_rng(run).permutation(np.concatenate(parts))).score(test)
                models = [make().partial_fit(part) for part in parts]
                for method in METHODS:
                    merged = everlearn.merge(models, method=method)
                    gaps.setdefault((name, protocol, method), []).append(float(merged.score(test) - whole))
    rows: list[list[Cell]] = [
        [name, protocol, *(measured(gaps[name, protocol, method], digits=3) for method in METHODS)]
        for name in MODELS
        for protocol in protocols
    ]
    ours = next(iter(MODELS))
    worst = {protocol: float(np.mean(gaps[ours, protocol, "mode"])) for protocol in protocols[:2]}
    claims = [
        Claim(
            "Ours: mode-IMM for mixtures merges what several models have learned of the same task.",
            f"Pooled component by component, {ours} of four shards is {worst['all hills']:+.3f} nats from one pass "
            "(threshold: -0.05).",
            worst["all hills"] > -0.05,
        ),
        Claim(
            "Ours: it merges what they have learned of different tasks.",
            f"With one hill each it is {worst['one hill each']:+.3f} nats from one pass (threshold: -0.05): what only "
            "one model knows stays as it is.",
            worst["one hill each"] > -0.05,
        ),
    ]
    table = Table(
        "Held-out log-likelihood, nats from one pass over all rows",
        ["model", "shards", *(f"method={method!r}" for method in METHODS)],
        rows,
        "Shifted: each model has seen the hills at another place, the test rows are in the middle.",
    )
    about = (
        "Mode-IMM is defined for one Gaussian posterior. For mixtures, components of several models that one Gaussian "
        "describes as well by the Bayesian information criterion are pooled: their precisions add, weighed by the rows "
        f"behind them, and their counts add. Four hills in three columns, {n:,} rows in four shards."
    )
    return Findings(about, claims, [table], n_runs=n_runs)
