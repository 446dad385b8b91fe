"""Clean streams, on which alarms are counted, and rows with a value put into one column, for which it is to blame."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from everlearn.experiments.peers.anomaly_streams import autoregressive, broken_columns, machine_columns
from everlearn.typing import Array

Clean = Callable[[np.random.Generator, int], Array]
Faulty = Callable[[np.random.Generator, int], tuple[Array, NDArray[np.int64]]]


def gaussian(rng: np.random.Generator, n: int) -> Array:
    """Four independent columns."""
    return rng.normal(size=(n, 4))


def groups(rng: np.random.Generator, n: int) -> Array:
    """Three groups."""
    # A generator of its own for the centres: they are the same whatever the seed of the rows.
    return 4.0 * np.random.default_rng(5).normal(size=(3, 4))[rng.integers(3, size=n)] + rng.normal(size=(n, 4))


def heavy_tails(rng: np.random.Generator, n: int) -> Array:
    """Student's t with three degrees of freedom."""
    return rng.standard_t(3, size=(n, 3))


def autocorrelated(rng: np.random.Generator, n: int) -> Array:
    """x_t = 0.9 x_(t-1) + noise."""
    return autoregressive(rng, n, 3, 0.9)


def slowly_autocorrelated(rng: np.random.Generator, n: int) -> Array:
    """x_t = 0.95 x_(t-1) + noise in four columns: 1 row in 39 is independent."""
    return autoregressive(rng, n, 4, 0.95)


def random_walk(rng: np.random.Generator, n: int) -> Array:
    """Two random walks, which have no law that stays: 50,000 rows are a dozen excursions."""
    return np.cumsum(rng.normal(size=(n, 2)), axis=0)


def seasonal(rng: np.random.Generator, n: int) -> Array:
    """A season of 96 rows in two columns, and noise."""
    t = np.arange(n)[:, None]
    return np.sin(2 * np.pi * (t / 96 + np.array([0.0, 0.2]))) + 0.2 * rng.normal(size=(n, 2))


def slow_cycle(rng: np.random.Generator, n: int) -> Array:
    """A temperature that follows a cycle of 10,000 rows, a sensor that follows it, too, and one that does not."""
    angle = 2 * np.pi * np.arange(n) / 10_000
    temperature = 20.0 + 5.0 * np.sin(angle) + 0.3 * autoregressive(rng, n, 1, 0.9)[:, 0]
    return np.column_stack([temperature, np.cos(angle) + 0.1 * rng.normal(size=n), rng.normal(size=n)])


def drifting(rng: np.random.Generator, n: int) -> Array:
    """Noise around a random walk."""
    return rng.normal(size=(n, 3)) + np.cumsum(0.02 * rng.normal(size=(n, 3)), axis=0)


def discrete(rng: np.random.Generator, n: int) -> Array:
    """Counts, a die and a switch."""
    return np.column_stack([rng.poisson(3, n), rng.integers(0, 5, n), rng.random(n) < 0.1]).astype(float)


def on_and_off(rng: np.random.Generator, n: int) -> Array:
    """Sensors of a machine that is on for two fifths of a day of 288 rows, and off for the rest."""
    level = 5.0 * ((np.arange(n) - 100) % 288 < 110)
    return level[:, None] * np.array([1.0, 0.5, -1.0]) + 0.3 * rng.normal(size=(n, 3))


def states_that_return(rng: np.random.Generator, n: int) -> Array:
    """Four operating states, each for 50 to 150 rows, in random order: the first 500 rows show most of them."""
    stays = rng.integers(50, 150, size=n // 50 + 1)
    state = np.repeat(rng.integers(4, size=len(stays)), stays)[:n]
    return 5.0 * np.random.default_rng(6).normal(size=(4, 4))[state] + rng.normal(size=(n, 4))


CLEAN: dict[str, Clean] = {
    "Gaussian": gaussian,
    "three groups": groups,
    "heavy tails": heavy_tails,
    "autocorrelated": autocorrelated,
    "slowly autocorrelated": slowly_autocorrelated,
    "random walk": random_walk,
    "seasonal": seasonal,
    "slow cycle": slow_cycle,
    "drifting": drifting,
    "discrete": discrete,
    "on and off": on_and_off,
    "states that return": states_that_return,
}


# -- blame -------------------------------------------------------------------------------------------

INJECTED = 40  # rows of a case


def factors(rng: np.random.Generator, n: int) -> Array:
    """Six columns of two factors."""
    angles = np.arange(6) * np.pi / 6
    return rng.normal(size=(n, 2)) @ np.array([np.cos(angles), np.sin(angles)]) + 0.2 * rng.normal(size=(n, 6))


def sensors(rng: np.random.Generator, n: int) -> Array:
    """Six sensors of two slow factors, each with a slow and a fast error of its own."""
    X = autoregressive(rng, n, 2, 0.95) @ np.random.default_rng(3).normal(size=(2, 6))
    return X + 0.3 * autoregressive(rng, n, 6, 0.5) + 0.1 * rng.normal(size=X.shape)


def blamed(make: Clean, size: float, seed: int, rows: int = 2000) -> NDArray[np.bool_]:
    """Whether the column of each injected value is blamed first; each row comes next after the rows learned."""
    from everlearn import AnomalyDetector

    rng = np.random.default_rng([seed, 17])
    X = make(rng, rows + INJECTED)
    detector, right = AnomalyDetector().fit(X[:rows]), np.zeros(INJECTED, np.bool_)
    for i, x in enumerate(X[rows:]):
        row, column = x.copy(), rng.integers(X.shape[1])
        # In standard deviations of the column as it was learned; columns of different units are hit alike.
        row[column] += size * rng.choice([-1.0, 1.0]) * X[:rows, column].std()
        right[i] = detector.explain(row[None]).blame[0].argmax() == column
        # The clean row: an injected one would be part of what the next is judged by.
        detector.partial_fit(x[None])
    return right


def blamed_in_stream(make: Faulty, seed: int, rows: int = 4000) -> NDArray[np.bool_]:
    """Whether the column of each fault that raised an alarm is blamed, in its row of the smallest p-value.

    `make` gives rows and of each the column of its fault, -1 where there is none; rows of a fault follow each other.
    """
    from everlearn import AnomalyDetector

    X, column = make(np.random.default_rng([seed, 23]), rows)
    detector = AnomalyDetector()
    scores, told = detector.prequential(X, return_columns=True)
    right = []
    # Where a stretch of one column ends and the next begins, those without a fault among them.
    edges = [0, *(np.flatnonzero(np.diff(column)) + 1), rows]
    for first, end in itertools.pairwise(edges):
        if column[first] < 0:
            continue
        worst = first + int(np.argmin(scores[first:end]))
        if first >= detector.grace_period and scores[worst] < detector.offset_:
            right.append(told[worst] == column[first])
    return np.array(right, dtype=np.bool_)


def spikes(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.int64]]:
    """Three seasons of 96 rows; 25 rows have a spike of 1.2 to 2 in one column."""
    column = np.full(n, -1)
    X = np.sin(2 * np.pi * (np.arange(n)[:, None] / 96 + np.array([0.0, 0.2, 0.5]))) + 0.12 * rng.normal(size=(n, 3))
    rows = 2 * rng.choice(np.arange(300, n // 2), 25, replace=False)  # no two next to each other
    column[rows] = rng.integers(3, size=25)
    X[rows, column[rows]] += rng.choice([-1, 1], 25) * rng.uniform(1.2, 2.0, 25)
    return X, column


def frozen(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.int64]]:
    """Three seasons of 96 rows; in four stretches of 60 rows one column keeps its value."""
    column = np.full(n, -1)
    X = np.sin(2 * np.pi * (np.arange(n)[:, None] / 96 + np.array([0.0, 0.2, 0.5]))) + 0.12 * rng.normal(size=(n, 3))
    for first in rng.choice(np.arange(700, n - 100, 100), 4, replace=False):
        part, j = slice(first, first + 60), rng.integers(3)
        X[part, j], column[part] = X[first, j], j
    return X, column


def with_gaps(make: Faulty) -> Faulty:
    """The same with a tenth of the values missing, of the faulty columns none."""

    def gappy(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.int64]]:
        X, column = make(rng, n)
        missing = (rng.random(X.shape) < 0.1) & (np.arange(X.shape[1]) != column[:, None])
        return np.where(missing, np.nan, X), column

    return gappy


def _in_stream(make: Faulty) -> Callable[[int], NDArray[np.bool_]]:
    return lambda seed: blamed_in_stream(make, seed)


def injected() -> dict[str, Callable[[int], NDArray[np.bool_]]]:
    """Cases of blame by name; each takes a seed."""
    machines = {f"machine, {kind}": machine_columns(kind) for kind in ("ramp", "stuck", "noise", "shift")}
    streams: dict[str, Faulty] = {
        "one column of another row": broken_columns, "seasons, spikes": spikes, "seasons, a frozen column": frozen,
        **machines, "machine, shift and gaps": with_gaps(machines["machine, shift"]),
        "one column of another row, and gaps": with_gaps(broken_columns),
    }  # fmt: skip
    return {
        **{f"{name} (alarms of a stream)": _in_stream(make) for name, make in streams.items()},
        "independent columns, 6 standard deviations": lambda seed: blamed(gaussian, 6.0, seed),
        "three groups, 3 standard deviations of the column": lambda seed: blamed(groups, 3.0, seed),
        "six columns of two factors, 3 standard deviations": lambda seed: blamed(factors, 3.0, seed),
        "six sensors in time, 1.5 standard deviations": lambda seed: blamed(sensors, 1.5, seed),
    }
