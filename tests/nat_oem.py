"""The data and protocol of the NAT-oEM paper (section IV), with the noise of the table that the tests compare with."""

from typing import NamedTuple

import numpy as np

D, Q, SIGMA = 16, 3, 0.5
CLASSES, TRAIN, TEST = 4, 3200, 800
BLOCK, MOST_BLOCKS = 20_000, 50  # rows drawn at a time, and how often before a class counts as too rare


class Data(NamedTuple):
    """Training rows class by class, their labels, and test rows of all classes alike."""

    X: np.ndarray
    y: np.ndarray
    test: np.ndarray


def make(rng):
    """Rows of a random PPCA model, each in the class of the nearest of four noisy centroids, as many of each class."""
    W = np.linalg.svd(rng.uniform(-0.5, 0.5, (D, Q)), full_matrices=False)[0]
    centroids = _rows(rng, W, CLASSES) + 0.1 * rng.normal(size=(CLASSES, D))
    n, m = TRAIN // CLASSES, TEST // CLASSES
    found = [np.empty((0, D)) for _ in range(CLASSES)]
    for _ in range(MOST_BLOCKS):
        rows = _rows(rng, W, BLOCK)
        labels = np.argmin(np.sum(centroids**2, axis=1) - 2 * rows @ centroids.T, axis=1)
        found = [np.vstack([old, rows[labels == c]])[: n + m] for c, old in enumerate(found)]
        if min(map(len, found)) == n + m:
            X, test = (np.vstack([rows[part] for rows in found]) for part in (slice(n), slice(n, n + m)))
            return Data(X, np.repeat(np.arange(CLASSES), n), test)
    return make(rng)


def _rows(rng, W, n):
    return rng.normal(size=(n, Q)) @ W.T + SIGMA * rng.normal(size=(n, D))


def shuffled(data, rng):
    """The same rows in random order."""
    order = rng.permutation(len(data.X))
    return Data(data.X[order], data.y[order], data.test)
