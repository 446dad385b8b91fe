"""The distribution of some columns given others, in the units of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.base.draws import check_draws, generator
from everlearn.errors import InputError
from everlearn.gaussian import conditional
from everlearn.gaussian.conditional import ConditionalMixture

Array = NDArray[np.float64]

# Beyond this many scales a value is kept at the limit, so that its square stays finite.
LIMIT = 1e60


def to_scale(X: Array, scale: Array) -> Array:
    """Rows in units of `scale`, with their gaps; values beyond LIMIT are kept there."""
    # A quotient that overflows is clipped like any other.
    with np.errstate(over="ignore"):
        return np.clip(X / scale, -LIMIT, LIMIT)


class Conditional:
    """For each of n rows, the distribution of some columns once others are known: a Gaussian mixture.

    What `IncrementalGaussianMixture.condition` returns. All numbers are in the units of the data.

    Attributes
    ----------
    columns : list of str or int
        The columns that it is a distribution of: names where the model has them, else numbers.
    weights : ndarray of shape (n_samples, n_components)
        Probability of each component given the row.
    means : ndarray of shape (n_samples, n_components, n_targets)
        Mean of each component.
    covariances : ndarray of shape (n_samples, n_components, n_targets, n_targets)
        Covariance of each component.
    """

    def __init__(self, mixture: ConditionalMixture, scale: Array, columns: list[Any]) -> None:
        self._mixture = mixture
        self._scale = scale
        self.columns = columns

    def __len__(self) -> int:
        return len(self._mixture.weights)

    def __repr__(self) -> str:
        return f"<distribution of {', '.join(map(str, self.columns))} for {len(self)} rows>"

    @property
    def weights(self) -> Array:
        """Probability of each component given the row."""
        return self._mixture.weights.copy()

    @property
    def means(self) -> Array:
        """Mean of each component."""
        return self._mixture.means * self._scale

    @property
    def covariances(self) -> Array:
        """Covariance of each component."""
        full = conditional.full_covariances(self._mixture)
        shape = (*self._mixture.means.shape, len(self._scale))
        return np.broadcast_to(full, shape) * self._scale * self._scale[:, None]

    def mean(self) -> Array:
        """Expected value of the columns, (n_samples, n_targets)."""
        return conditional.mean(self._mixture) * self._scale

    def std(self) -> Array:
        """Standard deviation of each column, (n_samples, n_targets)."""
        return conditional.std(self._mixture) * self._scale

    def cov(self) -> Array:
        """Covariance of the columns, (n_samples, n_targets, n_targets)."""
        return conditional.covariance(self._mixture) * self._scale * self._scale[:, None]

    def quantile(self, q: float) -> Array:
        """Value that each column stays below with probability `q`, (n_samples, n_targets)."""
        return conditional.quantile(self._mixture, q) * self._scale

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Central interval of each column that holds the probability `coverage`.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability inside the interval.

        Returns
        -------
        low, high : ndarray of shape (n_samples, n_targets)
            Its ends.
        """
        low, high = conditional.interval(self._mixture, coverage)
        return low * self._scale, high * self._scale

    def cdf(self, Y: ArrayLike) -> Array:
        """Probability that each column is at most Y, (n_samples, n_targets)."""
        return conditional.cdf(self._mixture, self._internal(Y))

    def log_density(self, Y: ArrayLike) -> Array:
        """Log-density of values of the columns, one row of Y for each row of the question.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_targets)
            Values.

        Returns
        -------
        ndarray of shape (n_samples,)
            Joint log-density of the columns.
        """
        return conditional.log_density(self._mixture, self._internal(Y)) - np.log(self._scale).sum()

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw values of the columns for each row.

        Parameters
        ----------
        n_samples : int, default=1
            Draws for each row.
        random_state : int, RandomState instance or None, default=None
            Source of randomness.

        Returns
        -------
        ndarray of shape (n_rows, n_samples, n_targets)
            The draws.
        """
        check_draws(n_samples)
        return conditional.sample(self._mixture, n_samples, generator(random_state)) * self._scale

    def _internal(self, Y: ArrayLike) -> Array:
        from everlearn.linalg.chunked import to_internal  # compiled; `everlearn ask` has no values to look up

        values = np.asarray(Y, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 and len(self._scale) == 1 else values
        wanted = (len(self), len(self._scale))
        if values.shape != wanted or not np.isfinite(values).all():
            raise InputError(f"Y must hold {wanted[0]} rows of {wanted[1]} finite values; it has shape {np.shape(Y)}.")
        return to_internal(np.ascontiguousarray(values), 1.0 / self._scale, LIMIT)
