"""Clean streams, on which alarms are counted, and rows with a value put into one column, for which it is to blame."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from everlearn.experiments.peers.anomaly_streams import autoregressive
from everlearn.typing import Array

Clean = Callable[[np.random.Generator, int], Array]


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


def seasonal(rng: np.random.Generator, n: int) -> Array:
    """A season of 96 rows in two columns, and noise."""
    t = np.arange(n)[:, None]
    return np.sin(2 * np.pi * (t / 96 + np.array([0.0, 0.2]))) + 0.2 * rng.normal(size=(n, 2))


def drifting(rng: np.random.Generator, n: int) -> Array:
    """Noise around a random walk."""
    return rng.normal(size=(n, 3)) + np.cumsum(0.02 * rng.normal(size=(n, 3)), axis=0)


def discrete(rng: np.random.Generator, n: int) -> Array:
    """Counts, a die and a switch."""
    return np.column_stack([rng.poisson(3, n), rng.integers(0, 5, n), rng.random(n) < 0.1]).astype(float)


CLEAN: dict[str, Clean] = {
    "Gaussian": gaussian,
    "three groups": groups,
    "heavy tails": heavy_tails,
    "autocorrelated": autocorrelated,
    "seasonal": seasonal,
    "drifting": drifting,
    "discrete": discrete,
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


def injected() -> dict[str, Callable[[int], NDArray[np.bool_]]]:
    """Cases of blame by name; each takes a seed."""
    return {
        "independent columns, 6 standard deviations": lambda seed: blamed(gaussian, 6.0, seed),
        "three groups, 3 standard deviations of the column": lambda seed: blamed(groups, 3.0, seed),
        "six columns of two factors, 3 standard deviations": lambda seed: blamed(factors, 3.0, seed),
        "six sensors in time, 1.5 standard deviations": lambda seed: blamed(sensors, 1.5, seed),
    }
