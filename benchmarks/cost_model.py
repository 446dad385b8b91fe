"""Fits the constants of `everlearn.figmn.cost_model` anew, on this machine and one thread.

    python benchmarks/cost_model.py [--quick]

Every method learns the same rows of mixtures of several sizes, components apart, so that about one component matters
to a row. The terms of each cost are fitted by least squares of relative errors, none below zero, and printed beside the
constants in use; the last table says how much longer the chosen method takes than the best one.
"""

import time

import numpy as np
from _page import parser
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from everlearn.figmn import cost_model
from everlearn.figmn import learn as learning
from everlearn.figmn.cost_model import CACHED_NUMBERS, FITTED, Method, block_rows
from everlearn.linalg.backend import LARGE
from mixture import FAR, Problem

SIZES = [(4, 3), (8, 20), (16, 10), (34, 20), (34, 75), (64, 10), (128, 4), (128, 20), (300, 4)]
ROUNDS = 3


def seconds(method, problem):
    """Quickest of some rounds in which one method learns everything."""
    chosen, best = cost_model.choose, np.inf
    cost_model.choose = lambda D, K, *args, **kwargs: method
    try:
        for _ in range(ROUNDS):
            state = problem.state()
            start = time.perf_counter()
            learning.learn(state, problem.X, problem.weights, problem.settings, gaps=False)
            best = min(best, time.perf_counter() - start)
    finally:
        cost_model.choose = chosen
    return best


def terms(method, D, K):
    """The terms of a method's cost by the name of their constant, with one active component."""
    square = D * D
    number = "pass_cached" if K * square <= CACHED_NUMBERS else "pass_uncached"
    screen = {"screen_row": 1, "screen_component": K, "screen_square": K * square * (0.5 if D >= LARGE else 1.0)}
    screen["screen_features"] = 0 if D >= LARGE else square
    if method == Method.ROWS:
        return {number: (K + 1.3) * square, "row_component": K, "row_update": 1}
    if method == Method.BLOCKS:
        return {"block": 1 / block_rows(D), "block_component": K, "block_column": K * D, "block_square": K * square}
    if method == Method.SCREENED_ROWS:
        return {**screen, number: 2.3 * square, "row_component": 1}
    rows = block_rows(D, K, screened=True)
    return {**screen, "screened_block": 1 / rows, "screened_component": K / rows}


def fit(measured):
    """Constants by name: all methods in one system, each equation divided by its time."""
    names = list(FITTED._fields)
    A = np.array([[terms(m, D, K).get(name, 0.0) / t for name in names] for (m, D, K), t in measured.items()])
    found, _ = nnls(A, np.ones(len(A)))
    return dict(zip(names, found, strict=True))


def main():
    options = parser(__doc__).parse_args()
    measured, sizes = {}, SIZES[:5] if options.quick else SIZES
    with threadpool_limits(1, user_api="blas"):
        for D, K in sizes:
            n = int(np.clip(4e7 / (K * D * D), 512, 8192))
            problem = Problem(D, K, n, FAR)
            for method in Method:
                seconds(method, problem)  # compiled and warm
                measured[method, D, K] = seconds(method, problem) / n * 1e9
    print("| constant | in use, ns | fitted here |\n|---|---|---|")
    for name, value in fit(measured).items():
        print(f"| {name} | {getattr(FITTED, name):.3g} | {value:.3g} |")
    print("\n| | best | chosen | chosen/best |\n|---|---|---|---|")
    for D, K in sizes:
        times = {method: measured[method, D, K] for method in Method}
        best, chosen = min(times, key=times.__getitem__), cost_model.choose(D, K)
        print(f"| D={D} K={K} | {best.value} | {chosen.value} | {times[chosen] / times[best]:.2f} |")


if __name__ == "__main__":
    main()
