"""A large Parquet data set on a Dask cluster of this machine, beside one process.

    OPENBLAS_NUM_THREADS=1 python benchmarks/scale.py [--rows 20000000] [--folder big] [--quick]

The data are 12 Gaussians in 8 columns; the folder keeps them for another run.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _page import parser, write_page

import distributed
from everlearn import IncrementalGaussianMixture
from everlearn.distributed import Learned, fit

OUTPUT = Path(__file__).parent / "results" / "scale.md"
COLUMNS, GROUPS, FILES = 8, 12, 20
CORES = os.cpu_count() or 2
HELD_OUT = 100_000


def world() -> tuple[np.ndarray, np.ndarray]:
    """Means and shapes of the groups."""
    rng = np.random.default_rng(0)
    return rng.normal(0, 4, (GROUPS, COLUMNS)), rng.normal(0, 0.5, (GROUPS, COLUMNS, COLUMNS))


def rows_of(rng: np.random.Generator, n: int) -> np.ndarray:
    centres, shapes = world()
    k = rng.integers(GROUPS, size=n)
    return centres[k] + np.einsum("nij,nj->ni", shapes[k], rng.normal(size=(n, COLUMNS)))


def write(folder: Path, n_rows: int) -> int:
    """The data set in files of equal size, unless it is there; returns its bytes."""
    folder.mkdir(exist_ok=True)
    for i in range(FILES):
        path = folder / f"part-{i:02}-of-{n_rows}.parquet"
        if not path.exists():
            X = rows_of(np.random.default_rng(i), n_rows // FILES)
            pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(COLUMNS)}), path, row_group_size=250_000)
    return sum(path.stat().st_size for path in folder.glob(f"*-of-{n_rows}.parquet"))


def sequential(files: list[Path]) -> tuple[IncrementalGaussianMixture, float]:
    """One model, one pass over all files; what a user would write."""
    start = time.perf_counter()
    model = IncrementalGaussianMixture()
    for path in files:
        for batch in pq.ParquetFile(path).iter_batches(16_384, use_threads=False):
            model.partial_fit(np.column_stack([column.to_numpy() for column in batch.columns]))
    return model, time.perf_counter() - start


def on_a_cluster(source: str, workers: int) -> tuple[Learned, float]:
    """The same on worker processes that are started and have compiled beforehand."""
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": "2GiB"}
    with distributed.LocalCluster(n_workers=workers, **options) as cluster, distributed.Client(cluster) as client:
        client.run(warm_up)
        start = time.perf_counter()
        learned = fit(IncrementalGaussianMixture(), source, engine=client)
        return learned, time.perf_counter() - start


def warm_up() -> None:
    IncrementalGaussianMixture().partial_fit(rows_of(np.random.default_rng(0), 1000))


def large(folder: Path, n_rows: int, n_judged: int) -> str:
    """Table of one process, one worker and two workers."""
    size = write(folder, n_rows)
    source = str(folder / f"*-of-{n_rows}.parquet")
    held_out = rows_of(np.random.default_rng(1000), HELD_OUT)
    warm_up()
    model, alone = sequential(sorted(folder.glob(f"*-of-{n_rows}.parquet")))
    base = model.score(held_out)
    lines = [
        "| | seconds | rows a second | times one process | peak memory of a worker | held-out log-likelihood |",
        "|---|---|---|---|---|---|",
        f"| one process, one pass | {alone:.1f} | {n_rows / alone:,.0f} | 1 | | {base:.4f} |",
    ]
    for workers in range(2, CORES + 1, 2):
        (merged, report), seconds = on_a_cluster(source, workers)
        score, memory = merged.score(held_out), report.peak_memory / 2**20
        gap = 100.0 * (score - base) / abs(base)
        cells = [f"LocalCluster({workers})", f"{seconds:.1f}", f"{n_rows / seconds:,.0f}", f"**{alone / seconds:.2f}**"]
        lines.append(f"| {' | '.join([*cells, f'{memory:.0f} MiB', f'{score:.4f} (**{gap:+.2f} %**)'])} |")
        print(lines[-1], flush=True)
    table = "\n".join(lines)
    best = np.mean([density(row) for row in held_out[:n_judged]])
    return f"""## {n_rows:,} rows x {COLUMNS} columns

{FILES} Parquet files, {size / 1e9:.2f} GB; {GROUPS} Gaussians; default settings. The partitions are the files
({len(report.partitions)} of {report.partitions[0].rows:,} rows). The data's own density gives {best:.4f} nats a row.

{table}
"""


def density(row: np.ndarray) -> float:
    """Log-density of the world itself."""
    centres, shapes = world()
    terms = []
    for centre, A in zip(centres, shapes, strict=True):
        z = np.linalg.solve(A, row - centre)
        terms.append(-0.5 * z @ z - np.linalg.slogdet(A)[1] - 0.5 * COLUMNS * np.log(2 * np.pi))
    return float(np.logaddexp.reduce(terms) - np.log(GROUPS))


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rows", type=int, default=20_000_000)
    made.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "everlearn-scale")
    made.add_argument("--write-only", action="store_true", help="make the data set and stop")
    options = made.parse_args()
    if options.quick:
        options.rows = 40_000
    if options.write_only:
        write(options.folder, options.rows)
        return
    table = large(options.folder, options.rows, 500 if options.quick else 20_000)
    text = f"# A cluster\n\n{CORES} cores, one BLAS thread a process.\n\n{table}"
    write_page("scale", text, quick=options.quick)


if __name__ == "__main__":
    main()
