"""Time what users call in two checkouts, turn and turn about.

    python tools/compare_speed.py OLD/src NEW/src
    python tools/compare_speed.py OLD/src NEW/src --only figmn ppca --rounds 5

Each checkout has a process of its own, started once; a round times every call in the one and then in the other, so that
whatever else the machine does meets both. Times are CPU seconds of one thread. The figure is the median over the rounds
of new / old, beside `LIMIT`; calls above it are listed and make the exit status 1.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 1.1
Call = Callable[[], object]


# -- the calls -------------------------------------------------------------------------------------


def single_rows(model: Any, X: np.ndarray, start: int, **arguments: Any) -> Call:
    """Learn rows one at a time after the first `start` of them."""
    model.partial_fit(X[:start])
    rows = [X[i : i + 1] for i in range(start, len(X))]

    def call() -> None:
        for row in rows:
            model.partial_fit(row, **arguments)

    return call


def batches(model: Any, X: np.ndarray, size: int) -> Call:
    """Learn batches of `size` rows into a copy of the model, which has learned the first of them."""
    model.partial_fit(X[:size])
    parts = [X[i : i + size] for i in range(size, len(X), size)]

    def call() -> None:
        twin = model.copy()
        for part in parts:
            twin.partial_fit(part)

    return call


def asked(model: Any, X: np.ndarray, *, single: bool = False) -> Call:
    """Score rows, all at once or one at a time."""
    model.partial_fit(X)
    rows = [X[i : i + 1] for i in range(300)] if single else [X]
    return lambda: [model.score_samples(row) for row in rows]


def imputed(model: Any, X: np.ndarray, gaps: np.ndarray) -> Call:
    """Fill the gaps of some rows."""
    model.partial_fit(X)
    return lambda: model.impute(gaps)


def calls() -> dict[str, Callable[[], Call]]:
    """What is timed, by name; a call is made ready when its turn comes."""
    from compare_editions import built as build
    from compare_editions import clusters, constrained, figmn, figmn_many
    from compare_editions import estimator_class as public

    X, _ = clusters(3000, 8)
    wide, _ = clusters(1500, 100, seed=2)
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    ppca, variational = (functools.partial(build, public(name), {}) for name in ("OnlinePPCA", "VariationalPPCA"))
    return {
        "figmn: rows one at a time": lambda: single_rows(figmn({}), X, 1000),
        "figmn: rows with gaps, one at a time": lambda: single_rows(figmn({}), gaps, 1000),
        "figmn: batches of 1000": lambda: batches(figmn({}), X, 1000),
        "figmn: batches of 1000 with gaps": lambda: batches(figmn({}), gaps, 1000),
        "figmn: batches of 500, 100 columns": lambda: batches(figmn({}), wide, 500),
        "figmn: many components, batches of 1000": lambda: batches(figmn_many({}), X, 1000),
        "figmn: diagonal, batches of 1000": lambda: batches(figmn({"covariance_type": "diag"}), X, 1000),
        "figmn: scores": lambda: asked(figmn({}), X),
        "figmn: scores of single rows": lambda: asked(figmn({}), X, single=True),
        "figmn: gaps filled": lambda: imputed(figmn({}), X, gaps),
        "ppca: rows one at a time": lambda: single_rows(ppca(), X, 1000),
        "ppca: rows with gaps, one at a time": lambda: single_rows(ppca(), gaps, 1000),
        "ppca: batches of 1000": lambda: batches(ppca(), X, 1000),
        "ppca: batches of 500, 100 columns": lambda: batches(ppca(), wide, 500),
        "ppca: natural constraint, batches of 1000": lambda: batches(constrained({}, {}), X, 1000),
        "ppca: scores": lambda: asked(ppca(), X),
        "ppca: scores of single rows": lambda: asked(ppca(), X, single=True),
        "variational: rows one at a time": lambda: single_rows(variational(), X, 1000),
        "variational: batches of 1000": lambda: batches(variational(), X, 1000),
        "variational: batches of 500, 100 columns": lambda: batches(variational(), wide, 500),
        "variational: scores": lambda: asked(variational(), X),
        "agent: sixty episodes": episodes,
        "mixtures merged": merged,
        "a model saved and loaded": saved,
    }


def episodes() -> Call:
    """An agent learns a corridor."""
    from everlearn.agents import MixtureQAgent

    def call() -> None:
        agent = MixtureQAgent(scale=[1.0, 1.0], exploration="epsilon", random_state=0).begin(n_actions=3)
        rng = np.random.default_rng(3)
        for _ in range(60):
            x, steps = rng.normal(size=2), 0
            while abs(x[0]) < 3.0 and steps < 40:
                x = x + np.array([0.5 * (agent.act(x) - 1), 0.1 * rng.normal()])
                steps += 1
                agent.observe(float(x[0] >= 3.0) - 0.01, x, terminated=abs(x[0]) >= 3.0, truncated=steps == 40)

    return call


def merged() -> Call:
    """Two mixtures of many components into one."""
    from compare_editions import clusters, figmn_many

    import everlearn

    X, _ = clusters(2000, 8)
    models = [figmn_many({}).partial_fit(part) for part in (X[:1000], X[1000:])]
    return lambda: everlearn.merge(models)


def saved() -> Call:
    """A mixture to bytes and back."""
    from compare_editions import clusters, figmn_many

    import everlearn

    model = figmn_many({}).partial_fit(clusters(2000, 8)[0])
    return lambda: [everlearn.loads(everlearn.dumps(model)) for _ in range(10)]


# -- a process for each checkout -------------------------------------------------------------------


def serve() -> None:
    """Answer each name read with the CPU seconds of its call; compiled, and ready, before it is first timed."""
    warnings.simplefilter("ignore")
    known, ready = calls(), {}
    print(json.dumps(sorted(known, key=list(known).index)), flush=True)
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = known[name]()
            ready[name]()
        start = time.process_time()
        ready[name]()
        print(json.dumps(time.process_time() - start), flush=True)


class Checkout:
    """The calls of one checkout, timed in a process of its own."""

    def __init__(self, source: str) -> None:
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        path = os.pathsep.join([str(Path(source).resolve()), str(Path(__file__).parent)])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **one_thread, "PYTHONPATH": path},
        )
        self.names: list[str] = self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a checkout failed; what it said stands above")
        return json.loads(line)

    def seconds(self, name: str) -> float:
        """CPU seconds of one call."""
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)
        return float(self._read())

    def end(self) -> None:
        """Let the process go."""
        self.process.communicate()


def compare(old: Checkout, new: Checkout, names: list[str], rounds: int) -> list[tuple[str, float, float, float]]:
    """Name, median milliseconds in both, and the median ratio of each call."""
    found = []
    for name in names:
        for checkout in (old, new):  # compiled and warm before the first round
            checkout.seconds(name)
        pairs = [(old.seconds(name), new.seconds(name)) for _ in range(rounds)]
        ratio = statistics.median(b / a for a, b in pairs)
        before, after = (1000.0 * statistics.median(column) for column in zip(*pairs, strict=True))
        found.append((name, before, after, ratio))
        print(f"{name:45} {before:9.2f} ms {after:9.2f} ms {ratio:6.2f}{' *' if ratio > LIMIT else ''}", flush=True)
    return found


def main() -> int:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description="Time what users call in two checkouts.")
    parser.add_argument("checkouts", nargs="*", help="OLD/src NEW/src")
    parser.add_argument("--only", nargs="*", default=[], help="calls whose name begins so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    if len(options.checkouts) != 2:
        parser.error("name two folders of sources: OLD/src NEW/src")
    old, new = map(Checkout, options.checkouts)
    names = [n for n in old.names if not options.only or n.startswith(tuple(options.only))]
    found = compare(old, new, names, options.rounds)
    old.end()
    new.end()
    slow = [name for name, *_, ratio in found if ratio > LIMIT]
    print(f"{len(slow)} of {len(found)} calls take more than {LIMIT} times as long" + "".join(f"\n  {n}" for n in slow))
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
