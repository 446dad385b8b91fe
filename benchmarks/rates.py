"""Rows a second of one core, bytes of a model, models merged a second: what docs/scale.md counts with.

    OPENBLAS_NUM_THREADS=1 python benchmarks/rates.py

The table goes to benchmarks/results/rates.md.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

import everlearn
from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.persistence.model_file import dumps

OUTPUT = Path(__file__).parent / "results" / "rates.md"
SHARDS = 16
MODELS: list[tuple[str, Any, int, int]] = [
    ("mixture", IncrementalGaussianMixture(), 4, 100_000),
    ("mixture", IncrementalGaussianMixture(), 8, 100_000),
    ("mixture", IncrementalGaussianMixture(), 100, 40_000),
    ("diagonal mixture", IncrementalGaussianMixture(covariance="diag"), 100, 40_000),
    ("PPCA, 10 axes", OnlinePPCA(10), 100, 100_000),
]


def rows_of(n: int, D: int) -> np.ndarray:
    """Twelve Gaussians with ten hidden axes."""
    rng = np.random.default_rng(0)
    centres, axes = rng.normal(0, 3, (12, D)), rng.normal(0, 1, (12, min(D, 10), D)) / np.sqrt(D)
    k = rng.integers(12, size=n)
    hidden = rng.normal(size=(n, axes.shape[1]))
    return centres[k] + np.einsum("nh,nhd->nd", hidden, axes[k]) + rng.normal(0, 0.3, (n, D))


def measure(name: str, model: Any, D: int, n: int) -> list[str]:
    """Cells of the table for one model."""
    X = rows_of(n, D)
    model.copy().partial_fit(X[:2000]).partial_fit(X[2000:4000])
    whole, single = model.copy().partial_fit(X[: n // 10]), X[:2000, :]
    start = time.process_time()
    whole.partial_fit(X[n // 10 :])
    rate = (n - n // 10) / (time.process_time() - start)
    start = time.process_time()
    for row in single:
        whole.partial_fit(row[None])
    alone = (time.process_time() - start) / len(single)
    parts = [model.copy().partial_fit(part) for part in np.array_split(X[:32_000], SHARDS)]
    start = time.process_time()
    merged = everlearn.merge(parts)
    merging = (time.process_time() - start) / SHARDS
    size = len(dumps(merged))
    K = getattr(merged, "to_sklearn", lambda: None)()
    components = str(K.n_components) if K is not None else ""
    return [
        name,
        str(D),
        components,
        f"{rate:,.0f}",
        f"{1e6 * alone:.0f}",
        f"{size / 1024:,.0f}",
        f"{1e3 * merging:.0f}",
    ]


def main() -> None:
    """Measure and write."""
    head = [
        "model",
        "columns",
        "components",
        "rows a second",
        "us for a single row",
        "KiB of the model",
        "ms to merge it",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for item in MODELS:
        lines.append(f"| {' | '.join(measure(*item))} |")
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    text = f"""# Rates of one core

`OPENBLAS_NUM_THREADS=1 python benchmarks/rates.py`, CPU time, Python {platform.python_version()},
{platform.machine()}, {os.cpu_count()} cores, of which one works. Twelve Gaussians; rows in batches, after a tenth of
them was learned; {SHARDS} models of 2,000 rows each merged.

{table}
"""
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
