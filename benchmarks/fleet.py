"""Sixteen sensors learn a sixteenth of a stream each; their merged model beside one that saw it all.

    python benchmarks/fleet.py [--quick]

The merged model is reduced to the number of components that the single pass answers from. Real data come from
scikit-learn and, where $EVERLEARN_DATA or ../shared/data is at hand, from its streams.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _page import parser, write_page
from sklearn.datasets import load_breast_cancer, load_digits

import everlearn
from everlearn import IncrementalGaussianMixture

ROOT = Path(__file__).parents[1]
STREAMS = Path(os.environ.get("EVERLEARN_DATA", ROOT.parent / "shared" / "data")) / "streams"
SHARDS = 16
SEEDS = (0, 1, 2)


def synthetic(rng: np.random.Generator) -> np.ndarray:
    """Twelve Gaussians in eight columns, 20,000 rows."""
    centres, shapes = rng.normal(0, 4, (12, 8)), rng.normal(0, 0.5, (12, 8, 8))
    k = rng.integers(12, size=20_000)
    return centres[k] + np.einsum("nij,nj->ni", shapes[k], rng.normal(size=(20_000, 8)))


def data_sets() -> Iterator[tuple[str, np.ndarray]]:
    """Names and rows."""
    yield "synthetic, 12 Gaussians", synthetic(np.random.default_rng(0))
    robot = STREAMS / "wall_robot" / "sensor_readings_24.csv"
    if robot.is_file():
        yield "wall-following robot", np.genfromtxt(robot, delimiter=",", skip_header=1)[:, :24]
    machine = STREAMS / "nab" / "machine_temperature_system_failure.csv"
    if machine.is_file():
        values = np.genfromtxt(machine, delimiter=",", skip_header=1)[:, 1]
        yield "machine temperature, 4 lags", np.lib.stride_tricks.sliding_window_view(values, 4).copy()
    yield "digits", load_digits().data
    yield "breast cancer", load_breast_cancer().data


def compare(X: np.ndarray, seed: int, **parameters: object) -> tuple[float, float, int, int]:
    """Held-out log-likelihood of the single pass and of the merged shards, and the components of each."""
    rows = np.random.default_rng(seed).permutation(X)
    train, test = np.split(rows, [int(0.8 * len(rows))])
    single = IncrementalGaussianMixture(**parameters).partial_fit(train)
    K = single.to_sklearn().n_components
    shards = [IncrementalGaussianMixture(**parameters).partial_fit(part) for part in np.array_split(train, SHARDS)]
    merged = everlearn.merge(shards, n_components=K)
    return single.score(test), merged.score(test), K, merged.to_sklearn().n_components


def table(seeds: tuple[int, ...]) -> str:
    """Means over seeds as Markdown."""
    lines = [
        "| data | rows x columns | components, single / merged | single pass | merged | difference |",
        "|---|---|---|---|---|---|",
    ]
    for name, X in data_sets():
        runs = np.array([compare(X, seed) for seed in seeds])
        single, merged, K, M = runs.mean(axis=0)
        gaps = 100.0 * (runs[:, 1] - runs[:, 0]) / np.abs(runs[:, 0])
        shape = f"{len(X)} x {X.shape[1]}"
        gap = f"**{gaps.mean():+.1f} %** ({gaps.min():+.1f} to {gaps.max():+.1f})"
        cells = [name, shape, f"{K:.0f} / {M:.0f}", f"{single:.2f}", f"{merged:.2f}", gap]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Measure and write."""
    options = parser(__doc__).parse_args()
    seeds = SEEDS[:1] if options.quick else SEEDS
    text = f"""# A fleet of {SHARDS}, merged

Mean held-out log-likelihood of a row, in nats: one model that saw the whole stream, and {SHARDS} models that saw a
{SHARDS}th of its rows each, merged and reduced to as many components as the single pass answers from. Shuffled, 80 %
learned, 20 % held out; means over {len(seeds)} shuffles, the difference in percent of the single pass (positive: the
merged model is better), with its range.

Every model keeps a sample of its rows; merging takes the rows of highest priority of all samples and searches the
structure of the components side by side on them. Models that are still warming up merge as one pass over their rows.

{table(seeds)}
"""
    write_page("fleet", text, quick=options.quick)


if __name__ == "__main__":
    main()
