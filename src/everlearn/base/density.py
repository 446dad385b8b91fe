"""What the densities answer alike: their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin


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
