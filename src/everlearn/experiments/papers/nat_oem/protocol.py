"""The data, the models and the runs of the NAT-oEM paper (section IV)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from everlearn import NaturalConstraint, OnlinePPCA, PowerSchedule
from everlearn.errors import DivergenceWarning
from everlearn.experiments.papers.registry import Context, Paper
from everlearn.typing import Array

PAPER = Paper(
    "nat-oem",
    "Naturally Constrained Online Expectation Maximization (and its poster)",
    "Daniela Pamplona and Antoine Manzanera, ICPR 2020",
    order=(
        *("titterington", "table1", "protocol", "fig1", "fig2", "fig3", "fig4", "rank"),
        *("orders", "cost", "mixtures"),
    ),
)

# d and q of section IV-A; sigma is the middle of the range that the paper draws from.
D, Q, SIGMA = 16, 3, 0.5
Look = Callable[[OnlinePPCA, Any], Any]

CLASSES, TRAIN, TEST = 4, 3200, 800
BLOCK, MOST_BLOCKS = 20_000, 50  # rows drawn at a time, and how often before a class counts as too rare
RUNS = 5, 20
NAMES = "ABCD"
CENTROID_NOISE = 0.1  # "some noise", says the paper
POLICIES = {"online EM": None, "NAT-oEM-step": "step", "NAT-oEM-class": "class"}
ROLES = {"online EM": "baseline", "NAT-oEM-step": "paper", "NAT-oEM-class": "second"}
START = (
    f"Rows of a random PPCA model (d = {D}, q = {Q}), each in the class of the nearest of four noisy centroids; the "
    f"paper draws the noise at random and does not print it, here sigma = {SIGMA}. {TRAIN} rows to learn, {TEST} to "
    "test, every run with data and first axes of its own. Paper mode is the printed algorithm: statistics that start "
    "at zero, random axes, the printed constraint. The default starts from the first fifty rows and has the proximal "
    "constraint of the same strength."
)
SAME = 0.02
"""Nats a row below which two log-likelihoods count as the same."""


class Data(NamedTuple):
    """Training rows class by class with their labels, and test rows of all classes alike with theirs."""

    X: Array
    y: NDArray[np.int64]
    test: Array
    test_y: NDArray[np.int64]


def make(rng: np.random.Generator, n: int = TRAIN // CLASSES) -> Data:
    """Draw a data set as section IV-A describes it, with `n` rows of each class to learn."""
    W = loadings(rng)
    # "Randomly selected from the training data": any draw of the model is one, and saves keeping the data.
    centroids = _rows(rng, W, CLASSES) + CENTROID_NOISE * rng.normal(size=(CLASSES, D))
    m = TEST // CLASSES
    found = [np.empty((0, D)) for _ in range(CLASSES)]
    # Classes differ in size. Blocks are drawn until the rarest has its rows, so that every class is learned as long as
    # the others; the paper does not say how its 3200 rows are shared out.
    for _ in range(MOST_BLOCKS):
        rows = _rows(rng, W, BLOCK)
        labels = nearest(rows, centroids)
        found = [np.vstack([old, rows[labels == c]])[: n + m] for c, old in enumerate(found)]
        if min(map(len, found)) == n + m:
            X, test = (np.vstack([rows[part] for rows in found]) for part in (slice(n), slice(n, n + m)))
            return Data(X, np.repeat(np.arange(CLASSES), n), test, np.repeat(np.arange(CLASSES), m))
    # A class that is rarer than one in a thousand rows: other centroids.
    return make(rng, n)


def loadings(rng: np.random.Generator) -> Array:
    """Draw W: left singular vectors of a uniform matrix."""
    # "The left matrix of the singular value decomposition": orthonormal columns, so that the singular values of the
    # truth are 1, 1, 1.
    return np.asarray(np.linalg.svd(rng.uniform(-0.5, 0.5, (D, Q)), full_matrices=False)[0])


def nearest(rows: Array, centroids: Array) -> NDArray[np.int64]:
    """Class of each row: the nearest centroid."""
    # Without the squared length of the row, which is the same for all centroids.
    return np.argmin(np.sum(centroids**2, axis=1) - 2 * rows @ centroids.T, axis=1).astype(np.int64)


def _rows(rng: np.random.Generator, W: Array, n: int, sigma: float = SIGMA) -> Array:
    return rng.normal(size=(n, Q)) @ W.T + sigma * rng.normal(size=(n, D))


class Pool(NamedTuple):
    """All points of section IV-A with their classes, and the noise that was drawn."""

    train: Array
    y: NDArray[np.int64]
    test: Array
    test_y: NDArray[np.int64]
    sigma: float


def make_pool(rng: np.random.Generator, n: int) -> Pool:
    """Draw `n` points to learn and `n` to test, to the letter: sigma between 0 and 1, centroids from the data."""
    sigma = float(rng.uniform(0.0, 1.0))
    W = loadings(rng)
    train, test = _rows(rng, W, n, sigma), _rows(rng, W, n, sigma)
    centroids = train[rng.choice(n, CLASSES, replace=False)] + CENTROID_NOISE * rng.normal(size=(CLASSES, D))
    return Pool(train, nearest(train, centroids), test, nearest(test, centroids), sigma)


def of_table_1(pool: Pool) -> Data:
    """The first points of a pool, class after class: as many as Table I has, in the shares that the classes have."""
    # Stable: within a class the rows keep the order in which they were drawn.
    order = np.argsort(pool.y[:TRAIN], kind="stable")
    return Data(pool.train[:TRAIN][order], pool.y[:TRAIN][order], pool.test[:TEST], pool.test_y[:TEST])


def shuffled(data: Data, rng: np.random.Generator) -> Data:
    """Return the same rows in random order."""
    order = rng.permutation(len(data.X))
    return data._replace(X=data.X[order], y=data.y[order])


# -- models ----------------------------------------------------------------------------------------


def printed(policy: str | None, seed: int) -> OnlinePPCA:
    """Return the paper's algorithm with Table I's settings."""
    return OnlinePPCA.paper(Q, reference=policy, random_state=seed)


def default(policy: str | None, seed: int) -> OnlinePPCA:
    """Return everlearn's default with the same rate and strength."""
    constraint = None if policy is None else NaturalConstraint(reference=policy)
    # Table I: 0.5 k^-0.9 for NAT-oEM-class, 0.9 k^-0.9 otherwise.
    rate = PowerSchedule(0.5 if policy == "class" else 0.9, 0.9)
    return OnlinePPCA(Q, learning_rate=rate, constraint=constraint, random_state=seed)


MODES: dict[str, Callable[[str | None, int], OnlinePPCA]] = {"paper mode": printed, "default": default}


def batch_score(data: Data) -> float:
    """Mean test log-likelihood of the maximum-likelihood model of all training rows."""
    # Principal components are the maximum-likelihood PPCA in closed form: no iteration, and nothing of ours in it.
    return float(PCA(Q).fit(data.X).score(data.test))


def test_score(model: OnlinePPCA, data: Data) -> float:
    """Mean log-likelihood of the test rows."""
    return model.score(data.test)


def curve(model: OnlinePPCA, data: Data, at: NDArray[np.int64], look: Look) -> Array:
    """Learn the rows, and look at the model after each number of rows in `at`."""
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)
        for start, stop in zip([0, *at[:-1]], at, strict=True):
            model.partial_fit(data.X[start:stop], data.y[start:stop])
            seen.append(look(model, data))
    return np.array(seen)


def curves(context: Context, *, sequential: bool, look: Look, at: NDArray[np.int64]) -> dict[tuple[str, str], Array]:
    """Curves of every policy in both modes, one a run."""
    found: dict[tuple[str, str], list[Array]] = {}
    for run in context.track(range(context.pick(*RUNS)), "runs"):
        rng = np.random.default_rng([context.seed, run])
        # Data of its own for each run, where the paper has five starts on one set: the spread then includes the draw.
        data = make(rng)
        data = data if sequential else shuffled(data, rng)
        for mode, make_model in MODES.items():
            for name, policy in POLICIES.items():
                values = curve(make_model(policy, run), data, at, look)
                found.setdefault((mode, name), []).append(values)
        found.setdefault(("batch", ""), []).append(np.full(1, batch_score(data)))
    return {key: np.array(values) for key, values in found.items()}


def points_in_time(n: int) -> NDArray[np.int64]:
    """Numbers of rows at which to look: often at first."""
    return np.unique(np.concatenate([[5, 10, 15], np.linspace(20, TRAIN, n).round()])).astype(np.int64)


def class_ends() -> tuple[float, ...]:
    """Rows at which a class ends."""
    return tuple(TRAIN / CLASSES * (i + 1) for i in range(CLASSES - 1))
