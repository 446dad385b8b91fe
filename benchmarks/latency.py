"""Latency of one row at a time: learn it, then ask about it, from the first row on.

    python benchmarks/latency.py [--quick]

Every row is learned by `partial_fit` and then scored, warm-up and searches included. Times are the processor time of
this thread in milliseconds, and below them the time on the wall, which on a busy machine holds the waiting for others.
The stream has five groups; the last column is the row, counted from zero, that took longest.
"""

import time

import numpy as np
from _page import parser, write_page

import everlearn

# Columns and rows of each table.
SIZES = ((8, 20_000), (64, 20_000), (512, 300))
ROWS_QUICK = 400
# Rows of the stream with which each estimator is warmed, and the seconds after which that ends.
WARM_ROWS, WARM_SECONDS = 600, 10.0


def stream(n, D, seed=0):
    """Rows of five groups, as single-row arrays, and their group, which is also the number to predict."""
    rng = np.random.default_rng(seed)
    label = rng.integers(5, size=n)
    X = 6.0 * rng.normal(size=(5, D))[label] + rng.normal(size=(n, D))
    return np.split(X, n), np.split(label, n)


def estimators(D):
    """What is timed: the estimator, whether it takes labels, and the question."""
    return {
        "IncrementalGaussianMixture": (everlearn.IncrementalGaussianMixture(), False, "score_samples"),
        "IncrementalGaussianMixture, forgetting=0.999": (
            everlearn.IncrementalGaussianMixture(forgetting=0.999), False, "score_samples",
        ),
        "FIGMN": (everlearn.FIGMN(), False, "score_samples"),
        "IncrementalGaussianMixtureClassifier": (
            everlearn.IncrementalGaussianMixtureClassifier(), True, "predict_proba",
        ),
        "FIGMNClassifier": (everlearn.FIGMNClassifier(), True, "predict_proba"),
        "IncrementalGaussianMixtureRegressor": (everlearn.IncrementalGaussianMixtureRegressor(), True, "predict"),
        "AnomalyDetector": (everlearn.AnomalyDetector(), False, "p_value"),
        "OnlinePPCA": (everlearn.OnlinePPCA(n_components=min(3, D - 1)), False, "score_samples"),
        "VariationalPPCA": (everlearn.VariationalPPCA(), False, "score_samples"),
    }  # fmt: skip


def measured(model, rows, labels, question, limit=np.inf):
    """Processor and wall time of each row, learned and asked about; (n, 2) seconds. Ends after `limit` seconds."""
    times, end = np.empty((len(rows), 2)), time.perf_counter() + limit
    for t, row in enumerate(rows):
        start = time.thread_time(), time.perf_counter()
        if labels is None:
            model.partial_fit(row)
        else:
            model.partial_fit(row, labels[t])
        getattr(model, question)(row)
        times[t] = time.thread_time() - start[0], time.perf_counter() - start[1]
        if time.perf_counter() > end:
            break
    return times[: t + 1]


def warm(D):
    """Compile, or load what has been compiled, before anything is timed."""
    rows, labels = stream(WARM_ROWS, D, seed=1)
    for model, takes_labels, question in estimators(D).values():
        measured(model, rows, labels if takes_labels else None, question, WARM_SECONDS)


def table(D, n):
    """Median, 99th percentile and worst row for every estimator."""
    lines = [
        "| estimator | clock | p50, ms | p99, ms | worst, ms | of row |",
        "|---|---|---|---|---|---|",
    ]
    rows, labels = stream(n, D)
    for name, (model, takes_labels, question) in estimators(D).items():
        times = 1e3 * measured(model, rows, labels if takes_labels else None, question)
        for clock, values in zip(("processor", "wall"), times.T, strict=True):
            p50, p99 = np.quantile(values, [0.5, 0.99])
            worst = int(values.argmax())
            lines.append(f"| {name} | {clock} | {p50:.3f} | {p99:.3f} | {values[worst]:.1f} | {worst} |")
        print(*lines[-2:], sep="\n", flush=True)
    return lines


def main():
    arguments = parser(__doc__).parse_args()
    body = [f"# Latency of one row\n\n{__doc__.split(chr(10) * 2, 2)[2]}"]
    for D, n in SIZES:
        n = ROWS_QUICK if arguments.quick else n
        warm(D)
        body += [f"## {D} columns, {n:,} rows\n", *table(D, n), ""]
    write_page("latency", "\n".join(body), quick=arguments.quick)


if __name__ == "__main__":
    main()
