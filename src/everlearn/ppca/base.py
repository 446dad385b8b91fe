"""What every probabilistic PCA shows its users, whichever way it was learned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array

from everlearn.base.density import Density, check_draws, generator
from everlearn.base.estimator import StreamEstimator
from everlearn.base.scaling import nearest_power_of_two
from everlearn.errors import InputError, ModelFileError
from everlearn.gaussian import ppca
from everlearn.gaussian.ppca import Axes, Ready
from everlearn.linalg.chunked import to_internal

Array = NDArray[np.float64]

# Beyond this many scales a value is kept at the limit, so that its square stays finite.
LIMIT = 1e60


class Answer(NamedTuple):
    """A model of the rows divided by `scale` (one power of two for all columns), from which questions are answered."""

    model: Ready
    scale: float
    inverse_scale: Array  # 1/scale for each column


def answer_from(model: Ready, scale: float) -> Answer:
    """Prepare a model of rows divided by `scale` for questions."""
    return Answer(model, scale, np.full(len(model.mu), 1.0 / scale))


def scale_of(rows: Array) -> float:
    """Power of two near the largest value; the models are isotropic, so that one scale serves all columns."""
    size = float(np.nanmax(np.abs(rows), initial=0.0))
    return float(nearest_power_of_two(np.array(size))) if size > 0.0 else 1.0


def require_shapes(arrays: Iterable[Any], shapes: list[tuple[int, ...]], what: str) -> None:
    """Refuse a loaded model whose arrays of numbers do not have the given shapes."""
    found = [(array.shape, array.dtype.kind in "fb") for array in arrays]
    if found != [(shape, True) for shape in shapes]:
        raise ModelFileError(f"The file's {what} does not fit its columns and components.")


class PPCAFace(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Density, StreamEstimator):
    """Transformer and density of a probabilistic PCA.

    A subclass says in `_new_answer` from which model to answer. It makes the dict `_cache_` in `_start` and
    `_check_loaded`, and clears it whenever it learns.
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_cache_",)
    random_state: Any
    _cache_: dict[str, Any]

    def _new_answer(self) -> Answer:
        """The model to answer from."""
        raise NotImplementedError

    def _answer(self) -> Answer:
        self._check_started()
        answer: Answer | None = self._cache_.get("answer")
        if answer is None:
            answer = self._cache_["answer"] = self._new_answer()
        return answer

    def _axes(self) -> Axes:
        axes: Axes | None = self._cache_.get("axes")
        if axes is None:
            axes = self._cache_["axes"] = ppca.axes(ppca.PPCA(*self._answer().model[:3]))
        return axes

    def _internal(self, X: ArrayLike, answer: Answer) -> Array:
        return to_internal(self._check_X(X), answer.inverse_scale, LIMIT)

    # -- asking -----------------------------------------------------------------------------------

    def transform(self, X: ArrayLike) -> Array:
        """Coordinates of each row along the principal axes; a gap counts as its conditional mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Projections of the rows, less the mean, on `components_`.
        """
        answer = self._answer()
        filled = ppca.fill(answer.model, self._internal(X, answer))
        return (filled - answer.model.mu) @ self._axes().components.T * answer.scale

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Rows that have the given coordinates along the principal axes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Coordinates, as from `transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The rows.
        """
        components = self._axes().components
        T = check_array(X, dtype=np.float64)
        if T.shape[1] != len(components):
            raise InputError(
                f"X has {T.shape[1]} columns; inverse_transform takes the {len(components)} coordinates "
                "that transform gives."
            )
        return T @ components + self.mean_

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row; of its observed part where it has gaps.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-densities; 0 for a row with nothing observed.
        """
        answer = self._answer()
        rows = self._internal(X, answer)
        density = ppca.log_density(answer.model, rows)
        if answer.scale != 1.0:
            density -= np.log(answer.scale) * np.count_nonzero(rows == rows, axis=1)
        return density

    def impute(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Fill the gaps of each row with their expectation given what was observed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.
        return_std : bool, default=False
            Whether to return the standard deviation of each filled value too.

        Returns
        -------
        filled : ndarray of shape (n_samples, n_features)
            The rows without gaps.
        std : ndarray of shape (n_samples, n_features)
            Standard deviations, noise included, and zero where a value was observed; only with `return_std`.
        """
        answer = self._answer()
        rows = self._check_X(X)
        internal = to_internal(rows, answer.inverse_scale, LIMIT)
        filled, variance = ppca.fill_with_variance(answer.model, internal)
        filled = np.where(np.isnan(rows), filled * answer.scale, rows)
        return (filled, np.sqrt(variance) * answer.scale) if return_std else filled

    def sample(self, n_samples: int = 1) -> Array:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The rows.
        """
        check_draws(n_samples)
        answer = self._answer()
        model = ppca.PPCA(*answer.model[:3])
        return ppca.sample(model, n_samples, generator(self.random_state)) * answer.scale

    def get_covariance(self) -> Array:
        """Covariance of a row, W W' + sigma2 I.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            The covariance.
        """
        answer = self._answer()
        return ppca.covariance(ppca.PPCA(*answer.model[:3])) * answer.scale * answer.scale

    def get_precision(self) -> Array:
        """Inverse of the covariance of a row.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            The precision.
        """
        answer = self._answer()
        return ppca.precision(answer.model) / answer.scale / answer.scale

    # -- fitted attributes ------------------------------------------------------------------------

    @property
    def components_(self) -> Array:
        """Principal axes, orthonormal, the one of largest variance first."""
        return self._axes().components.copy()

    @property
    def loadings_(self) -> Array:
        """W: the principal axes times the standard deviation that each explains beyond the noise."""
        model, scale, _ = self._answer()
        axes = self._axes()
        return axes.components.T * (np.sqrt(np.maximum(axes.variances - model.sigma2, 0.0)) * scale)

    @property
    def mean_(self) -> Array:
        """Mean of a row."""
        model, scale, _ = self._answer()
        return model.mu * scale

    @property
    def noise_variance_(self) -> float:
        """Variance of the noise in each column."""
        model, scale, _ = self._answer()
        return model.sigma2 * scale * scale

    @property
    def explained_variance_(self) -> Array:
        """Variance along each principal axis, noise included."""
        scale = self._answer().scale
        return self._axes().variances * scale * scale

    @property
    def explained_variance_ratio_(self) -> Array:
        """Share of the total variance along each principal axis."""
        model, variances = self._answer().model, self._axes().variances
        d, q = model.W.shape
        return variances / (variances.sum() + (d - q) * model.sigma2)

    @property
    def _n_features_out(self) -> int:
        return len(self._axes().components)
