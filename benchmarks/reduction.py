"""Mixture reduction beside plain NumPy, and the density of a mixture beside scikit-learn's, as ratios in one run.

Run with one BLAS thread (OPENBLAS_NUM_THREADS=1) for figures that compare.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.mixture import GaussianMixture

from everlearn.core import mixture, reduction
from everlearn.core.mixture import Mixture

REDUCTIONS = [(200, 2, 20), (200, 10, 100), (200, 10, 20), (200, 34, 100), (500, 10, 100)]
DENSITIES = [(3, 4, 1000), (75, 34, 1000), (10, 256, 1000)]


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


def time_reductions(rng: np.random.Generator) -> None:
    """Print seconds and ratios for each size."""
    print(f"{'reduction':28}{'ours, s':>10}{'NumPy, s':>10}{'ratio':>8}")
    sizes = [(make, *size) for make in (random_mixture, learned_mixture) for size in REDUCTIONS]
    for make, K, D, m in sizes:
        f = make(rng, K, D)
        reduction.reduce_greedy(*f, n_components=K - 1)
        ours = best_of(lambda f=f, m=m: reduction.reduce_greedy(*f, n_components=m))
        plain = best_of(lambda f=f, m=m: reduce_with_numpy(f, m), repeats=1)
        kind = make.__name__.removesuffix("_mixture")
        print(f"{f'{kind}, {K} to {m}, D={D}':28}{ours:10.3f}{plain:10.3f}{plain / ours:8.1f}")
    f = random_mixture(rng, 200, 10)
    whole = best_of(lambda: reduction.reduce(f, 20))
    print(f"refined and measured, 200 to 20, D=10: {whole:.3f} s")


def time_densities(rng: np.random.Generator) -> None:
    """Print microseconds a row and ratios for each size."""
    print(f"\n{'density':28}{'ours, us':>10}{'sklearn':>10}{'ratio':>8}")
    for K, D, n in DENSITIES:
        f, X = random_mixture(rng, K, D), rng.normal(size=(n, D))
        peer = GaussianMixture(K)
        peer.weights_, peer.means_, peer.covariances_ = f
        peer.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(f.covariances)).transpose(0, 2, 1)
        kept = mixture.whitenings(f)
        ours = best_of(lambda f=f, X=X, kept=kept: mixture.log_density(X, f, kept), 10)
        theirs = best_of(lambda peer=peer, X=X: peer.score_samples(X), 10)
        print(f"{f'K={K}, D={D}':28}{1e6 * ours / n:10.2f}{1e6 * theirs / n:10.2f}{theirs / ours:8.1f}")


if __name__ == "__main__":
    generator = np.random.default_rng(0)
    time_reductions(generator)
    time_densities(generator)
