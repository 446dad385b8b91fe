"""The streams on which all contenders are measured."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.typing import Array

GROUPS = 5


class Absent(Exception):
    """Data that is not there; the message says how to get it."""


class Context(NamedTuple):
    """What a run was asked for."""

    rows: int = 50_000
    """Most rows of a stream."""
    seeds: int = 5
    """How often streams with a random part are drawn."""
    quick: bool = False


def groups(n: int, d: int = 8, seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Rows of five correlated groups, and the group of each."""
    # The groups are the same for every seed; only the rows differ.
    shape, rng = np.random.default_rng(5), np.random.default_rng(seed)
    centres, axes = 4.0 * shape.normal(size=(GROUPS, d)), shape.normal(size=(GROUPS, d, d))
    group = rng.integers(GROUPS, size=n)
    return centres[group] + np.einsum("nij,nj->ni", axes[group], rng.normal(size=(n, d))), group


def labelled(context: Context) -> Iterator[tuple[str, Array, Any]]:
    """Sets with a label by which they can be sorted."""
    from sklearn import datasets
    from sklearn.decomposition import PCA

    yield "five groups", *groups(min(context.rows, 4000))
    cancer = datasets.load_breast_cancer()
    yield "breast cancer", cancer.data, cancer.target
    if context.quick:
        return
    digits = datasets.load_digits()
    yield "digits, 16 axes", PCA(16, random_state=0).fit_transform(digits.data), digits.target
    if (folder := streams_folder()) and (folder / "wall_robot").is_dir():
        yield "wall robot", *wall_robot(folder)


def split(X: Array, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to learn, shuffled, and three tenths to test."""
    order = np.random.default_rng(seed).permutation(len(X))
    n_test = len(X) * 3 // 10
    return order[n_test:], order[:n_test]


def streams_folder() -> Path | None:
    """The folder `streams` of the shared data: in $EVERLEARN_DATA, or beside the folder that the program runs in."""
    folder = Path(os.environ.get("EVERLEARN_DATA", Path.cwd().parent / "shared" / "data")) / "streams"
    return folder if folder.is_dir() else None


def wall_robot(folder: Path) -> tuple[Array, Any]:
    """The ultrasound ranges of a robot that follows a wall, and its manoeuvres."""
    with (folder / "wall_robot" / "sensor_readings_24.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    return np.array([row[:-1] for row in rows], dtype=float), np.array([row[-1] for row in rows])


def shuttle(context: Context) -> list[tuple[Array, Array]]:
    """river's copy of the Shuttle stream: nine sensors, and whether a row is an anomaly."""
    found = importlib.util.find_spec("river")
    if found is None or found.origin is None:
        raise Absent("The Shuttle stream comes with river: pip install 'everlearn[peers]'")
    with gzip.open(Path(found.origin).parent / "datasets" / "shuttle.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return [(table[: context.rows, :-1], table[: context.rows, -1])]


def nab(context: Context) -> Iterator[tuple[Array, Array]]:
    """The streams of NAB's realKnownCause, short ones first: one column, and whether a row is in a labelled window."""
    folder = streams_folder()
    if folder is None or not (folder / "nab").is_dir():
        raise Absent("NAB was not found: set EVERLEARN_DATA to the folder that holds streams/nab.")
    windows = json.loads((folder / "nab" / "combined_windows.json").read_text())
    paths = sorted((folder / "nab").glob("*.csv"), key=lambda path: path.stat().st_size)
    for path in paths[: 2 if context.quick else None]:
        with path.open() as file:
            lines = list(csv.reader(file))[1:]
        marks = [[edge[:19] for edge in window] for window in windows[f"realKnownCause/{path.name}"]]
        inside = [any(first <= line[0] <= last for first, last in marks) for line in lines]
        yield np.array([[float(line[1])] for line in lines]), np.array(inside, dtype=float)


class Changing(NamedTuple):
    """A stream whose changes are known."""

    X: Array
    changes: list[int]


KINDS = ("mean", "spread", "correlation", "none")


def changing(kind: str, seed: int, part: int) -> Changing:
    """Three normal columns in three parts; the middle part differs in what `kind` says.

    The mean of the first column rises by one standard deviation, its spread doubles, or it becomes correlated (0.9)
    with the second.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    X = rng.normal(size=(3 * part, 3))
    middle = slice(part, 2 * part)
    if kind == "mean":
        X[middle, 0] += 1.0
    elif kind == "spread":
        X[middle, 0] *= 2.0
    elif kind == "correlation":
        X[middle, 0] = 0.9 * X[middle, 1] + np.sqrt(1 - 0.81) * X[middle, 0]
    return Changing(X, [] if kind == "none" else [part, 2 * part])
