"""The incremental mixture in blocks and with a screen, beside one row at a time, plain NumPy and scikit-learn's EM.

    python benchmarks/mixture.py [--quick] [--threads 1 2]

All contenders take turns in one run, and each counts with its quickest turn. The share of the GEMM rate takes the
arithmetic of the block algorithm without a screen, 2 D^2 flops a row and component and D^2 more for each component
that the row updates, at the speed of this machine's own product of two 1024 x 1024 matrices. EM's iteration is
scikit-learn's own E-step and M-step, on as many rows as ours; neither side looks for gaps first.
"""

import time

import numpy as np
from _page import parser, write_page
from mixture_sequential import PlainMixture
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from everlearn.figmn import cost_model
from everlearn.figmn import learn as learning
from everlearn.figmn.cost_model import Method
from everlearn.figmn.keep import make_room
from everlearn.figmn.kernels.rows import FULL
from everlearn.figmn.state import Rows, Settings, State, novelty_thresholds
from everlearn.linalg.backend import HOST

TURNS = 4
# Seconds before each turn, in which the waiting threads of the last one's BLAS come to rest.
PAUSE = 0.1
# D, K, rows for us, for one row at a time, for plain NumPy and for EM
HEADLINES = [
    (34, 75, 8192, 2000, 100, 8192),
    (784, 1, 8192, 256, 64, 8192),
    (784, 50, 4096, 32, 2, 4096),
    (3072, 1, 1024, 32, 4, 1024),
]
GRID = [(D, K) for D in (2, 4, 16, 34, 64, 256, 784) for K in (1, 10, 75)]
FAR, NEAR = 3.0, 0.1  # spread of the means, in deviations: components apart, and on top of each other


class Problem:
    """A mixture of K components, far apart or on top of each other, that has seen many rows; and rows of it."""

    def __init__(self, D, K, n, spread, seed=0):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(min(K, 4), D, D)) / np.sqrt(D)
        shapes = A @ np.swapaxes(A, 1, 2) + 0.3 * np.eye(D)
        self.kind = np.arange(K) % len(shapes)
        self.shapes, self.means = shapes, rng.normal(0, spread, (K, D))
        labels = rng.integers(K, size=n)
        self.X, self.weights = self.means[labels], np.ones(n)
        for i, factor in enumerate(np.linalg.cholesky(shapes)):
            drawn = self.kind[labels] == i
            self.X[drawn] += rng.normal(size=(drawn.sum(), D)) @ factor.T
        self.settings = Settings(
            np.zeros(D), np.ones(D), np.full(D + 1, np.inf), False, 1.0, np.inf, 0.0, K, np.zeros(D)
        )  # nothing is novel: K stays

    def state(self):
        (K, D), inverses = self.means.shape, np.linalg.inv(self.shapes)
        log_dets = np.linalg.slogdet(self.shapes)[1]
        symmetric = 0.5 * (inverses + np.swapaxes(inverses, 1, 2))
        return State(
            self.means.copy(), symmetric[self.kind], log_dets[self.kind], np.full(K, 20.0 * D), np.ones(K), K, 0
        )


def row_by_row(state, X, weights, settings):
    n = len(X)
    rows = Rows(X, weights, np.empty(n), np.empty(n))
    after = 0
    while after < n:
        state, (after, status, _) = learning.learn_one_by_one(state, rows, after, n, False, settings)
        if status == FULL:
            state = make_room(state, settings)
    return state, rows


class Ours:
    """Learns the same rows again and again, as `figmn.learn` chooses to."""

    def __init__(self, problem, n, X=None, device=HOST):
        self.state, self.n = problem.state(), n
        self.gaps = X is not None
        X = problem.X if X is None else X
        self.arguments = X[:n], problem.weights[:n], problem.settings, device

    def __call__(self):
        self.state, _ = learning.learn(self.state, *self.arguments, gaps=self.gaps)


class RowByRow:
    """The same in the compiled loop, one row at a time."""

    def __init__(self, problem, n):
        self.state, self.problem, self.n = problem.state(), problem, n

    def __call__(self):
        self.state = row_by_row(self.state, self.problem.X[: self.n], self.problem.weights, self.problem.settings)[0]


class Plain:
    """One row at a time in plain NumPy."""

    def __init__(self, problem, n):
        self.model, self.X, self.n = PlainMixture(problem.state()), problem.X[:n], n

    def __call__(self):
        for x in self.X:
            self.model.learn(x)


class Iteration:
    """One EM iteration of scikit-learn."""

    def __init__(self, problem, n):
        K = len(problem.means)
        self.X, self.n = problem.X[:n], n
        self.model = GaussianMixture(K)
        self.model.weights_, self.model.means_ = np.full(K, 1.0 / K), problem.means.copy()
        self.model.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(problem.shapes))[problem.kind]

    def __call__(self):
        _, log_resp = self.model._e_step(self.X)
        self.model._m_step(self.X, log_resp)


def in_turns(contenders, turns=TURNS, warm_up=True):
    """Microseconds a row of each contender: its quickest turn."""
    times = dict.fromkeys(contenders, np.inf)
    for turn in range(turns + warm_up):
        for name, contender in contenders.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            contender()
            if turn >= warm_up:
                times[name] = min(times[name], (time.perf_counter() - start) / contender.n * 1e6)
    return times


class Product:
    """This machine's product of two 1024 x 1024 matrices of float64; its unit of work is a million flops."""

    n = 2 * 1024**3 // 10**6

    def __init__(self):
        self.A = np.random.default_rng(0).normal(size=(1024, 1024))
        self.out = np.empty_like(self.A)

    def __call__(self):
        np.matmul(self.A, self.A, out=self.out)


def headlines(quick, best):
    """The table of large mixtures; `best` takes our times by problem."""
    lines = [
        "| | ours, µs a row | way | share of GEMM rate | row by row | plain NumPy | EM iteration |",
        "|---|---|---|---|---|---|---|",
    ]
    for D, K, n, n_rows, n_plain, n_em in [(34, 10, 1024, 256, 16, 1024)] if quick else HEADLINES:
        problem, large = Problem(D, K, n, FAR), quick or K * D > 3000
        contenders = {
            "ours": Ours(problem, n),
            "rows": RowByRow(problem, n_rows),
            "em": Iteration(problem, n_em),
            "plain": Plain(problem, n_plain),
            "product": Product(),
        }
        t = in_turns(contenders, turns=2 if large else 2 * TURNS, warm_up=not large)
        share = (2 * K + 1) * D * D / 1e6 * t["product"] / t["ours"]
        times = [f"{t[name] / t['ours']:.2g}" for name in ("rows", "plain", "em")]
        best.setdefault((D, K), []).append(t["ours"])
        method = cost_model.choose(D, K).value
        lines.append(f"| D={D} K={K} | {t['ours']:.1f} | {method} | {share:.0%} | " + " | ".join(times) + " |")
    return lines


def grid(quick):
    """Our time as a share of row by row, for components apart and on top of each other."""
    lines = ["| | " + " | ".join(f"K={K}" for K in (1, 10, 75)) + " |", "|---|---|---|---|"]
    cells = {}
    for D, K in GRID[: 3 if quick else None]:
        n_rows = int(np.clip(1e8 / (K * (60 + 0.5 * D * D)), 32, 16_000))
        n = max(n_rows, 4096 if D < 100 else 1024)
        ratios = []
        for spread in (FAR,) if K == 1 else (FAR, NEAR):
            problem = Problem(D, K, n, spread)
            large = quick or K * D * D > 1e7
            contenders = {"ours": Ours(problem, n), "rows": RowByRow(problem, n_rows)}
            t = in_turns(contenders, turns=1 if large else 4 * TURNS, warm_up=not large)
            ratios.append(f"{t['ours'] / t['rows']:.2f}")
        cells[D, K] = ", ".join(ratios)
    for D in sorted({D for D, _ in cells}):
        lines.append(f"| D={D} | " + " | ".join(cells.get((D, K), "") for K in (1, 10, 75)) + " |")
    return lines


def with_gaps(X, way, rng):
    X = X.copy()
    if way == "at random":
        X[rng.random(X.shape) < 0.3] = np.nan
    for start in range(0, len(X) if way == "in stretches" else 0, 256):
        X[start : start + 256, rng.random(X.shape[1]) < 0.3] = np.nan
    return X


def gaps(quick):
    """Time of rows with 30 % of their cells missing, as a multiple of that of complete rows."""
    lines = ["| | complete, µs a row | cells at random | the same columns for 256 rows |", "|---|---|---|---|"]
    for D, K in ((10, 10),) if quick else ((10, 10), (34, 75)):
        for spread, name in ((FAR, "apart"), (NEAR, "on top of each other")):
            n, rng = 4096 if D == 10 else 1024, np.random.default_rng(0)
            problem = Problem(D, K, n, spread)
            contenders = {
                way: Ours(problem, n, with_gaps(problem.X, way, rng))
                for way in ("complete", "at random", "in stretches")
            }
            t = in_turns(contenders, turns=1 if quick else TURNS)
            times = [f"{t[way] / t['complete']:.1f}" for way in ("at random", "in stretches")]
            lines.append(f"| D={D} K={K}, {name} | {t['complete']:.1f} | " + " | ".join(times) + " |")
    return lines


def in_one_way(method, problem):
    chosen = cost_model.choose
    cost_model.choose = lambda D, K, *args, **kwargs: method
    state, info = learning.learn(problem.state(), problem.X, problem.weights, problem.settings)
    cost_model.choose = chosen
    return state, info


def deviations(quick):
    """Largest relative difference between blocks and the same rows one by one, from the same state."""
    lines = ["| | components | distances | means | precisions |", "|---|---|---|---|---|"]
    cases = [
        ("one block, on top of each other", 34, 75, 64, NEAR, {}),
        ("one block, on top of each other", 256, 5, 64, NEAR, {}),
        ("one block, creating and pruning", 34, 5, 64, NEAR, {"beta": 0.5, "prune": (12.0, 2.0)}),
        ("20,000 rows, apart", 34, 20, 20_000, 5.0, {}),
    ]
    for name, D, K, n, spread, changes in cases[:1] if quick else cases:
        problem = Problem(D, K, n, spread)
        if changes:
            min_age, min_count = changes["prune"]
            thresholds = novelty_thresholds(changes["beta"], D)
            problem.settings = problem.settings._replace(
                thresholds=thresholds, min_age=min_age, min_count=min_count, max_components=100
            )
        truth, rows = row_by_row(problem.state(), problem.X, problem.weights, problem.settings)
        state, info = in_one_way(Method.BLOCKS, problem)
        n_components = truth.n_components
        assert state.n_components == n_components
        pairs = ((info.distance, rows.distance), *zip(state[:2], truth[:2], strict=True))
        parts = [(a[:n_components], b[:n_components]) if a.ndim > 1 else (a, b) for a, b in pairs]
        figures = (f"{np.abs(a - b).max() / np.abs(b).max():.0e}" for a, b in parts)
        lines.append(f"| {name}, D={D} | {K} to {n_components} | " + " | ".join(figures) + " |")
    return lines


def report(threads, quick):
    parts, best = [], {}
    for n in threads:
        with threadpool_limits(n):
            heading = f"## {n} BLAS thread{'s' if n > 1 else ''}"
            rate = 1e3 / in_turns({"product": Product()}, turns=10)["product"]
            note = f"GEMM: {rate:.0f} Gflops a second. Times of the others are multiples of ours."
            parts += [heading, "", note, "", *headlines(quick, best), ""]
    if len(threads) > 1:
        ratios = (f"{times[0] / times[-1]:.2f} at D={D} K={K}" for (D, K), times in best.items())
        parts += [f"{threads[-1]} BLAS threads against {threads[0]}: " + ", ".join(ratios) + ".", ""]
    sections = [
        (
            "Share of the time of row by row",
            "Components apart, then on top of each other. For small K D² both run the same loop, and differ by noise.",
            lambda: grid(quick),
        ),
        ("Gaps", "30 % of the cells missing; times as multiples of complete rows.", lambda: gaps(quick)),
        ("Blocks and rows one by one", "Largest relative differences.", lambda: deviations(quick)),
    ]
    with threadpool_limits(threads[0]):
        for title, note, table in sections:
            parts += [f"## {title}", "", note, "", *table(), ""]
    return "\n".join(parts)


def main():
    made = parser(__doc__)
    made.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of BLAS threads")
    arguments = made.parse_args()
    tables = report(arguments.threads, arguments.quick)
    write_page("mixture", f"# The incremental mixture in blocks\n\n{tables}", quick=arguments.quick)


if __name__ == "__main__":
    main()
