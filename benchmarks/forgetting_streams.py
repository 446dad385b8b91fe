"""Streams that change, with the truth at every row: what `forgetting.py` puts the models to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Stream(NamedTuple):
    """Rows, the true loadings at each row, the noise, the row where each period began, and which rows are outliers."""

    X: Array  # (T, n)
    W: Array  # (T, n, m)
    noise: float
    began: Array  # (T,)
    wild: Array  # (T,)


class Scenario(NamedTuple):
    """How to make a stream, what to measure (name to rows), and what is asked of the default."""

    make: Callable[[np.random.Generator], Stream]
    measures: dict[str, Array]
    limit: dict[str, float]  # most times the oracle's error
    best_window: bool = False  # the oracle is the best window, not the period so far


AXES = np.array([[5.0, -1.0], [1.0, 5.0], [-3.0, 3.0]])
LETTERS = (
    ".###. #...# ##### #...# #...#",
    "####. #...# ####. #...# ####.",
    "##### #.... ####. #.... #####",
)


def bitmap(letter: str) -> Array:
    """Five rows of five pixels, as one vector of zeros and ones."""
    return np.array([pixel == "#" for pixel in letter.replace(" ", "")], dtype=float)


def periods(rng: np.random.Generator, W: Array, noise: float, length: int = 200) -> Stream:
    """One period of `length` rows for each loadings matrix in W, (k, n, m)."""
    truth = W.repeat(length, axis=0)
    T, n, m = truth.shape
    X = (truth @ rng.normal(size=(T, m, 1)))[:, :, 0] + noise * rng.normal(size=(T, n))
    return Stream(X, truth, noise, np.arange(T) // length * length, np.zeros(T, dtype=bool))


def abrupt(rng: np.random.Generator) -> Stream:
    """Section 3.1 of the paper."""
    return periods(rng, AXES[:, :, None], 1.0)


def outliers(rng: np.random.Generator) -> Stream:
    """The same, with 2 % of the rows replaced by noise of standard deviation 20."""
    stream = abrupt(rng)
    wild = rng.random(len(stream.X)) < 0.02
    wild[:10] = False
    stream.X[wild] = 20.0 * rng.normal(size=(wild.sum(), 2))
    return stream._replace(wild=wild)


def letters(rng: np.random.Generator) -> Stream:
    """Section 3.2 of the paper."""
    return periods(rng, np.array([bitmap(letter) for letter in LETTERS])[:, :, None], 0.2)


def three_axes(rng: np.random.Generator) -> Stream:
    """25 columns, three random axes in each period."""
    return periods(rng, rng.normal(size=(3, 25, 3)), 0.5)


def stationary(rng: np.random.Generator) -> Stream:
    """Nothing changes."""
    return periods(rng, AXES[:1, :, None], 1.0, length=2000)


def jumps(rng: np.random.Generator) -> Stream:
    """The mean jumps by thirty noise deviations, and the axis turns with it."""
    stream = abrupt(rng)
    return stream._replace(X=stream.X + np.array([[0.0, 0.0], [30.0, 0.0], [30.0, -30.0]]).repeat(200, axis=0))


def drift(degrees: float, stop: int = 800) -> Callable[[np.random.Generator], Stream]:
    """An axis that turns by `degrees` a row until row `stop`; 800 rows."""

    def make(rng: np.random.Generator) -> Stream:
        turn = np.radians(degrees * np.minimum(np.arange(800), stop))
        W = 5.0 * np.stack([np.cos(turn), np.sin(turn)], axis=1)[:, :, None]
        X = W[:, :, 0] * rng.normal(size=(800, 1)) + rng.normal(size=(800, 2))
        return Stream(X, W, 1.0, np.zeros(800, dtype=int), np.zeros(800, dtype=bool))

    return make


def after(*rows: int) -> dict[str, Array]:
    """Single rows after each of the two changes."""
    return {f"+{row} after change {k}": np.array([200 * k + row - 1]) for k in (1, 2) for row in rows}


# Every fifth row of the last 50.
LAST = {f"last 50 of period {k + 1}": np.arange(200 * k + 154, 200 * k + 200, 5) for k in range(3)}
LATER = {"rows 300 on": np.arange(300, 800, 5)}

SCENARIOS = {
    "abrupt": Scenario(abrupt, {**LAST, **after(10, 50)}, dict.fromkeys(LAST, 1.15)),
    "letters": Scenario(letters, {**LAST, **after(10, 50)}, dict.fromkeys(LAST, 1.15)),
    "three axes": Scenario(three_axes, {**LAST, **after(20)}, dict.fromkeys(LAST, 1.15)),
    "2 % outliers": Scenario(outliers, {**LAST, **after(10)}, dict.fromkeys(LAST, 1.6)),
    "stationary": Scenario(
        stationary,
        {"row 100": np.array([99]), "row 500": np.array([499]), "last 50 of 2,000": np.arange(1954, 2000, 5)},
        {"last 50 of 2,000": 1.1},
    ),
    "drift 0.05": Scenario(drift(0.05), LATER, {"rows 300 on": 1.25}, best_window=True),
    "drift 0.2": Scenario(drift(0.2), LATER, {"rows 300 on": 1.25}, best_window=True),
    "drift 1": Scenario(drift(1.0), LATER, {"rows 300 on": 1.25}, best_window=True),
    "a drift of 0.2 stops": Scenario(drift(0.2, 400), {"last 50": np.arange(754, 800, 5)}, {}, best_window=True),
    "jumps of the mean": Scenario(jumps, {**LAST, **after(10, 50)}, {}),
}
