"""Mixture reduction beside plain NumPy and beside the best of all partitions; densities beside scikit-learn's.

OPENBLAS_NUM_THREADS=1 python benchmarks/reduction.py [--quick]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator

import numpy as np
from _page import parser, write_page
from sklearn.mixture import GaussianMixture

from everlearn.gaussian import mixture, reduction
from everlearn.gaussian.gaussian import moment_match
from everlearn.gaussian.mixture import Mixture

REDUCTIONS = [(200, 2, 20), (200, 10, 100), (200, 10, 20), (200, 34, 100), (500, 10, 100)]
QUALITIES = [(20, 2, 5), (40, 5, 8), (200, 10, 20)]
OPTIMA = [(5, 2, 2), (6, 2, 3), (6, 5, 2)]
DENSITIES = [(3, 4, 1000), (75, 34, 1000), (10, 256, 1000)]
Sizes = list[tuple[int, int, int]]


def random_mixture(rng: np.random.Generator, K: int, D: int) -> Mixture:
    """Components of random place, shape and weight."""
    A = rng.normal(size=(K, D, D + 2))
    return Mixture(rng.dirichlet(np.ones(K)), rng.normal(0, 3, (K, D)), A @ A.transpose(0, 2, 1) / D)


def learned_mixture(rng: np.random.Generator, K: int, D: int) -> Mixture:
    """Components as a stream leaves them: most of few samples, each a round prior and the scatter of its samples."""
    counts = 1 + np.floor(rng.exponential(8, K)).astype(int)
    scatters = [Z.T @ Z for Z in (rng.normal(size=(n, D)) @ rng.normal(0, 0.5, (D, D)) for n in counts)]
    S = (np.eye(D) + np.array(scatters)) / counts[:, None, None]
    return Mixture(counts / counts.sum(), rng.normal(0, 2, (K, D)), S)


def best_of(function, repeats: int = 3) -> float:
    """CPU seconds of the fastest call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def merged_costs(w, means, S, log_dets, i, j):
    """Runnalls' costs of component i with components j, vectorised."""
    p = (w[i] / (w[i] + w[j]))[:, None, None]
    d = means[i] - means[j]
    merged = p * S[i] + (1 - p) * S[j] + p * (1 - p) * d[:, :, None] * d[:, None, :]
    pivots = np.diagonal(np.linalg.cholesky(merged), axis1=1, axis2=2)
    return 0.5 * ((w[i] + w[j]) * 2 * np.log(pivots).sum(axis=1) - w[i] * log_dets[i] - w[j] * log_dets[j])


def reduce_with_numpy(f: Mixture, n_components: int) -> None:
    """The full table of costs, one row of it anew after each merge."""
    w, means, S = (a.copy() for a in f)
    K = len(w)
    log_dets = np.linalg.slogdet(S)[1]
    costs = np.full((K, K), np.inf)
    for i in range(K - 1):
        costs[i, i + 1 :] = merged_costs(w, means, S, log_dets, i, np.arange(i + 1, K))
    alive = np.ones(K, dtype=bool)
    for _ in range(K - n_components):
        i, j = np.unravel_index(costs.argmin(), costs.shape)
        p, d = w[i] / (w[i] + w[j]), means[i] - means[j]
        S[i] = p * S[i] + (1 - p) * S[j] + p * (1 - p) * np.outer(d, d)
        means[i], w[i] = p * means[i] + (1 - p) * means[j], w[i] + w[j]
        log_dets[i] = np.linalg.slogdet(S[i])[1]
        alive[j], costs[j], costs[:, j] = False, np.inf, np.inf
        others = np.flatnonzero(alive & (np.arange(K) != i))
        row = merged_costs(w, means, S, log_dets, i, others)
        costs[np.minimum(i, others), np.maximum(i, others)] = row


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Cells as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def reductions(rng: np.random.Generator, sizes: Sizes) -> Iterator[list[str]]:
    """Seconds of greedy reduction, ours and in plain NumPy, and of the refined one that `everlearn.reduce` makes."""
    for make, (K, D, m) in itertools.product((random_mixture, learned_mixture), sizes):
        f = make(rng, K, D)
        reduction.reduce(f, K - 1)  # compiled beforehand
        ours = best_of(lambda f=f, m=m: reduction.reduce_greedy(*f, n_components=m))
        plain = best_of(lambda f=f, m=m: reduce_with_numpy(f, m), repeats=1)
        whole = best_of(lambda f=f, m=m: reduction.reduce(f, m))
        kind = make.__name__.removesuffix("_mixture")
        sizes = [kind, f"{K} to {m}", str(D)]
        yield [*sizes, f"{ours:.3f}", f"{plain:.3f}", f"{plain / ours:.1f}", f"{whole:.3f}"]


def qualities(sizes: Sizes) -> Iterator[list[str]]:
    """Greedy and refined reductions of fifty mixtures: what each lost, and how often refinement lost less."""
    for K, D, m in sizes:
        gaps = []
        for seed in range(50):
            f = random_mixture(np.random.default_rng(seed), K, D)
            greedy = Mixture(*reduction.reduce_greedy(*f, n_components=m)[:3])
            refined = reduction.reduce(f, m)
            error = reduction.squared_error(f, greedy, relative=True)
            gaps.append([error, refined.squared_error, reduction.distance(f, greedy), refined.distance])
        before, after, far, near = np.array(gaps).T
        better, worse = np.sum(after < before), np.sum(after > before)
        errors = [f"{before.mean():.4f}", f"{after.mean():.4f}", f"{better} / {worse}"]
        yield [f"{K} to {m}", str(D), *errors, f"{far.mean():.4f}", f"{near.mean():.4f}", str(np.sum(near > far))]


def best_distance(f: Mixture, m: int) -> float:
    """The least d(f, g) over all partitions of the components into m groups."""
    best = np.inf
    for labels in itertools.product(range(m), repeat=len(f.weights)):
        if len(set(labels)) == m:
            groups = [np.array(labels) == j for j in range(m)]
            moments = [moment_match(*(a[mine] for a in f)) for mine in groups]
            g = Mixture(np.ones(m) / m, *(np.stack(a) for a in zip(*moments, strict=True)))
            best = min(best, reduction.distance(f, g))
    return float(best)


def optima(sizes: Sizes) -> Iterator[list[str]]:
    """How often refinement from the greedy start ends at the optimum, and how far from it on average."""
    for K, D, m in sizes:
        excess = []
        for seed in range(30):
            f = random_mixture(np.random.default_rng(seed), K, D)
            start = reduction.reduce_greedy(*f, n_components=m)
            refined = reduction.refine(f, Mixture(*start[:3]), start.labels)
            excess.append(refined.distances[-1] / best_distance(f, m) - 1.0)
        found = np.mean(np.array(excess) < 1e-9)
        yield [f"{K} to {m}", str(D), f"{100 * found:.0f} %", f"{100 * np.mean(excess):.2f} %"]


def densities(rng: np.random.Generator, sizes: Sizes) -> Iterator[list[str]]:
    """Microseconds a row."""
    for K, D, n in sizes:
        f, X = random_mixture(rng, K, D), rng.normal(size=(n, D))
        peer = GaussianMixture(K)
        peer.weights_, peer.means_, peer.covariances_ = f
        peer.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(f.covariances)).transpose(0, 2, 1)
        kept = mixture.whitenings(f)
        ours = best_of(lambda f=f, X=X, kept=kept: mixture.log_density(X, f, kept), 10)
        theirs = best_of(lambda peer=peer, X=X: peer.score_samples(X), 10)
        yield [str(K), str(D), f"{1e6 * ours / n:.2f}", f"{1e6 * theirs / n:.2f}", f"{theirs / ours:.1f}"]


def report(quick: bool) -> str:
    """All tables; those of a quick run have a line each."""
    rng, end = np.random.default_rng(0), 1 if quick else None
    speed = table(
        ["mixture", "components", "D", "greedy, s", "NumPy, s", "ratio", "refined, s"],
        reductions(rng, REDUCTIONS[:end]),
    )
    quality = table(
        ["components", "D", "ISE, greedy", "ISE, refined", "better / worse", "d, greedy", "d, refined", "d rose"],
        qualities(QUALITIES[:end]),
    )
    optimum = table(["components", "D", "at the optimum", "mean excess of d"], optima(OPTIMA[:end]))
    density = table(["components", "D", "ours, us a row", "scikit-learn", "ratio"], densities(rng, DENSITIES[:end]))
    return f"""# Mixture reduction

Seconds of one core.

## Speed

Greedy merging by Runnalls' bound, beside the same in plain NumPy (all pairs once, one row of costs anew after each
merge); and what `everlearn.reduce` does, greedy and refined. "Learned" components are as a stream leaves them, most of
few rows.

{speed}

## What refinement gains

Fifty random mixtures each. ISE is the integrated squared error relative to the integral of f squared, d(f, g) the mean
divergence of components to their nearest; "rose" counts mixtures where refinement ended with a larger d.

{quality}

## Beside the best of all partitions

Thirty random mixtures each, all partitions tried.

{optimum}

## Densities

Log-density of rows under a full mixture, beside scikit-learn's `score_samples`.

{density}
"""


if __name__ == "__main__":
    options = parser(__doc__).parse_args()
    write_page("reduction", report(options.quick), quick=options.quick)
