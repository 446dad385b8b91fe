"""Rows a second of one core, bytes of a model, models merged a second: what docs/scale.md counts with.

OPENBLAS_NUM_THREADS=1 python benchmarks/rates.py [--quick]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _page import parser, write_page

import everlearn
from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.persistence.model_file import dumps

SHARDS = 16
MODELS: list[tuple[str, Any, int, int]] = [
    ("mixture", IncrementalGaussianMixture(), 4, 100_000),
    ("mixture", IncrementalGaussianMixture(), 8, 100_000),
    ("mixture", IncrementalGaussianMixture(), 100, 40_000),
    ("diagonal mixture", IncrementalGaussianMixture(covariance_type="diag"), 100, 40_000),
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
    options = parser(__doc__).parse_args()
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
    for name, model, D, n in MODELS:
        lines.append(f"| {' | '.join(measure(name, model, D, n // 10 if options.quick else n))} |")
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    text = f"""# Rates of one core

CPU time of one core. Twelve Gaussians; rows in batches, after a tenth of them was learned; {SHARDS} models of 2,000
rows each merged.

{table}
"""
    write_page("rates", text, quick=options.quick)


if __name__ == "__main__":
    main()
