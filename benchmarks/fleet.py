"""A fleet: thousands of models merged, one model a group, and the same fit on three engines.

    python benchmarks/fleet.py [merge groups kills engines sensors bare] [--quick] [--groups 100000]
        [--devices 1000] [--kills 20] [--shuffles 20]

Merging: each device learns 600 rows of four columns, of three of the twelve Gaussians that the world has, and is
saved; `everlearn merge` then merges the folder in a process of its own. The large fleet has each file ten times, as
learning takes much longer than merging. Beside it stands one model that learned all rows in one pass.

Groups: `everlearn learn --by device`, in a process of its own, on a table that is sorted by device, and on one that has
a row of each device in turn, where every row loads a model and writes it again.

Kills: `everlearn learn --by device` is killed (SIGKILL) again and again, and goes on with its state file each time; in
the end every model must be the one that learned its rows without a kill.

Engines: the same Parquet files on processes, on a Dask cluster and on Spark, if it is installed.

Sixteen sensors: a sixteenth of a stream each, merged. Beside it stand a single pass, and another one over the same rows
in another order. Real data come from scikit-learn and, where $EVERLEARN_DATA or ../shared/data is at hand, from its
streams.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _page import others_at_work, parser, write_page_of_parts, write_part
from sklearn.datasets import load_breast_cancer, load_digits

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.streams.store.store import Store

ROOT = Path(__file__).parents[1]
STREAMS = Path(os.environ.get("EVERLEARN_DATA", ROOT.parent / "shared" / "data")) / "streams"
SHARDS = 16
ROBOT, DIGITS = "wall-following robot", "digits"
# Shuffles of a set, and times as many of those whose score moves most with the order of the rows: by 0.8 nats of five,
# and by three of eighty. With fewer, chance alone is more than one percent.
SHUFFLES, TIMES = 20, {ROBOT: 30, DIGITS: 10}


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
        yield ROBOT, np.genfromtxt(robot, delimiter=",", skip_header=1)[:, :24]
    machine = STREAMS / "nab" / "machine_temperature_system_failure.csv"
    if machine.is_file():
        values = np.genfromtxt(machine, delimiter=",", skip_header=1)[:, 1]
        yield "machine temperature, 4 lags", np.lib.stride_tricks.sliding_window_view(values, 4).copy()
    yield DIGITS, load_digits().data
    yield "breast cancer", load_breast_cancer().data


def compare(X: np.ndarray, seed: int, **parameters: object) -> tuple[float, float, float, int, int]:
    """Held-out log-likelihood of a pass, of one in another order, of merged shards; components of first and last."""
    rng = np.random.default_rng(seed)
    train, test = np.split(rng.permutation(X), [int(0.8 * len(X))])
    single = IncrementalGaussianMixture(**parameters).partial_fit(train)
    other = IncrementalGaussianMixture(**parameters).partial_fit(rng.permutation(train))
    shards = [IncrementalGaussianMixture(**parameters).partial_fit(part) for part in np.array_split(train, SHARDS)]
    merged = everlearn.merge(shards)
    return *(model.score(test) for model in (single, other, merged)), single.n_components_, merged.n_components_


class Difference(NamedTuple):
    """By how much scores are above others, with its standard error: in nats a row, and in percent of the others."""

    nats: float
    nats_error: float
    percent: float
    percent_error: float

    def cell(self) -> str:
        """As the table has it."""
        return f"{self.nats:+z.3f} ± {self.nats_error:.3f} | **{self.percent:+z.2f} %** ± {self.percent_error:.2f}"


def difference(scores: np.ndarray, others: np.ndarray) -> Difference:
    """Mean of the paired differences, and the same in percent of the mean of the others.

    Not the mean of each difference in percent: for scores of one law that is 100 (1 - E|a| E[1/|a|]), which is negative
    (Jensen's inequality), and not small where scores vary. Of the ratio, the standard error is that of its
    linearisation, the residuals of differences in proportion to the others.
    """
    gaps, middle = scores - others, others.mean()
    ratio = gaps.mean() / middle
    errors = [values.std(ddof=1) / np.sqrt(len(values)) for values in (gaps, gaps - ratio * others)]
    return Difference(gaps.mean(), errors[0], 100.0 * ratio * np.sign(middle), 100.0 * errors[1] / abs(middle))


def table(shuffles: int, **parameters: object) -> str:
    """Means over shuffles as Markdown."""
    lines = [
        "| data | rows x columns | shuffles | components, single / merged | single pass | merged | merged less single "
        "| in percent | another order less single | in percent |",
        "|---" * 10 + "|",
    ]
    for name, X in data_sets():
        n = shuffles * TIMES.get(name, 1)
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            runs = np.array(list(pool.map(partial(compare, X, **parameters), range(n))))
        # Two passes are a reference that varies less than one.
        first, other, merged, both = *runs[:, :3].T, runs[:, :2].mean(axis=1)
        K, M = runs[:, 3:].mean(axis=0)
        cells = [
            name, f"{len(X)} x {X.shape[1]}", f"{n}", f"{K:.0f} / {M:.0f}", f"{both.mean():.2f}",
            f"{merged.mean():.2f}", difference(merged, both).cell(), difference(other, first).cell(),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


# -- many devices ----------------------------------------------------------------------------------

ROWS, COLUMNS = 600, ["a", "b", "c", "d"]


class Run(NamedTuple):
    """What a command took: seconds of the clock and of the processor, and its peak of memory."""

    seconds: float
    cpu: float
    peak: int


# Runs a command and prints what it took. A small process in between: the peak of a new one begins with that of the one
# that starts it, and this one holds the rows of a fleet.
BETWEEN = """
import os, subprocess, sys
_, status, used = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
"""


def run(*arguments: object) -> Run:
    """Run the program in a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "everlearn", *map(str, arguments), "--quiet"]
    told = subprocess.run([sys.executable, "-c", BETWEEN, *command], stdout=subprocess.PIPE, check=True, text=True)
    status, cpu, peak = told.stdout.split()[-3:]
    if status != "0":
        raise SystemExit(f"everlearn {arguments[0]} ended with {status}")
    return Run(time.perf_counter() - start, float(cpu), int(peak))


class World:
    """Twelve Gaussians in four columns."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.centres, self.shapes = rng.normal(0, 4, (12, 4)), rng.normal(0, 0.5, (12, 4, 4))

    def rows(self, rng: np.random.Generator, kinds: np.ndarray, n: int) -> np.ndarray:
        """Rows of some of the Gaussians."""
        k = rng.choice(kinds, n)
        return self.centres[k] + np.einsum("nij,nj->ni", self.shapes[k], rng.normal(size=(n, 4)))


def learn_devices(folder: Path, world: World, n: int, **parameters: Any) -> np.ndarray:
    """A model file of each device; returns the rows of all of them."""
    folder.mkdir()
    rng, rows = np.random.default_rng(1), []
    for i in range(n):
        rows.append(world.rows(rng, rng.choice(12, 3, replace=False), ROWS))
        model = IncrementalGaussianMixture(random_state=0, **parameters)
        model.partial_fit(pd.DataFrame(rows[-1], columns=COLUMNS)).save(folder / f"device-{i:05d}.evl")
    return np.concatenate(rows)


def merging(folder: Path, n: int) -> str:
    """Table of merges of n files, once and ten times, with the score beside one pass."""
    world = World()
    X = learn_devices(folder / "devices", world, n)
    test = pd.DataFrame(world.rows(np.random.default_rng(2), np.arange(12), 20_000), columns=COLUMNS)
    single = IncrementalGaussianMixture(random_state=0).partial_fit(pd.DataFrame(X, columns=COLUMNS))
    (folder / "large").mkdir()
    for path in (folder / "devices").iterdir():
        for copy in range(10):
            shutil.copy(path, folder / "large" / f"{path.stem}-{copy}.evl")
    size = np.mean([path.stat().st_size for path in (folder / "devices").iterdir()])
    bare = folder / "bare"
    learn_devices(bare, world, 20, reservoir=0)
    small = np.mean([path.stat().st_size for path in bare.iterdir()])
    lines = [
        "| models | files | clock | processor | peak memory | merged file | components | held-out log-likelihood |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, many in (("devices", n), ("large", 10 * n)):
        took = run("merge", folder / name, "--output", folder / f"{name}.evl")
        merged = everlearn.load(folder / f"{name}.evl")
        cells = [
            f"{many:,}", f"{many * size / 1e6:,.0f} MB", f"{took.seconds:.1f} s", f"{took.cpu:.1f} s",
            f"{took.peak / 1e6:,.0f} MB", f"{(folder / f'{name}.evl').stat().st_size / 1e3:,.0f} kB",
            f"{merged.n_components_}", f"{merged.score(test):.4f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines.append(f"| one pass over the {len(X):,} rows | | | | | | {single.n_components_} | {single.score(test):.4f} |")
    print(lines[-1], flush=True)
    lines += ["", f"A device's file has {size:,.0f} bytes, and {small:,.0f} bytes with `reservoir=0`."]
    return "\n".join(lines)


def table_of_groups(path: Path, n: int, rows: int, *, mixed: bool) -> pd.DataFrame:
    """A Parquet file of some rows of each of n devices, one device after the other or in turn."""
    rng = np.random.default_rng(3)
    device = np.concatenate([rng.permutation(n) for _ in range(rows)]) if mixed else np.repeat(np.arange(n), rows)
    X = rng.normal(size=(n * rows, 4)) + (device % 7)[:, None]
    frame = pd.DataFrame(X, columns=COLUMNS).assign(device=[f"device-{i:06d}" for i in device])
    frame.to_parquet(path)
    return frame


def grouping(folder: Path, n: int) -> str:
    """Table of one model a group."""
    lines = [
        "| table | groups | rows | clock | processor | processor a group | state file | bytes a group | peak memory |",
        "|---|" + "---:|" * 8,
    ]
    for name, groups, rows, mixed in (("sorted by device", n, 10, False), ("a row of each in turn", n // 20, 5, True)):
        path, state = folder / "groups.parquet", folder / f"groups-{mixed}.db"
        table_of_groups(path, groups, rows, mixed=mixed)
        took = run("learn", path, "--by", "device", "--state", state)
        with Store(state) as store:
            learned = store.sums().get("rows", 0)
        if learned != groups * rows:
            raise SystemExit(f"{groups * rows} rows were given and {learned} learned")
        size = state.stat().st_size
        cells = [
            name, f"{groups:,}", f"{groups * rows:,}", f"{took.seconds:.0f} s", f"{took.cpu:.0f} s",
            f"{1e3 * took.cpu / groups:.1f} ms", f"{size / 1e6:,.0f} MB", f"{size / groups:,.0f}",
            f"{took.peak / 1e6:,.0f} MB",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def through_kills(folder: Path, n: int, rows: int, kills: int) -> str:
    """Table of what became of the rows of n devices while the program was killed."""
    path, state, calm = folder / "killed.parquet", folder / "killed.db", folder / "calm.db"
    frame = table_of_groups(path, n, rows, mixed=True)
    run("learn", path, "--by", "device", "--state", calm)
    command = [sys.executable, "-m", "everlearn", "learn", path, "--by", "device", "--state", state, "--quiet"]
    rng, done = np.random.default_rng(5), 0
    with Store(state) as store, Store(calm) as expected:
        while True:
            process, before = subprocess.Popen(list(map(str, command))), store.sums().get("rows", 0)
            # A kill after a commit, so that the run gets somewhere, and up to a second later: anywhere in a step.
            while process.poll() is None and (done == kills or store.sums().get("rows", 0) == before):
                time.sleep(0.02)
            if process.poll() is not None:
                break
            time.sleep(rng.uniform(0.0, 1.0))
            process.kill()
            done += process.wait() < 0
        if process.returncode:
            raise SystemExit(f"everlearn learn ended with {process.returncode}")
        names = [entry.name for entry in expected.models()]
        learned = sum(store.load(name).n_samples_seen_ for name in names)
        same = sum(store.model_bytes(name) == expected.model_bytes(name) for name in names)
    cells = [
        f"{n:,}", f"{len(frame):,}", f"{done}", f"{learned:,}", f"{max(0, len(frame) - learned)}",
        f"{max(0, learned - len(frame))}", f"{same:,} of {n:,}",
    ]  # fmt: skip
    print(cells, flush=True)
    head = "| groups | rows | kills | learned | lost | doubled | models equal, bit for bit, to those without a kill |"
    return f"{head}\n|{'---:|' * 7}\n| {' | '.join(cells)} |"


def engines(folder: Path) -> str:
    """Table of the same fit on each engine, with the digest of the model."""
    world, rng = World(), np.random.default_rng(4)
    days = folder / "days"
    days.mkdir()
    for i in range(8):
        pd.DataFrame(world.rows(rng, np.arange(12), 5000), columns=COLUMNS).to_parquet(days / f"{i}.parquet")
    lines = ["| engine | clock | digest of the model |", "|---|---|---|"]
    for name, fitted in (("one process", _alone), ("Dask, 2 workers", _dask), ("Spark, local[2]", _spark)):
        found = fitted(days)
        cells = (name, "not installed", "") if found is None else (name, f"{found[0]:.1f} s", found[1])
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def _timed(days: Path, **options: Any) -> tuple[float, str]:
    start = time.perf_counter()
    model, _ = everlearn.distributed.fit(IncrementalGaussianMixture(), days, **options)
    return time.perf_counter() - start, hashlib.sha256(everlearn.dumps(model)).hexdigest()[:16]


def _alone(days: Path) -> tuple[float, str]:
    return _timed(days, engine="threading", workers=1)


def _dask(days: Path) -> tuple[float, str]:
    from distributed import Client, LocalCluster

    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**workers) as cluster, Client(cluster) as client:
        return _timed(days, engine=client)


def _spark(days: Path) -> tuple[float, str] | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    try:
        return _timed(days, engine=session)
    finally:
        session.stop()


# -- the page --------------------------------------------------------------------------------------


def merge_part(folder: Path, options: argparse.Namespace) -> str:
    """Thousands of models."""
    return f"""## Thousands of models

`everlearn merge FOLDER`, start of the program and reading of the files included. Each device has learned {ROWS} rows of
four columns; the larger fleet has each file ten times. Held out are 20,000 rows of the whole world, of which no device
has seen more than a quarter.

{merging(folder, options.devices)}

Files are read one after the other, and at most 1,024 models of each level of the tree are in memory.
"""


def groups_part(folder: Path, options: argparse.Namespace) -> str:
    """One model a group."""
    return f"""## One model a group

`everlearn learn TABLE --by device --state FILE`, start of the program included. Models of so few rows are in their
warm-up, and hold these rows. At most 1,000 models stay in memory between two steps, all others are in the state file.

{grouping(folder, options.groups)}
"""


def kills_part(folder: Path, options: argparse.Namespace) -> str:
    """One model a group, through kills."""
    return f"""## Through kills

`everlearn learn --by device`, a row of each device in turn, as many as an hour has at three a second, killed (SIGKILL)
at random moments after a commit, and started again with the same state file.

{through_kills(folder, 20, 1500 if options.quick else 10_800, options.kills)}
"""


def engines_part(folder: Path, options: argparse.Namespace) -> str:
    """The same fit on each engine."""
    return f"""## Engines

Eight Parquet files of 5,000 rows; the cluster and the session are there before the clock starts, kernels are not.

{engines(folder)}
"""


def sensors_part(folder: Path, options: argparse.Namespace) -> str:
    """Few models of few rows."""
    shuffles = 2 if options.quick else options.shuffles
    return f"""## Sixteen sensors

Mean held-out log-likelihood of a row, in nats: one model that saw the whole stream, and {SHARDS} models that saw a
{SHARDS}th of its rows each, merged. Shuffled, 80 % learned, 20 % held out. Each shuffle has two single passes, in two
orders: the merged model is compared with the mean of both; the last two columns compare the second with the first,
which is what chance does. Differences are means over the shuffles with their standard error (±), in nats a row and in
percent of the mean score that they are compared with (positive: better).

Every model keeps a sample of its rows; merging takes the rows of highest priority of all samples and searches the
structure of the components side by side on them. Where the samples together hold every row, and these are at most eight
samples' worth, as here, they are learned anew in one pass, in an order of their own: a merged model is then in law that
of another order, and the true difference is zero.

{table(shuffles)}
"""


def bare_part(folder: Path, options: argparse.Namespace) -> str:
    """The same without rows."""
    shuffles = 2 if options.quick else max(2, options.shuffles // 4)
    return f"""## Sixteen sensors that keep no rows

The same with `reservoir=0`, the single passes included: after the warm-up a model holds moments of its components only,
and merging searches on these. What a single pass loses without rows is on the page on quality, set by set.

{table(shuffles, reservoir=0)}
"""


PARTS = {
    "merge": merge_part,
    "groups": groups_part,
    "kills": kills_part,
    "engines": engines_part,
    "sensors": sensors_part,
    "bare": bare_part,
}


def main() -> None:
    """Measure and write."""
    made = parser(__doc__)
    made.add_argument("parts", nargs="*", choices=[*PARTS, "all", "page"], default="all", help="page: of what is there")
    made.add_argument("--devices", type=int, default=1000)
    made.add_argument("--groups", type=int, default=100_000)
    made.add_argument("--kills", type=int, default=20)
    more = ", ".join(f"of {name} {times} times as many" for name, times in TIMES.items())
    made.add_argument("--shuffles", type=int, default=SHUFFLES, help=more)
    options = made.parse_args()
    if options.quick:
        options.devices, options.groups, options.kills = 5, 400, 2
    for part in PARTS if "all" in options.parts else [each for each in options.parts if each != "page"]:
        others = others_at_work()
        with tempfile.TemporaryDirectory() as folder:
            text = PARTS[part](Path(folder), options)
        write_part("fleet", part, text + others, quick=options.quick)
    if not options.quick:
        write_page_of_parts("fleet", "A fleet", tuple(PARTS))


if __name__ == "__main__":
    main()
