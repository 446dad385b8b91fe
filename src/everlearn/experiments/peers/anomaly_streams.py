"""Streams with labelled anomalies, in groups: Shuttle, NAB, rare classes, synthetic faults, and those kept aside.

Nothing about the detector was chosen on the streams that are kept aside; they are run to judge it.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.experiments.peers.data import Absent, Context, shuttle, streams_folder
from everlearn.typing import Array


class Labelled(NamedTuple):
    """Rows of a stream, and whether each is an anomaly."""

    name: str
    X: Array
    y: Array


# -- NAB ---------------------------------------------------------------------------------------------


def nab_folder(name: str, context: Context) -> Iterator[Labelled]:
    """The streams of one folder of NAB that have labelled windows: one column, and whether a row is in a window."""
    streams = streams_folder()
    if streams is None or not (streams / "nab").is_dir():
        raise Absent("NAB was not found: set EVERLEARN_DATA to the folder that holds streams/nab.")
    windows = json.loads((streams / "nab" / "combined_windows.json").read_text())
    folder = streams / "nab" if name == "realKnownCause" else streams / "nab" / name
    paths = sorted(folder.glob("*.csv"), key=lambda path: path.stat().st_size)
    for path in paths[: 1 if context.quick else None]:
        # NAB writes windows with microseconds and rows without: cut to seconds, both compare as text.
        marks = [[edge[:19] for edge in window] for window in windows.get(f"{name}/{path.name}", [])]
        if marks:
            yield _nab_stream(path, marks)


def _nab_stream(path: Path, marks: list[list[str]]) -> Labelled:
    with path.open() as file:
        lines = list(csv.reader(file))[1:]
    inside = [any(first <= line[0] <= last for first, last in marks) for line in lines]
    return Labelled(path.stem, np.array([[float(line[1])] for line in lines]), np.array(inside, dtype=float))


def nab_known(context: Context) -> Iterator[Labelled]:
    """realKnownCause."""
    yield from nab_folder("realKnownCause", context)


def nab_others(context: Context) -> Iterator[Labelled]:
    """The other folders that have labels; a quick run takes the one with the shortest streams."""
    folders = ("artificialWithAnomaly", "realAWSCloudwatch", "realTraffic")
    for name in folders[-1:] if context.quick else folders:
        yield from nab_folder(name, context)


# -- rare classes ------------------------------------------------------------------------------------


def rare(X: Array, classes: NDArray[Any], odd: list[Any], share: float, seed: int = 0) -> tuple[Array, Array]:
    """Rows of all other classes as usual ones, those of `odd` thinned to a share, in random order."""
    rng = np.random.default_rng(seed)
    is_odd = np.isin(classes, odd)
    usual, strange = rng.permutation(np.flatnonzero(~is_odd))[:4000], rng.permutation(np.flatnonzero(is_odd))
    strange = strange[: max(6, int(share * len(usual) / (1 - share)))]
    order = rng.permutation(len(usual) + len(strange))
    rows = np.concatenate([usual, strange])[order]
    return np.asarray(X[rows], dtype=float), is_odd[rows].astype(float)


def rare_classes(context: Context) -> Iterator[Labelled]:
    """A rare class in sets of scikit-learn, Weka and river."""
    from sklearn import datasets

    from everlearn.datasets import weka

    cancer, digits, wine = datasets.load_breast_cancer(), datasets.load_digits(), datasets.load_wine()
    yield Labelled("breast cancer, malignant", *rare(cancer.data, cancer.target, [0], 0.05))
    if context.quick:
        return
    for kind in (0, 2):
        yield Labelled(f"wine {kind}", *rare(wine.data, wine.target, [kind], 0.08))
    yield Labelled("phishing", *rare(*phishing(), [1.0], 0.05))
    for digit in (0, 2, 4, 5, 7, 9):
        yield Labelled(f"digits {digit}", *rare(digits.data, digits.target, [digit], 0.05))
    for name, share in (("ionosphere", 0.1), ("diabetes", 0.08), ("glass", 0.08), ("soybean", 0.08)):
        found = weka.load(name)
        classes = np.asarray(found.target)
        counts = np.bincount(classes)
        # The rarest class that occurs; of the 19 classes of soybean the four rarest together.
        odd = [k for k in np.argsort(counts) if counts[k]][: 4 if name == "soybean" else 1]
        yield Labelled(f"weka {name}", *rare(found.data, classes, odd, share))
    X, classes = segment()
    for odd_class in (0, 1, 3, 4, 6):
        yield Labelled(f"segment {odd_class}", *rare(X, classes, [odd_class], 0.05))


def _river_file(name: str) -> Path:
    found = importlib.util.find_spec("river")
    if found is None or found.origin is None:
        raise Absent("Some streams come with river: pip install 'everlearn[peers]'")
    return Path(found.origin).parent / "datasets" / name


def segment() -> tuple[Array, NDArray[Any]]:
    """river's copy of the image segments: 18 numbers of a picture's region, and one of seven classes."""
    with zipfile.ZipFile(_river_file("segment.csv.zip")) as archive:
        rows = list(csv.reader(io.TextIOWrapper(archive.open(archive.namelist()[0]))))[1:]
    text = [j for j, value in enumerate(rows[0]) if not _is_number(value)]
    X = np.array([[float(value) for j, value in enumerate(row) if j not in text] for row in rows])
    return X, np.unique([row[text[0]] for row in rows], return_inverse=True)[1]


def phishing() -> tuple[Array, NDArray[Any]]:
    """river's copy of the phishing sites: nine answers, and whether a site is a trap."""
    with gzip.open(_river_file("phishing.csv.gz"), "rt") as file:
        table = np.array([[float(value) for value in row] for row in list(csv.reader(file))[1:]])
    return table[:, :-1], table[:, -1]


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


# -- synthetic faults --------------------------------------------------------------------------------


def autoregressive(rng: np.random.Generator, n: int, d: int, a: float) -> Array:
    """Columns x_t = a x_(t-1) + noise of unit variance."""
    from scipy.signal import lfilter

    # So that the columns, and not the noise, have unit variance, whatever a is.
    noise = rng.normal(size=(n, d)) * np.sqrt(1 - a * a)
    return np.asarray(lfilter([1.0], [1.0, -a], noise, axis=0))


def groups_with_isolated(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Three correlated groups; 1 % of the rows are uniform in their range."""
    centres, axes = 4.0 * rng.normal(size=(3, 6)), 0.7 * rng.normal(size=(3, 6, 6))
    group, y = rng.integers(3, size=n), np.zeros(n)
    X = centres[group] + np.einsum("nij,nj->ni", axes[group], rng.normal(size=(n, 6)))
    rows = rng.choice(n, n // 100, replace=False)
    X[rows], y[rows] = rng.uniform(X.min(axis=0), X.max(axis=0), (len(rows), 6)), 1
    return X, y


def tight_groups(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Three wide groups, and 5 % of the rows in tight groups between and beside them."""
    centres, axes = 4.0 * rng.normal(size=(3, 8)), 0.7 * rng.normal(size=(3, 8, 8))
    group, y = rng.integers(3, size=n), (rng.random(n) < 0.05).astype(float)
    X = centres[group] + np.einsum("nij,nj->ni", axes[group], rng.normal(size=(n, 8)))
    places = np.array([centres[:2].mean(axis=0), centres[2] + 2.5 * rng.normal(size=8)])
    odd = np.flatnonzero(y)
    X[odd] = places[rng.integers(2, size=len(odd))] + 0.15 * rng.normal(size=(len(odd), 8))
    return X, y


def broken_correlation(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Six columns of two factors; in 2 % of the rows one column is that of another row."""
    X, column = broken_columns(rng, n)
    return X, (column >= 0).astype(float)


def broken_columns(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.int64]]:
    """The rows of `broken_correlation`, and of each the column that is that of another row; -1 where none is."""
    W, column = rng.normal(size=(2, 6)), np.full(n, -1)
    X = rng.normal(size=(n, 2)) @ W + 0.25 * rng.normal(size=(n, 6))
    rows, columns = rng.choice(n, n // 50, replace=False), rng.integers(6, size=n // 50)
    X[rows, columns], column[rows] = X[rng.integers(n, size=len(rows)), columns], columns
    return X, column


def drifting(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Two groups whose place drifts; 1.5 % of the rows are displaced."""
    centres, group, y = 4.0 * rng.normal(size=(2, 5)), rng.integers(2, size=n), np.zeros(n)
    X = centres[group] + rng.normal(size=(n, 5)) + np.cumsum(0.08 * rng.normal(size=(n, 5)), axis=0)
    rows = rng.choice(n, n * 3 // 200, replace=False)
    X[rows] += 5 * rng.normal(size=(len(rows), 5))
    y[rows] = 1
    return X, y


def returning_regimes(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Four regimes of 200 rows that come back; 1.5 % of the rows are displaced."""
    regime, y = np.repeat(rng.integers(4, size=n // 200 + 1), 200)[:n], np.zeros(n)
    X = (6 * rng.normal(size=(4, 5)))[regime] + rng.normal(size=(n, 5))
    rows = rng.choice(n, n * 3 // 200, replace=False)
    X[rows] += 4 * rng.normal(size=(len(rows), 5))
    y[rows] = 1
    return X, y


def seasonal(kind: str) -> Callable[[np.random.Generator, int], tuple[Array, Array]]:
    """A season of 96 rows with spikes, flat stretches, a wrong frequency or a wrong phase."""

    def make(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        t, y = np.arange(n), np.zeros(n)
        base = np.sin(2 * np.pi * t / 96) + 0.4 * np.sin(4 * np.pi * t / 96 + 1)
        x = base + 0.12 * rng.normal(size=n)
        if kind == "spike":
            rows = rng.choice(np.arange(500, n), 25, replace=False)
            x[rows] += rng.choice([-1, 1], 25) * rng.uniform(0.8, 1.6, 25)
            y[rows] = 1
            return x[:, None], y
        # Behind the rows that are not judged, and at distances at which two faults do not overlap.
        places = np.arange(700, n - 100, 100)
        for first in rng.choice(places, min(8, len(places)), replace=False):
            part = slice(first, first + 60)
            noise = 0.12 * rng.normal(size=60)
            y[part] = 1
            x[part] = {
                "flat": x[first] + noise / 6,
                "frequency": np.sin(6 * np.pi * t[part] / 96) + noise,
                "phase": base[(t[part] + 48) % n] + noise,
            }[kind]
        return x[:, None], y

    return make


def machine(kind: str, columns: int = 6) -> Callable[[np.random.Generator, int], tuple[Array, Array]]:
    """Sensors of two slow factors; seven faults of 100 rows in one of them: a ramp, a stuck value, noise or a shift."""

    def make(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        X, column = machine_columns(kind, columns)(rng, n)
        return X, (column >= 0).astype(float)

    return make


def machine_columns(
    kind: str, columns: int = 6
) -> Callable[[np.random.Generator, int], tuple[Array, NDArray[np.int64]]]:
    """The rows of `machine`, and of each the sensor that has the fault; -1 where none has."""

    def make(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.int64]]:
        W, column = rng.normal(size=(2, columns)), np.full(n, -1)
        X = autoregressive(rng, n, 2, 0.95) @ W + 0.3 * autoregressive(rng, n, columns, 0.5)
        X += 0.1 * rng.normal(size=X.shape)
        spread = X.std(axis=0)
        places = np.arange(700, n - 150, 160)
        for first in rng.choice(places, min(7, len(places)), replace=False):
            part, j = slice(first, first + 100), rng.integers(columns)
            column[part] = j
            if kind == "stuck":
                X[part, j] = X[first, j]
            else:
                X[part, j] += spread[j] * {
                    "ramp": np.linspace(0, 4, 100), "noise": rng.normal(size=100), "shift": np.full(100, 1.5)
                }[kind]  # fmt: skip
        # Sensors in different units: a detector that is not scale-free sees one of them only.
        return X * 10.0 ** rng.integers(-3, 4, size=columns), column

    return make


FAULTS: dict[str, Callable[[np.random.Generator, int], tuple[Array, Array]]] = {
    "isolated rows": groups_with_isolated,
    "tight groups": tight_groups,
    "broken correlation": broken_correlation,
    "drift": drifting,
    "regimes": returning_regimes,
    **{f"season, {kind}": seasonal(kind) for kind in ("spike", "flat", "frequency", "phase")},
    **{f"machine, {kind}": machine(kind) for kind in ("ramp", "stuck", "noise", "shift")},
}


def synthetic(context: Context) -> Iterator[Labelled]:
    """Each kind of fault once a seed, and those of machines once more with twelve sensors."""
    kinds = list(FAULTS)[:: 7 if context.quick else 1]
    for kind in kinds:
        for seed in range(1 if context.quick else 2):
            rng = np.random.default_rng([seed, list(FAULTS).index(kind)])
            yield Labelled(f"{kind} #{seed}", *FAULTS[kind](rng, min(4000, context.rows)))
    if not context.quick:
        yield from machines(12, min(6000, context.rows), seed=77)


# -- kept aside --------------------------------------------------------------------------------------


def kept_aside(context: Context) -> Iterator[Labelled]:
    """Eleven streams that were chosen when the detector was done, and run to judge it."""
    from sklearn import datasets

    digits, wine = datasets.load_digits(), datasets.load_wine()
    yield Labelled("wine 1", *rare(wine.data, wine.target, [1], 0.08))
    if context.quick:
        return
    for digit in (1, 3, 6, 8):
        yield Labelled(f"digits {digit}", *rare(digits.data, digits.target, [digit], 0.05))
    X, classes = segment()
    for odd_class in (2, 5):
        yield Labelled(f"segment {odd_class}", *rare(X, classes, [odd_class], 0.05))
    yield from machines(9, min(6000, context.rows), seed=78)


def machines(columns: int, n: int, seed: int) -> Iterator[Labelled]:
    """Each kind of fault in a machine of its own, with so many sensors."""
    for kind in ("ramp", "stuck", "noise", "shift"):
        # By the name: kinds must not share random numbers, or four streams would be one with four faults.
        rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
        yield Labelled(f"machine of {columns}, {kind}", *machine(kind, columns)(rng, n))


def _shuttle(context: Context) -> Iterator[Labelled]:
    for X, y in shuttle(context):
        yield Labelled("shuttle", X, y)


GROUPS: dict[str, Callable[[Context], Iterator[Labelled]]] = {
    "shuttle": _shuttle,
    "nab": nab_known,
    "nab_others": nab_others,
    "rare": rare_classes,
    "synthetic": synthetic,
    "aside": kept_aside,
}
