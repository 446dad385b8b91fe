"""What the densities answer alike: their mean, and draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state

from everlearn.errors import InputError


class Density(DensityMixin):
    """A model that has `score_samples`."""

    if TYPE_CHECKING:

        def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
            """Log-density of each row."""

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to score.
        y : ignored
            Present for the scikit-learn interface.

        Returns
        -------
        float
            Mean of `score_samples(X)`.
        """
        return float(self.score_samples(X).mean())


def generator(random_state: Any) -> np.random.Generator:
    """A generator from any source of randomness that scikit-learn takes."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def check_draws(n_samples: int) -> None:
    """Refuse a number of draws that is none."""
    if n_samples < 1:
        raise InputError(f"n_samples must be at least 1; got {n_samples}.")
