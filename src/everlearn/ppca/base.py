"""What OnlinePPCA and VariationalPPCA share: the first rows, the questions and the fitted attributes."""

from __future__ import annotations

import sys
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array

from everlearn.base.density import Density
from everlearn.base.draws import check_draws, generator
from everlearn.base.estimator import StreamEstimator
from everlearn.base.frames import in_kind_of
from everlearn.base.scaling import nearest_power_of_two
from everlearn.errors import InputError
from everlearn.linalg.chunked import to_internal
from everlearn.persistence.answers import FactorAnswers
from everlearn.ppca import ask
from everlearn.ppca.ask import Axes
from everlearn.ppca.state import FactoredPPCA
from everlearn.typing import Array

# Beyond this many scales a value is clipped, so that its square, and sums of squares, stay finite.
LIMIT = 1e60


class FittedPPCA(NamedTuple):
    """A model of the rows divided by `scale` (one power of two for all columns), from which questions are answered."""

    model: FactoredPPCA
    scale: float
    inverse_scale: Array  # (d,): 1/scale for each column

    @classmethod
    def of(cls, model: FactoredPPCA, scale: float) -> FittedPPCA:
        """Prepare a model of rows divided by `scale` for questions."""
        return cls(model, scale, np.full(len(model.mu), 1.0 / scale))


def scale_of(rows: Array) -> float:
    """Power of two near the largest value; the models are isotropic, so that one scale serves all columns."""
    size = float(np.nanmax(np.abs(rows), initial=0.0))
    return float(nearest_power_of_two(np.array(size))) if size > 0.0 else 1.0


def find_stack_level() -> int:
    """The `stacklevel` at which a warning points to the first caller outside the package."""
    level, frame = 0, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("everlearn."):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    return level + 1


class PPCABase(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Density, StreamEstimator):
    """Warm-up, transformer and density of a probabilistic PCA.

    The first rows are kept in a buffer; when it is full, a subclass starts its state from them in `_start_state`. It
    says in `_new_fitted` from which model questions are answered, and clears `_cache_` whenever it learns.
    """

    _allow_nan: ClassVar[bool] = True
    _transient: ClassVar[tuple[str, ...]] = ("_cache_", "_settings_")
    n_components: int
    random_state: Any
    _state_: Any  # None until the first rows are there
    _buffer_: Array  # (rows, d): the first rows, of which `_buffered_` have come
    _buffered_: int
    _scale_: float  # rows are divided by it before they are learned
    _n_rows_: int
    _cache_: dict[str, Any]

    # -- what a subclass implements ---------------------------------------------------------------

    def _warmup_rows(self) -> int:
        """How many rows to start from; 0 to start without."""
        raise NotImplementedError

    def _start_state(self, rows: Array, n_used: int) -> None:
        """Start from the first rows, or from the size of one where `_warmup_rows` is 0.

        `n_used` is the number of rows of the stream up to here, rows of nothing but NaN included.
        """
        raise NotImplementedError

    def _new_fitted(self) -> FittedPPCA:
        """The model to answer from."""
        raise NotImplementedError

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model, and with it its file, holds rows of the stream: during the warm-up."""
        self._check_started()
        return self._rows_inside() > 0

    def _rows_inside(self) -> int:
        return int(self._buffered_) if self._state_ is None else 0

    # -- the first rows ---------------------------------------------------------------------------

    def _start_buffer(self, d: int) -> None:
        """Forget everything; the buffer for the first rows is empty."""
        if self.n_components > d:
            raise InputError(f"n_components={self.n_components} must be at most n_features={d}, the number of columns.")
        self._buffer_ = np.zeros((self._warmup_rows(), d))
        self._buffered_ = 0
        self._state_ = None
        self._scale_ = 1.0
        self._n_rows_ = 0
        self._cache_ = {}
        self.__dict__.pop("_settings_", None)

    def _warm_up(self, X: Array) -> int:
        """Keep rows until there are enough to start from; returns how many of X are done with."""
        rows = np.flatnonzero(~np.isnan(X).all(axis=1))
        if len(self._buffer_) == 0:
            if len(rows) == 0:
                return len(X)
            self._start_state(X[rows[:1]], self._n_rows_ + int(rows[0]))
            return int(rows[0])
        # Rows of nothing but NaN are passed over: they cannot start anything.
        rows = rows[: len(self._buffer_) - self._buffered_]
        self._buffer_[self._buffered_ : self._buffered_ + len(rows)] = X[rows]
        self._buffered_ += len(rows)
        if self._buffered_ < len(self._buffer_):
            return len(X)
        used = int(rows[-1]) + 1
        self._start_state(self._buffer_, self._n_rows_ + used)
        return used

    def _drop_buffer(self) -> None:
        self._buffer_ = self._buffer_[:0].copy()
        self._buffered_ = 0

    def _first_rows(self) -> Array:
        """The rows in the buffer."""
        if self._buffered_ == 0:
            raise InputError("The model has learned nothing yet: every row so far was NaN in all columns.")
        return self._buffer_[: self._buffered_]

    # -- the model that answers -------------------------------------------------------------------

    def _fitted(self) -> FittedPPCA:
        self._check_started()
        fitted: FittedPPCA | None = self._cache_.get("fitted")
        if fitted is None:
            fitted = self._cache_["fitted"] = self._new_fitted()
        return fitted

    def _axes(self) -> Axes:
        axes: Axes | None = self._cache_.get("axes")
        if axes is None:
            axes = self._cache_["axes"] = ask.axes(self._fitted().model)
        return axes

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
        fitted = self._fitted()
        filled = ask.fill(fitted.model, to_internal(self._check_X(X), fitted.inverse_scale, LIMIT))
        return (filled - fitted.model.mu) @ self._axes().components.T * fitted.scale

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
        fitted = self._fitted()
        rows = to_internal(self._check_X(X), fitted.inverse_scale, LIMIT)
        density = ask.log_density(fitted.model, rows)
        # Dividing d observed cells by the scale multiplies the density by scale^d.
        if fitted.scale != 1.0:
            density -= np.log(fitted.scale) * np.count_nonzero(rows == rows, axis=1)
        return density

    def impute(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Fill the gaps of each row with their expectation given what was observed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.
        return_std : bool, default=False
            Whether to return the standard deviation of each filled value too.

        Returns
        -------
        filled : ndarray or data frame of shape (n_samples, n_features)
            The rows without gaps; a data frame comes back as one.
        std : ndarray or data frame of shape (n_samples, n_features)
            Standard deviations, noise included, and zero where a value was observed; only with `return_std`.
        """
        fitted = self._fitted()
        rows = self._check_X(X)
        internal = to_internal(rows, fitted.inverse_scale, LIMIT)
        filled, variance = ask.fill_with_variance(fitted.model, internal)
        # Observed values come back bit for bit: they do not pass through the scale.
        filled = in_kind_of(X, np.where(np.isnan(rows), filled * fitted.scale, rows))
        return (filled, in_kind_of(X, np.sqrt(variance) * fitted.scale)) if return_std else filled

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Source of randomness; None takes that of the model.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The rows.
        """
        check_draws(n_samples)
        fitted = self._fitted()
        source = generator(self.random_state if random_state is None else random_state)
        return ask.sample(fitted.model, n_samples, source) * fitted.scale

    def get_covariance(self) -> Array:
        """Covariance of a row, W W' + sigma2 I.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            The covariance.
        """
        fitted = self._fitted()
        return ask.covariance(fitted.model) * fitted.scale * fitted.scale

    def get_precision(self) -> Array:
        """Inverse of the covariance of a row.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            The precision.
        """
        fitted = self._fitted()
        return ask.precision(fitted.model) / fitted.scale / fitted.scale

    def _answers(self) -> FactorAnswers:
        model, scale, _ = self._fitted()
        d = len(model.mu)
        stds = np.sqrt((model.W * model.W).sum(axis=1) + model.sigma2) * scale
        return FactorAnswers(
            *self._identity(), np.ones(1), model.mu[None].copy(), np.ascontiguousarray(model.W.T)[None],
            np.full((1, d), float(model.sigma2)), np.full(d, scale), self.mean_, stds,
            self.components_, self.explained_variance_ratio_,
        )  # fmt: skip

    # -- fitted attributes ------------------------------------------------------------------------

    @property
    def components_(self) -> Array:
        """Principal axes, orthonormal, the one of largest variance first."""
        return self._axes().components.copy()

    @property
    def loadings_(self) -> Array:
        """W: the principal axes times the standard deviation that each explains beyond the noise."""
        model, scale, _ = self._fitted()
        axes = self._axes()
        return axes.components.T * (np.sqrt(np.maximum(axes.variances - model.sigma2, 0.0)) * scale)

    @property
    def mean_(self) -> Array:
        """Mean of a row."""
        model, scale, _ = self._fitted()
        return model.mu * scale

    @property
    def noise_variance_(self) -> float:
        """Variance of the noise in each column."""
        model, scale, _ = self._fitted()
        return model.sigma2 * scale * scale

    @property
    def explained_variance_(self) -> Array:
        """Variance along each principal axis, noise included."""
        scale = self._fitted().scale
        return self._axes().variances * scale * scale

    @property
    def explained_variance_ratio_(self) -> Array:
        """Share of the total variance along each principal axis."""
        model, variances = self._fitted().model, self._axes().variances
        d, q = model.W.shape
        return variances / (variances.sum() + (d - q) * model.sigma2)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return self._n_rows_

    @property
    def _n_features_out(self) -> int:
        return len(self._axes().components)
