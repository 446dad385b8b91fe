"""IncrementalGaussianMixtureRegressor: real targets from a stream, with their uncertainty."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from everlearn.base.conditioning import Conditional
from everlearn.base.estimator import StreamEstimator
from everlearn.base.privacy import MIN_ROWS
from everlearn.errors import InputError, ModelFileError
from everlearn.mixture.estimator import IncrementalGaussianMixture

Array = NDArray[np.float64]


class IncrementalGaussianMixtureRegressor(RegressorMixin, StreamEstimator):
    """Regression by a Gaussian mixture of inputs and targets together, learned from a stream in one pass.

    A prediction is the distribution of the targets given the inputs: a mixture of linear regressions, each where its
    component is. NaN means "not observed" among the inputs, in learning and in predicting.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of components; None finds it, 1 is linear regression.
    max_components : "auto" or int, default="auto"
        Most components that are kept; "auto" is 64, or fewer where covariances of many columns would fill 128 MiB.
    reservoir : "auto" or int, default="auto"
        Number of rows that are kept for the searches of the structure; see `IncrementalGaussianMixture`.
    covariance_type : {"full", "diag", "low_rank", "auto"}, default="full"
        Shape of the covariances; see `IncrementalGaussianMixture`. With "diag" inputs say about targets only which
        component they come from.
    forgetting : None, float or "adaptive", default=None
        Factor by which what was learned fades with each row, for a memory of about 1/(1 - forgetting) rows; "adaptive"
        chooses it as it goes. None forgets nothing.
    scale : "auto" or array-like of shape (n_features + n_outputs,), default="auto"
        Standard deviation of each column, inputs first. "auto" estimates it from the first rows.
    verbose : int, default=0
        Whether `fit` shows a progress bar.

    Attributes
    ----------
    n_outputs_ : int
        Number of targets.
    n_components_ : int
        Number of components that predictions come from.
    n_samples_seen_ : int
        Number of rows learned.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where the data had names.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import IncrementalGaussianMixtureRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, 4000)
    >>> y = np.sin(x) + rng.normal(0, 0.1, 4000)
    >>> model = IncrementalGaussianMixtureRegressor().partial_fit(x[:, None], y)
    >>> mean, std = model.predict([[0.0], [np.pi / 2]], return_std=True)
    >>> mean.round(1) + 0.0, std.round(1)
    (array([0., 1.]), array([0.1, 0.1]))
    """

    _allow_nan: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: accepted
        for name, accepted in IncrementalGaussianMixture._parameter_constraints.items()
        if name not in ("novelty_level", "change_detector", "device", "random_state", "rank")
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_components: Any = "auto",
        reservoir: Any = "auto",
        covariance_type: str = "full",
        forgetting: Any = None,
        scale: Any = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.max_components = max_components
        self.reservoir = reservoir
        self.covariance_type = covariance_type
        self.forgetting = forgetting
        self.scale = scale
        self.verbose = verbose

    # -- learning ---------------------------------------------------------------------------------

    def _check_batch(
        self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None, *, first: bool
    ) -> tuple[Array, Any, Array | None]:
        """Inputs with the targets beside them."""
        rows, targets, weights = super()._check_batch(X, y, sample_weight, first=first)
        if first:
            self.n_outputs_ = targets.shape[1]
            self._flat_ = np.asarray(y).ndim == 1
        elif targets.shape[1] != self.n_outputs_:
            raise InputError(f"y has {targets.shape[1]} columns; the model learned {self.n_outputs_}.")
        return np.hstack([rows, targets]), None, weights

    def _check_y(self, y: Any, n_rows: int) -> Array:
        if y is None:
            raise InputError("This regressor requires y to be passed, but the target y is None.")
        try:
            targets = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"y must hold numbers: {error}") from error
        targets = targets[:, None] if targets.ndim == 1 else targets
        if targets.ndim != 2 or len(targets) != n_rows or targets.shape[1] == 0:
            raise InputError(
                f"y has shape {np.asarray(y).shape}; give a target, or a row of targets, for each of {n_rows} rows."
            )
        if not np.isfinite(targets).all():
            row = int(np.argmax(~np.isfinite(targets).all(axis=1)))
            raise InputError(f"Input y contains NaN or infinity at row {row}; leave out rows without a target.")
        return targets

    def _start(self, X: Array, *, whole: bool) -> None:
        parameters = self.get_params(deep=False)
        del parameters["verbose"]
        self._joint_ = IncrementalGaussianMixture(**parameters)
        self._joint_.n_features_in_ = X.shape[1]
        self._joint_._start(X, whole=whole)

    def _takes_long(self, n_rows: int) -> bool:
        return self._joint_._takes_long(n_rows)

    def _learn(self, X: Array, y: Any, weights: Array | None) -> None:
        self._joint_._learn(X, None, weights)

    # -- answers ----------------------------------------------------------------------------------

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Expected targets of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.
        return_std : bool, default=False
            Whether to return standard deviations too: those of a target, its noise included.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Expected targets, in the shape that y had.
        std : ndarray of the same shape
            Standard deviations; only with `return_std`.
        """
        rows, target = self._question(X)
        answer = self._joint_.predict_columns(rows, target, return_std=return_std)
        return tuple(map(self._shaped, answer)) if return_std else self._shaped(answer)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination R^2 of the prediction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like
            Their true targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            R^2, 1 for a perfect prediction.
        """
        return float(super().score(X, y, sample_weight))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> tuple[Array, Array]:
        """Interval of each target that holds it with the given probability, the same share on both sides left out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.
        coverage : float, default=0.9
            Probability inside the interval.

        Returns
        -------
        low, high : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Its ends.
        """
        rows, target = self._question(X)
        _, (low, high) = self._joint_.predict_columns(rows, target, interval=coverage)
        return self._shaped(low), self._shaped(high)

    def condition(self, X: ArrayLike) -> Conditional:
        """Distribution of the targets for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; NaN where a value was not observed.

        Returns
        -------
        Conditional
            A Gaussian mixture for each row: mean, standard deviation, quantiles, intervals, density, samples.
        """
        rows, target = self._question(X)
        return self._joint_.condition(rows, target=target)

    def _question(self, X: ArrayLike) -> tuple[Array, range]:
        """Rows with open targets beside them, and the numbers of the target columns."""
        self._check_started()
        rows = self._check_X(X)
        open_targets = np.full((len(rows), self.n_outputs_), np.nan)
        return np.hstack([rows, open_targets]), range(rows.shape[1], rows.shape[1] + self.n_outputs_)

    def _shaped(self, values: Array) -> Array:
        return values[:, 0] if self._flat_ else values

    @property
    def n_components_(self) -> int:
        """Number of components that predictions come from."""
        self._check_started()
        return self._joint_.n_components_

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return self._joint_.n_samples_seen_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # -- merging and loading ----------------------------------------------------------------------

    @property
    def keeps_rows_(self) -> bool:
        """Whether the model, and with it its file, holds rows of the stream."""
        self._check_started()
        return self._joint_.keeps_rows_

    def _ask_without_search(self) -> None:
        self._joint_._ask_without_search()

    def _rows_inside(self) -> int:
        return self._joint_._rows_inside()

    def _rows_of_components(self) -> Array:
        return self._joint_._rows_of_components()

    def anonymised(self, min_rows: int = MIN_ROWS) -> Self:
        """Return a copy without rows of the stream, whose components stand for `min_rows` rows or more each.

        See `IncrementalGaussianMixture.anonymised`: inputs and targets are columns of one mixture.

        Parameters
        ----------
        min_rows : int, default=20
            Rows that a component stands for at least.

        Returns
        -------
        IncrementalGaussianMixtureRegressor
            The copy.
        """
        self._check_started()
        new = self.copy()
        new.reservoir, new._joint_ = 0, self._joint_.anonymised(min_rows)
        return new

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        merged = self.copy()
        rest = [other._joint_ for other in others]
        merged._joint_ = self._joint_.merge(*rest, method=method, weights=weights, n_components=n_components)
        return merged

    def _check_loaded(self) -> None:
        if type(self.n_outputs_) is not int or self.n_outputs_ < 1 or type(self._flat_) is not bool:
            raise ModelFileError("the number of targets is missing.")
        width = vars(self._joint_).get("n_features_in_") if type(self._joint_) is IncrementalGaussianMixture else None
        if width != self.n_features_in_ + self.n_outputs_:
            raise ModelFileError("the mixture does not have the columns of inputs and targets.")
