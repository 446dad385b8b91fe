"""The incremental mixture in blocks and with a screen, beside one row at a time, plain NumPy and scikit-learn's EM.

    python benchmarks/mixture.py [--quick] [--threads 1 2] [--out benchmarks/results/mixture.md]

All contenders take turns in one run, and each counts with its quickest turn. The share of the GEMM rate takes the
arithmetic of the block algorithm without a screen, 2 D^2 flops a row and component and D^2 more for each component
that the row updates, at the speed of this machine's own product of two 1024 x 1024 matrices.
"""

import argparse
import platform
import time
from pathlib import Path

import numpy as np
from mixture_sequential import PlainMixture
from sklearn.mixture import GaussianMixture
from sklearn.mixture._gaussian_mixture import _estimate_gaussian_parameters
from threadpoolctl import threadpool_limits

from everlearn.core import incremental, runs
from everlearn.core.block import Rows
from everlearn.core.pace import Method

TURNS = 3
NEVER = 10**9
# D, K, rows for us, for one row at a time, for plain NumPy and for EM
HEADLINES = [(34, 75, 8192, 2000, 200, 8192), (784, 1, 4096, 256, 64, 4096), (784, 50, 1024, 32, 4, 1024)]
GRID = [(D, K) for D in (2, 4, 16, 34, 64, 256, 784) for K in (1, 10, 75)]


class Problem:
    """A mixture of K components, far apart or on top of each other, that has seen many rows; and rows of it."""

    def __init__(self, D, K, n, spread, seed=0):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(min(K, 8), D, D)) / np.sqrt(D)
        shapes = A @ np.swapaxes(A, 1, 2) + 0.3 * np.eye(D)
        self.shapes = shapes[np.arange(K) % len(shapes)]
        self.means = rng.normal(0, spread, (K, D))
        labels = rng.integers(K, size=n)
        self.X, self.weights = self.means[labels], np.ones(n)
        for i, factor in enumerate(np.linalg.cholesky(shapes)):
            drawn = labels % len(shapes) == i
            self.X[drawn] += rng.normal(size=(drawn.sum(), D)) @ factor.T
        self.settings = incremental.Settings(
            np.zeros(D), np.ones(D), np.full(D + 1, np.inf), False, 1.0, np.inf, 0.0, K, 0.0
        )  # nothing is novel: K stays

    def state(self):
        K, D = self.means.shape
        return incremental.from_components(np.full(K, 20.0 * D), self.means, self.shapes, np.ones(K))


def row_by_row(state, X, weights, settings):
    n = len(X)
    rows = Rows(X, weights, np.empty(n), np.empty(n))
    state, outcome = runs.learn_singly(state, rows, 0, n, settings, settings.thresholds)
    assert outcome.row == n
    return state


class Ours:
    """Learns the same rows again and again, as `incremental.learn` chooses to."""

    def __init__(self, problem, n, learn=incremental.learn):
        self.state, self.learn = problem.state(), learn
        self.rows = problem.X[:n], problem.weights[:n], problem.settings
        self.n = n

    def __call__(self):
        result = self.learn(self.state, *self.rows)
        self.state = result[0] if self.learn is incremental.learn else result


class Plain:
    """One row at a time in plain NumPy."""

    def __init__(self, problem, n):
        self.model, self.X, self.n = PlainMixture(problem.state()), problem.X[:n], n

    def __call__(self):
        for x in self.X:
            self.model.learn(x)


class Iteration:
    """One EM iteration of scikit-learn, less the Cholesky factorisations that do not depend on the rows."""

    def __init__(self, problem, n):
        K = len(problem.means)
        self.X, self.n = problem.X[:n], n
        precisions = np.linalg.inv(problem.shapes)
        self.model = GaussianMixture(K)
        self.model.weights_ = np.full(K, 1.0 / K)
        self.model.means_ = problem.means
        self.model.precisions_cholesky_ = np.linalg.cholesky(precisions)

    def __call__(self):
        _, log_resp = self.model._e_step(self.X)
        _estimate_gaussian_parameters(self.X, np.exp(log_resp), 1e-6, "full")


def in_turns(contenders, turns=TURNS, warm_up=True):
    """Microseconds a row of each contender: its quickest turn."""
    times = dict.fromkeys(contenders, np.inf)
    for turn in range(turns + warm_up):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            if turn >= warm_up:
                times[name] = min(times[name], (time.perf_counter() - start) / contender.n * 1e6)
    return times


def gemm_rate(turns=10):
    """Flops a second of this machine's product of two 1024 x 1024 matrices of float64."""
    A = np.random.default_rng(0).normal(size=(1024, 1024))
    out = np.empty_like(A)
    best = np.inf
    for _ in range(turns):
        start = time.perf_counter()
        np.matmul(A, A, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * 1024**3 / best


def way(D, K, n):
    """How most rows of a separated mixture are learned."""
    return runs.choose(D, K).value


def headlines(quick):
    lines = [
        "| | ours, µs a row | way | share of GEMM rate | row by row | plain NumPy | EM iteration |",
        "|---|---|---|---|---|---|---|",
    ]
    for D, K, n, n_rows, n_plain, n_em in HEADLINES[: 2 if quick else 3]:
        rate = gemm_rate()
        problem = Problem(D, K, n, spread=3.0)
        contenders = {
            "ours": Ours(problem, n),
            "rows": Ours(problem, n_rows, row_by_row),
            "plain": Plain(problem, n_plain),
            "em": Iteration(problem, n_em),
        }
        t = in_turns(contenders, turns=2 if K * D > 10_000 else TURNS, warm_up=K * D <= 10_000)
        rate = max(rate, gemm_rate())
        share = (2 * K + 1) * D * D / (t["ours"] * 1e-6) / rate
        times = [f"{t[name] / t['ours']:.1f} times" for name in ("rows", "plain", "em")]
        lines.append(f"| D={D} K={K} | {t['ours']:.1f} | {way(D, K, n)} | {share:.0%} | " + " | ".join(times) + " |")
    return lines


def grid(quick):
    lines = [
        "| time as a share of row by row | " + " | ".join(f"K={K}" for K in (1, 10, 75)) + " |",
        "|---|---|---|---|",
    ]
    cells = {}
    for D, K in GRID[: 12 if quick else None]:
        spreads = (5.0,) if K == 1 else (5.0, 0.1)
        n_rows = int(np.clip(4e8 / (K * (60 + 0.5 * D * D)), 48, 16_000))
        n = max(n_rows, 1024 if D < 500 else 384)
        ratios = []
        for spread in spreads:
            problem = Problem(D, K, n, spread)
            large = K * D * D > 1e7
            contenders = {"ours": Ours(problem, n), "rows": Ours(problem, n_rows, row_by_row)}
            t = in_turns(contenders, turns=1 if large else TURNS, warm_up=not large)
            ratios.append(f"{t['ours'] / t['rows']:.2f}")
        cells[D, K] = ", ".join(ratios)
    for D in sorted({D for D, _ in cells}):
        lines.append(f"| D={D} | " + " | ".join(cells.get((D, K), "") for K in (1, 10, 75)) + " |")
    return lines


def deviations():
    """Largest difference between one block, in each way, and the same rows one by one, from the same state."""
    lines = ["| one block, largest relative difference | distances | means | precisions |", "|---|---|---|---|"]
    for D, K in ((34, 75), (256, 5)):
        problem = Problem(D, K, 64, spread=0.1)
        truth = problem.state()
        rows = Rows(problem.X, problem.weights, np.empty(64), np.empty(64))
        truth, _ = runs.learn_singly(truth, rows, 0, 64, problem.settings, problem.settings.thresholds)
        chosen = runs.choose
        runs.choose = lambda *args, **kwargs: Method.BLOCKS
        state, info = incremental.learn(problem.state(), problem.X, problem.weights, problem.settings)
        runs.choose = chosen
        pairs = ((info.distance, rows.distance), (state.means, truth.means), (state.precisions, truth.precisions))
        figures = (f"{np.abs(a - b).max() / np.abs(b).max():.0e}" for a, b in pairs)
        lines.append(f"| D={D} K={K} | " + " | ".join(figures) + " |")
    return lines


def report(threads, quick):
    parts = []
    for n in threads:
        with threadpool_limits(n):
            heading = f"## {n} BLAS thread{'s' if n > 1 else ''}"
            rate = f"GEMM: {gemm_rate() / 1e9:.0f} Gflops a second."
            parts += [heading, "", rate, "", *headlines(quick), ""]
            if n == threads[0]:
                parts += ["Components far apart, then on top of each other:", "", *grid(quick), "", *deviations(), ""]
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out what takes longest")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of BLAS threads")
    parser.add_argument("--out", type=Path, help="write the tables here as well")
    arguments = parser.parse_args()
    tables = report(arguments.threads, arguments.quick)
    print(tables)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        made = f"`python benchmarks/mixture.py`, Python {platform.python_version()}, NumPy {np.__version__}."
        arguments.out.write_text(f"# The incremental mixture in blocks\n\nMade by {made}\n\n{tables}")


if __name__ == "__main__":
    main()
