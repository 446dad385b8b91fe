"""OnlinePPCA: accuracy and speed beside scikit-learn, and the NAT-oEM paper's protocol; every figure from one run.

Prints Markdown. MNIST is read from $EVERLEARN_DATA (or shared/data beside the repository) and replaced by synthetic
rows of the same size where it is not there. BLAS runs on one thread for both sides.
"""

from __future__ import annotations

import gzip
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _page import parser, printed_page
from sklearn.decomposition import IncrementalPCA
from threadpoolctl import threadpool_limits

from everlearn.errors import DivergenceWarning
from everlearn.ppca import ask, keep, learn
from everlearn.ppca.estimator import OnlinePPCA
from everlearn.ppca.keep import NaturalConstraint, OnChange
from everlearn.ppca.schedules import PowerSchedule
from everlearn.ppca.state import PPCA, factor

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

import naive  # noqa: E402
import nat_oem  # noqa: E402

D, Q = 784, 20


def table(header: list[str], rows: list[list[object]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")
    print()


# -- Fisher information ----------------------------------------------------------------------------


def seconds(function, repeats: int = 5) -> float:
    """Time of the fastest call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def fisher(rng: np.random.Generator) -> None:
    """The fast diagonal beside one trace a parameter."""
    rows = []
    for d, q in ((16, 3), (64, 5), (200, 5)):
        model = PPCA(np.zeros(d), rng.normal(size=(d, q)), 0.5)
        ready = factor(model)
        slow = naive.ppca_fisher(model.W, model.sigma2)
        error = max(np.max(np.abs(a - b) / np.max(np.abs(b))) for a, b in zip(keep.fisher(ready), slow, strict=True))
        naive_s = seconds(lambda model=model: naive.ppca_fisher(model.W, model.sigma2), 1)
        rows.append([d, q, f"{error:.1e}", naive_s / seconds(lambda ready=ready: keep.fisher(ready), 50)])
    print("## Fisher information against the naive traces\n")
    table(["d", "q", "largest relative difference", "times faster"], rows)


# -- the paper's protocol --------------------------------------------------------------------------

WARM = {
    "online EM 0.9 k^-0.9": (PowerSchedule(0.9, 0.9), None),
    "NAT-oEM step": (PowerSchedule(0.9, 0.9), NaturalConstraint()),
    "NAT-oEM class (0.5 k^-0.9)": (PowerSchedule(0.5, 0.9), NaturalConstraint(reference="class")),
    "online EM 1/k": (PowerSchedule(1.0, 1.0), None),
}
PAPER = {"online EM 0.9 k^-0.9": None, "NAT-oEM step": "step", "NAT-oEM class (0.5 k^-0.9)": "class"}
CONSTANT = {
    "no constraint": None,
    "class policy": NaturalConstraint(1.0, "class"),
    "change detector": NaturalConstraint(1.0, OnChange()),
}


def final(model: OnlinePPCA, data: nat_oem.Data, labels: bool) -> float:
    return model.fit(data.X, data.y if labels else None).score(data.test)


def protocol(n_runs: int) -> None:
    """Final test log-likelihoods: warm start and statistics of zero; then a constant rate, class by class."""
    found: dict[tuple[str, ...], list[float]] = {}
    changes = []
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        data = nat_oem.make(rng)
        orders = {"iid": nat_oem.shuffled(data, rng), "seq": data}
        best = ask.log_density(factor(learn.maximum_likelihood(data.X, nat_oem.Q)), data.test).mean()
        found.setdefault(("batch",), []).append(best)
        for order, rows in orders.items():
            for name, (rate, con) in WARM.items():
                for mode in ("plain", "robust"):
                    model = OnlinePPCA(nat_oem.Q, learning_rate=rate, constraint=con, mode=mode)
                    found.setdefault((name, mode, order), []).append(final(model, rows, order == "seq"))
            for name, reference in PAPER.items():
                model = OnlinePPCA.paper(nat_oem.Q, reference=reference, random_state=seed)
                found.setdefault((name, "paper", order), []).append(final(model, rows, order == "seq"))
        for name, con in CONSTANT.items():
            model = OnlinePPCA(nat_oem.Q, learning_rate=0.01, constraint=con)
            found.setdefault((name,), []).append(final(model, data, True) - best)
        changes.append(model.changes_)
    mean = {key: float(np.mean(values)) for key, values in found.items()}
    print(
        f"## The paper's protocol, {n_runs} runs: final test log-likelihood\n\n"
        f"Batch maximum likelihood: {mean['batch',]:.3f}.\n"
    )
    cells = [(mode, order) for mode in ("plain", "robust", "paper") for order in ("iid", "seq")]
    header = ["", *(f"{mode}, {order}" for mode, order in cells)]
    table(header, [[name, *(f"{mean[name, *c]:.3f}" if (name, *c) in mean else "" for c in cells)] for name in WARM])
    free = mean["no constraint",]
    print("## Constant rate 0.01, class by class: distance from batch maximum likelihood\n")
    table(["", "nats", "share of the gap closed"], [[name, mean[name,], 1 - mean[name,] / free] for name in CONSTANT])
    report_changes(changes)


def report_changes(changes: list[np.ndarray]) -> None:
    ends, delays, found = (800, 1600, 2400), [], 0
    for rows in changes:
        hits = [rows[(rows >= end) & (rows < end + 200)] for end in ends]
        delays += [hit[0] - end for hit, end in zip(hits, ends, strict=True) if len(hit)]
        found += sum(len(hit) > 0 for hit in hits)
    other = sum(map(len, changes)) - found
    print(
        f"Change detector: {found} of {3 * len(changes)} changes found within 200 rows, median delay "
        f"{np.median(delays):.0f} rows, {other / len(changes):.2f} other signals a run.\n"
    )


def unit_of_the_data(rng: np.random.Generator) -> None:
    data = nat_oem.make(rng)
    models = [OnlinePPCA(nat_oem.Q, constraint=NaturalConstraint(1.0)).fit(f * data.X) for f in (1.0, 0.01, 100.0)]
    C = models[0].get_covariance()
    errors = [
        np.max(np.abs(m.get_covariance() / f**2 - C)) / np.max(np.abs(C))
        for m, f in zip(models[1:], (0.01, 100.0), strict=True)
    ]
    print("## The unit of the data (proximal form, step policy)\n")
    print(
        f"Covariance of the data times 0.01 and 100, scaled back: differs by {max(errors):.1e} of its largest entry.\n"
    )


# -- accuracy and speed ----------------------------------------------------------------------------


def images(rng: np.random.Generator, n: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Training rows in random order and held-out rows: MNIST, or synthetic where it is not there."""
    folder = Path(os.environ.get("EVERLEARN_DATA", ROOT.parent / "shared" / "data")) / "mnist"
    if folder.is_dir():
        train, test = (read_images(folder / f"{name}-images-idx3-ubyte.gz") for name in ("train", "t10k"))
        return "MNIST", rng.permutation(train)[:n], test
    W = rng.normal(size=(30, D)) * np.linspace(1.0, 0.2, 30)[:, None] / 5
    rows = rng.normal(size=(n + 10_000, 30)) @ W + 0.2 * rng.normal(size=(n + 10_000, D))
    return "synthetic", rows[:n], rows[n:]


def read_images(path: Path) -> np.ndarray:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, D) / 255.0


def accuracy(name: str, X: np.ndarray, test: np.ndarray) -> None:
    """One row at a time, beside IncrementalPCA in batches of 100 and batch PPCA."""
    mu = X.mean(axis=0)
    C = (X - mu).T @ (X - mu) / len(X)
    values, vectors = np.linalg.eigh(C)
    values, U = values[::-1], vectors[:, ::-1][:, :Q]
    s = values[Q:].mean()
    batch = ask.log_density(factor(PPCA(mu, U * np.sqrt(values[:Q] - s), s)), test).mean()

    def errors(components: np.ndarray) -> tuple[float, float]:
        rest = U - components.T @ (components @ U)
        lost = values[:Q].sum() - np.trace(components @ C @ components.T)
        return float(np.linalg.norm(rest) / np.sqrt(Q)), float(lost / np.trace(C))

    peer = errors(IncrementalPCA(Q, batch_size=100).fit(X).components_)
    model = OnlinePPCA(Q)
    for i in range(len(X)):
        model.partial_fit(X[i : i + 1])
    mine = errors(model.components_)
    print(f"## Accuracy on {name}, {len(X)} rows of {D} columns, q = {Q}, one row at a time\n")
    table(
        ["", "OnlinePPCA", "IncrementalPCA (batches of 100)", "ratio"],
        [
            ["subspace error (rms sine of the angles to batch PCA)", mine[0], peer[0], mine[0] / peer[0]],
            ["variance lost against batch PCA", mine[1], peer[1], mine[1] / peer[1]],
        ],
    )
    found = model.score(test)
    print(
        f"Held-out log-likelihood: {found:.2f}, batch PPCA {batch:.2f}: {abs(found - batch) / abs(batch):.2%} away.\n"
    )


def speed(X: np.ndarray, rounds: int) -> None:
    """Microseconds a row; the contenders take turns, and each counts with its fastest turn."""
    ready = {
        "unconstrained": OnlinePPCA(Q),
        "class policy": OnlinePPCA(Q, constraint=NaturalConstraint(1.0, "class")),
        "step policy": OnlinePPCA(Q, constraint=NaturalConstraint()),
        "change detector": OnlinePPCA(Q, constraint=NaturalConstraint(1.0, OnChange())),
        "unconstrained, 20 % gaps": OnlinePPCA(Q),
    }
    for model in ready.values():
        model.partial_fit(X[:200])
    ready["class policy"].end_class().partial_fit(X[200:201])
    gaps = X.copy()
    gaps[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    peers = {1: IncrementalPCA(Q).partial_fit(X[:200]), 100: IncrementalPCA(Q).partial_fit(X[:200])}
    times: dict[str, float] = {}

    def turn(name: str, learn, rows: np.ndarray, size: int) -> None:
        start = time.perf_counter()
        for i in range(0, len(rows), size):
            learn(rows[i : i + size])
        times[name] = min(times.get(name, np.inf), (time.perf_counter() - start) / len(rows) * 1e6)

    for i in range(rounds):
        start = 200 + 100 * (i % 20)
        rows = X[start : start + 100]
        for name, model in ready.items():
            turn(f"OnlinePPCA, {name}", model.partial_fit, (gaps if "gaps" in name else X)[start : start + 100], 100)
        turn("OnlinePPCA, unconstrained, one row at a time", ready["unconstrained"].partial_fit, rows, 1)
        turn("IncrementalPCA, one row at a time", peers[1].partial_fit, rows[:5], 1)
        turn("IncrementalPCA, batches of 100", peers[100].partial_fit, rows, 100)
    base = times["OnlinePPCA, unconstrained"]
    print(f"## Speed at d = {D}, q = {Q}\n")
    print(f"The contenders take turns; each counts with its fastest of {rounds} turns.\n")
    table(["", "microseconds a row", "times unconstrained"], [[name, t, t / base] for name, t in times.items()])
    single, hundred = times["IncrementalPCA, one row at a time"], times["IncrementalPCA, batches of 100"]
    alone = times["OnlinePPCA, unconstrained, one row at a time"]
    print(
        f"Rows a second against IncrementalPCA fed one row at a time: {single / base:.1f} times in batches, "
        f"{single / alone:.1f} times one row at a time; against IncrementalPCA fed 100 rows: {hundred / base:.2f} and "
        f"{hundred / alone:.2f} times.\n"
    )


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--runs", type=int, default=20, help="runs of the paper's protocol")
    made.add_argument("--rows", type=int, default=60_000, help="rows of the accuracy comparison")
    made.add_argument("--rounds", type=int, default=100, help="turns of the speed comparison")
    arguments = made.parse_args()
    if arguments.quick:
        arguments.runs, arguments.rows, arguments.rounds = 1, 3000, 2
    warnings.simplefilter("ignore", DivergenceWarning)
    rng = np.random.default_rng(0)
    with printed_page("ppca", quick=arguments.quick), threadpool_limits(1):
        print("# OnlinePPCA\n\nOne BLAS thread.\n")
        name, X, test = images(rng, arguments.rows)
        speed(X[:2400], arguments.rounds)
        accuracy(name, X, test)
        fisher(rng)
        unit_of_the_data(rng)
        protocol(arguments.runs)


if __name__ == "__main__":
    main()
