"""Microseconds a row: our sequential mixture, the same in plain NumPy, and at K = 1 river's EmpiricalPrecision.

    python benchmarks/mixture_sequential.py [--quick]

All in one run and one thread, as ratios to the kernel. Also what one `partial_fit` and one `score_samples` of a single
row cost above the kernel.
"""

import time

import numpy as np
from _page import parser, write_page
from river.covariance import EmpiricalPrecision
from threadpoolctl import threadpool_limits

from everlearn import FIGMN
from everlearn.figmn import learn as learning
from everlearn.figmn.state import Settings, from_components, with_arrays

ROUNDS = 5
CASES = ((4, 3, 20_000), (34, 75, 2000), (4, 1, 20_000), (34, 1, 5000))  # columns, components, rows
GAPS = ((8, 6, 8000), (34, 6, 2000))


class PlainMixture:
    """The same update with NumPy on stacked matrices, one row at a time."""

    def __init__(self, state):
        K = state.n_components
        self.means, self.precisions = state.means[:K].copy(), state.precisions[:K].copy()
        self.log_dets, self.counts = state.log_dets[:K].copy(), state.counts[:K].copy()

    def learn(self, x):
        E = x - self.means
        G = np.einsum("kij,kj->ki", self.precisions, E)
        d2 = np.einsum("ki,ki->k", E, G)
        log_joint = np.log(self.counts) - 0.5 * (d2 + self.log_dets)
        p = np.exp(log_joint - log_joint.max())
        p /= p.sum()
        self.counts += p
        w = p / self.counts
        self.means += w[:, None] * E
        scale = w / (1 + w * d2)
        self.precisions -= scale[:, None, None] * G[:, :, None] * G[:, None, :]
        self.precisions /= (1 - w)[:, None, None]
        self.log_dets += len(x) * np.log(1 - w) + np.log(1 + w * d2)


def problem(D, K, n, seed=0):
    """A mixture that has learned K groups, and rows from the same groups."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 4, (K, D))
    X = centres[rng.integers(K, size=n)] + rng.normal(size=(n, D))
    state = from_components(np.full(K, 50.0), centres, np.tile(np.eye(D), (K, 1, 1)), np.ones(K))
    settings = Settings(
        np.zeros(D), np.ones(D), np.full(D + 1, np.inf), False, 1.0, np.inf, 0.0, K, np.zeros(D)
    )  # nothing is novel: K stays
    return state, X, settings


def best(call, n):
    """Microseconds a row: the quickest of some rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) / n * 1e6


def kernel(state, X, settings):
    weights = np.ones(len(X))
    fresh = [with_arrays(state, np.copy) for _ in range(ROUNDS + 1)]
    learning.learn(fresh.pop(), X, weights, settings)
    return best(lambda: learning.learn(fresh.pop(), X, weights, settings), len(X))


def plain(state, X):
    def call():
        model = PlainMixture(state)
        for x in X:
            model.learn(x)

    return best(call, len(X))


def river(X):
    rows = [dict(enumerate(x)) for x in X.tolist()]

    def call():
        model = EmpiricalPrecision()
        for row in rows:
            model.update(row)

    return best(call, len(X))


def compare(cases):
    lines = ["| | kernel, µs a row | plain NumPy | river EmpiricalPrecision |", "|---|---|---|---|"]
    for D, K, n in cases:
        state, X, settings = problem(D, K, n)
        ours = kernel(state, X, settings)
        slow = plain(state, X[: max(n // 20, 100)])
        peer = f"{river(X[: n // 20]) / ours:.0f} times" if K == 1 else ""
        lines.append(f"| D={D} K={K} | {ours:.2f} | {slow / ours:.0f} times | {peer} |")
    return lines


def missing_values(cases):
    """What SIMD lanes are for: rows with missing values beside complete ones."""
    lines = ["| missing | complete, µs a row | 5 % of the values | 30 % |", "|---|---|---|---|"]
    for D, K, n in cases:
        state, X, settings = problem(D, K, n)
        rng, times = np.random.default_rng(1), []
        for share in (0.0, 0.05, 0.3):
            rows = np.where(rng.random(X.shape) < share, np.nan, X)
            times.append(kernel(state, rows, settings))
        ratios = " | ".join(f"{t / times[0]:.1f} times" for t in times[1:])
        lines.append(f"| D={D} K={K} | {times[0]:.2f} | {ratios} |")
    return lines


def single_rows():
    X = np.random.default_rng(0).normal(size=(1000, 4))
    model = FIGMN(beta=0.0).fit(X)
    row, n = X[:1].copy(), 2000
    inside = kernel(*(problem(4, 1, 20_000)))

    def repeat(call):
        for _ in range(n):
            call(row)

    model.score_samples(row)
    lines = ["| one row, D=4 K=1 | µs | above the kernel |", "|---|---|---|"]
    for call in (model.partial_fit, model.score_samples):
        cost = best(lambda call=call: repeat(call), n)
        lines.append(f"| `{call.__name__}` | {cost:.1f} | {cost - inside:.1f} |")
    return lines


def main():
    options = parser(__doc__).parse_args()
    end = 1 if options.quick else None
    with threadpool_limits(1):
        table = "\n".join([*compare(CASES[:end]), "", *missing_values(GAPS[:end]), "", *single_rows()])
    write_page("mixture_sequential", f"# The sequential mixture\n\n{table}", quick=options.quick)


if __name__ == "__main__":
    main()
