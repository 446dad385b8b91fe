"""One core and two: large mixtures, and many small ones.

    python benchmarks/scale_cores.py [--quick]

The threads that BLAS may use are those that a large mixture uses; its answers are compared bit by bit. Small models
learn in a pool of threads, a batch each at a time. Contenders take turns: large mixtures count with the quickest,
small ones with all, since their copies are not made in every turn.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from _page import parser, write_page
from threadpoolctl import threadpool_limits

from everlearn import IncrementalGaussianMixture
from everlearn.figmn.ask import squared_distances
from everlearn.linalg import parallel as threads
from mixture import FAR, Ours, Problem

TURNS = 3
LARGE = [(784, 50, 4096), (784, 50, 2048), (784, 10, 1024), (784, 1, 4096), (3072, 1, 1024), (256, 50, 2048)]
MODELS, BATCH, WIDTHS = 200, 100, (4, 16)


class Products:
    """Matrix products that have nothing to do with each other: what two cores can give at most."""

    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.A, self.n = rng.normal(size=(1024, 1024)), n
        self.out = [np.empty_like(self.A) for _ in range(n)]

    def __call__(self):
        threads.each(lambda out: np.matmul(self.A, self.A, out=out), self.out)


class Scores:
    """Distances of rows to all components."""

    def __init__(self, problem, n):
        self.state, self.X, self.n = problem.state(), problem.X[:n], n

    def __call__(self):
        squared_distances(self.state, self.X)


def seconds(work, n_threads):
    with threadpool_limits(n_threads, user_api="blas"):
        time.sleep(0.1)
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


def one_and_two(make):
    """Quickest turn with one thread and with two, on work of their own."""
    works = {n: make() for n in (1, 2)}
    best = dict.fromkeys(works, np.inf)
    for turn in range(TURNS + 1):
        for n, work in works.items():
            taken = seconds(work, n)
            best[n] = min(best[n], taken) if turn else np.inf
    return best, works


def same_bits(works):
    """Whether what was learned is the same."""
    states = [work.state for work in works.values()]
    return all(np.array_equal(a, b) for a, b in zip(*(state[:5] for state in states), strict=True))


def large(sizes):
    lines = ["| | one, µs a row | two, µs a row | times | answers |", "|---|---|---|---|---|"]
    for D, K, n in sizes:
        problem = Problem(D, K, n, FAR)
        best, works = one_and_two(lambda problem=problem, n=n: Ours(problem, n))
        answers = "the same bits" if same_bits(works) else "the same to rounding"
        lines.append(row(f"learn, D={D} K={K}, {n:,} rows", best, n, answers))
    problem = Problem(784, 50, 1024, FAR)
    best, _ = one_and_two(lambda: Scores(problem, 1024))
    lines.append(row("distances, D=784 K=50", best, 1024, ""))
    best, _ = one_and_two(lambda: Products(16))
    lines.append(row("the limit: products of 1024 x 1024, a row each", best, 16, ""))
    return lines


def row(name, best, n, answers):
    one, two = (taken / n * 1e6 for taken in best.values())
    return f"| {name} | {one:.1f} | {two:.1f} | **{one / two:.2f}** | {answers} |"


class Fleet:
    """Many models, each of which learns a batch at a time."""

    def __init__(self, D, n_threads):
        rng = np.random.default_rng(0)
        self.models = [IncrementalGaussianMixture() for _ in range(MODELS)]
        self.batches = [rng.normal(size=(BATCH, D)) for _ in range(MODELS)]
        self.n_threads = n_threads
        for _ in range(5):
            self()

    def __call__(self):
        with ThreadPoolExecutor(self.n_threads) as pool:
            for _ in pool.map(IncrementalGaussianMixture.partial_fit, self.models, self.batches):
                pass


def fleets(widths):
    lines = ["| | one thread, rows a second | two | times |", "|---|---|---|---|"]
    for D in widths:
        fleet = {n: Fleet(D, n) for n in (1, 2)}
        taken = dict.fromkeys(fleet, 0.0)
        for _ in range(TURNS):
            for n, work in fleet.items():
                taken[n] += seconds(work, 1)
        rates = [TURNS * MODELS * BATCH / total for total in taken.values()]
        name = f"{MODELS} models, {D} columns, batches of {BATCH} rows"
        lines.append(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | **{rates[1] / rates[0]:.2f}** |")
    return lines


def main():
    options = parser(__doc__).parse_args()
    sizes, widths = (LARGE[-1:], WIDTHS[:1]) if options.quick else (LARGE, WIDTHS)
    parts = [
        "# Cores",
        "",
        "## One large mixture",
        "",
        *large(sizes),
        "",
        "## Many small ones",
        "",
        *fleets(widths),
        "",
    ]
    write_page("scale_cores", "\n".join(parts), quick=options.quick)


if __name__ == "__main__":
    main()
