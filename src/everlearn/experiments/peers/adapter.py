"""A model as the measurements see it."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from everlearn.typing import Array

OURS = "everlearn"


class Contender(NamedTuple):
    """A model with its settings, made anew for every measurement.

    `make` imports what it needs, so that contenders can be listed where their packages are not installed.
    """

    name: str
    package: str
    make: Callable[[], Any]
    settings: str = "defaults"
    batch: bool = False
    baseline: bool = False
    joint: bool = False
    """Whether it has a joint density of all columns, as ours."""
    slow: bool = False
    """Whether it takes most of the time of a column, so that a quick run leaves it out."""
    most_rows: int | None = None
    """Rows of the longest stream that it takes in reasonable time."""

    @property
    def title(self) -> str:
        """Package and name, and whether it needs all rows at once."""
        package = {"sklearn": "scikit-learn"}.get(self.package, self.package)
        name = self.name if self.baseline else f"{package} {self.name}"
        return f"{name} (batch)" if self.batch else name

    @property
    def installed(self) -> bool:
        """Whether the package can be found."""
        return importlib.util.find_spec(self.package) is not None


class Model:
    """The verbs that all models have in common; subclasses add those of the columns they appear in."""

    model: Any

    def pieces(self, X: Array, size: int) -> list[Any]:
        """Batches of rows in the form that the model takes."""
        return [X[start : start + size] for start in range(0, len(X), size)]

    def size(self) -> int:
        """Bytes of the pickled model."""
        return len(pickle.dumps(self.model))


class Supervised(Model):
    """A model that learns a target with its rows."""

    def learn(self, piece: Any, y: Array) -> None:
        """Learn rows, in the form that `pieces` gives them, and their targets."""
        raise NotImplementedError

    def fit(self, X: Array, y: Array) -> None:
        """Learn rows and their targets in one pass."""
        (piece,) = self.pieces(X, len(X))
        self.learn(piece, y)


def gaussian_log_density(X: Array, mean: Array, precision: Array) -> Array:
    """Log-density of rows under one Gaussian."""
    sign, log_determinant = np.linalg.slogdet(precision)
    if sign <= 0:
        raise ValueError("the precision matrix is not positive definite")
    offset = X - mean
    distance = np.einsum("ni,ij,nj->n", offset, precision, offset)
    density: Array = 0.5 * (log_determinant - distance - X.shape[1] * np.log(2 * np.pi))
    return density
