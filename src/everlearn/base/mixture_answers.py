"""What all Gaussian mixtures answer alike: scikit-learn's face, any columns from any others, the score of the stream,
events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from everlearn.base.columns import Indices, column_numbers
from everlearn.base.conditioning import Conditional
from everlearn.base.density import Density
from everlearn.base.estimator import StreamEstimator, as_rows, column_names
from everlearn.base.frames import in_kind_of
from everlearn.errors import InputError
from everlearn.gaussian import conditional
from everlearn.gaussian.conditional import ConditionalMixture
from everlearn.monitoring import event_log
from everlearn.monitoring.event_log import Event, MonitorState
from everlearn.typing import Array

# Conditional mixtures are made for so many rows at a time that they fill about this many numbers (16 MiB).
PART = 2**21


class MixtureAnswers(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Density, StreamEstimator):
    """Base of the mixtures. A subclass implements `predict`, `predict_proba`, `_n_parameters`, `_conditional` and
    `_expected_gaps`, and keeps a `_monitor_`.
    """

    if TYPE_CHECKING:
        random_state: Any
        _monitor_: MonitorState

        @property
        def n_components_(self) -> int:
            """Number of components."""

        def predict(self, X: ArrayLike) -> NDArray[np.intp]:
            """Component of each row."""

        def predict_proba(self, X: ArrayLike) -> Array:
            """Posterior probability of each component for each row."""

    def _n_parameters(self) -> float:
        """Free parameters of all components."""
        raise NotImplementedError

    def _conditional(self, rows: Array, columns: Indices) -> tuple[ConditionalMixture, Array]:
        """The mixture of some columns for each row, given what else is observed in it, and the scale of each column."""
        raise NotImplementedError

    def _expected_gaps(self, rows: Array) -> tuple[Array, Array]:
        """The expectation of every missing value given its row, and its standard deviation, zero elsewhere."""
        raise NotImplementedError

    def _conditional_mean(self, rows: Array, columns: Indices) -> Array:
        """Expected values of some columns for each row."""
        return np.concatenate([part.mean() for part in self._conditional_parts(rows, columns)])

    def _conditional_parts(self, rows: Array, columns: Indices) -> Iterator[Conditional]:
        """Conditional distributions of some rows after others: they are larger than what is asked of them."""
        # A conditional mixture has a mean for each row, component and target, and deviations of all columns on the way.
        step = max(1, PART // ((self.n_components_ + 1) * max(len(columns), 1) * self.n_features_in_))
        for start in range(0, len(rows), step):
            yield Conditional(*self._conditional(rows[start : start + step], columns), [])

    def fit_predict(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> NDArray[np.intp]:
        """Forget everything, learn the rows of X and return the component of each.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : ignored
            Present for the scikit-learn interface.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Component numbers.
        """
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def transform(self, X: ArrayLike) -> Array:
        """Posterior probability of each component for each row: features for what comes next in a pipeline.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            `predict_proba(X)`.
        """
        return self.predict_proba(X)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion of the mixture on X; the lower, the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        float
            ``-2 log-likelihood + parameters log(n)``.
        """
        log_density = self.score_samples(X)
        return float(-2.0 * log_density.sum() + self._n_parameters() * np.log(len(log_density)))

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion of the mixture on X; the lower, the better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        float
            ``-2 log-likelihood + 2 parameters``.
        """
        return float(-2.0 * self.score_samples(X).sum() + 2.0 * self._n_parameters())

    def prequential(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
        """Learn the rows of X, and return the log-density that each had just before it was learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-densities, in nats; NaN for rows that came while the model was warming up.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import IncrementalGaussianMixture
        >>> X = np.random.default_rng(0).normal(size=(1000, 2))
        >>> X[700] = 9.0
        >>> log_density = IncrementalGaussianMixture().prequential(X)
        >>> int(np.nanargmin(log_density))
        700
        """
        log_density: Array = self._advance(X, None, sample_weight)
        return log_density

    # -- any columns from any others ----------------------------------------------------------------

    def condition(self, X: ArrayLike, *, given: Any = None, target: Any = None) -> Conditional:
        """Distribution of some columns for each row, once others are known.

        Columns are chosen by name or number, one or a list. NaN among the known values means "not observed".

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_given)
            Without `given`: rows with all columns of the model, in which the target columns are not looked at. With
            `given`: those columns only, in that order.
        given : column or list of columns, optional
            The columns that X holds; by default all.
        target : column or list of columns, optional
            The columns to answer for; by default all that are not given.

        Returns
        -------
        Conditional
            A Gaussian mixture for each row: mean, standard deviation, quantiles, intervals, density, samples.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import IncrementalGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=2000)
        >>> model = IncrementalGaussianMixture().fit(np.column_stack([x, 3 * x + 1]))
        >>> model.condition([[2.0]], given=0, target=1).mean().round(1)
        array([[7.]])
        """
        rows, columns = self._question(X, given, target)
        names = self._names()
        shown = columns.tolist() if names is None else [names[column] for column in columns]
        return Conditional(*self._conditional(rows, columns), shown)

    def predict_columns(
        self,
        X: ArrayLike,
        target: Any,
        *,
        given: Any = None,
        return_std: bool = False,
        return_cov: bool = False,
        interval: float | None = None,
    ) -> Any:
        """Expected values of some columns for each row, given the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_given)
            Rows, as for `condition`.
        target : column or list of columns
            The columns to predict, by name or number.
        given : column or list of columns, optional
            The columns that X holds; by default all.
        return_std : bool, default=False
            Whether to return standard deviations too.
        return_cov : bool, default=False
            Whether to return covariances too.
        interval : float, optional
            Whether to return the ends of the central interval of this probability too.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_targets)
            Expected values. What else was asked for follows in a tuple, in the order of the parameters:
        std : ndarray of shape (n_samples, n_targets)
            Standard deviations.
        cov : ndarray of shape (n_samples, n_targets, n_targets)
            Covariances.
        ends : tuple (low, high) of ndarray of shape (n_samples, n_targets)
            Ends of the intervals.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import IncrementalGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=2000)
        >>> model = IncrementalGaussianMixture().fit(np.column_stack([x, 3 * x + 1, -x]))
        >>> model.predict_columns([[2.0]], target=[1, 2], given=0).round(1)
        array([[ 7., -2.]])
        >>> mean, (low, high) = model.predict_columns([[2.0, np.nan, np.nan]], target=1, interval=0.9)
        >>> bool(low < mean < high)
        True
        """
        if interval is not None:
            conditional.check_coverage("interval", interval)
        rows, columns = self._question(X, given, target)
        if not (return_std or return_cov or interval is not None):
            return self._conditional_mean(rows, columns)
        answers: list[list[Any]] = []
        for part in self._conditional_parts(rows, columns):
            found: list[Any] = [part.mean()]
            found += [part.std()] if return_std else []
            found += [part.cov()] if return_cov else []
            found += [] if interval is None else part.interval(interval)
            answers.append(found)
        joined = [np.concatenate(values) for values in zip(*answers, strict=True)]
        return tuple(joined) if interval is None else (*joined[:-2], tuple(joined[-2:]))

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
            The rows without gaps; observed values as they were. A data frame comes back as one.
        std : ndarray or data frame of shape (n_samples, n_features)
            Standard deviations, zero where a value was observed; only with `return_std`.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import IncrementalGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=2000)
        >>> model = IncrementalGaussianMixture().fit(np.column_stack([x, 3 * x + 1]))
        >>> model.impute([[2.0, np.nan], [np.nan, 4.0]]).round(1)
        array([[2., 7.],
               [1., 4.]])
        """
        self._check_started()
        rows = self._check_X(X)
        values, std = self._expected_gaps(rows)
        filled = in_kind_of(X, np.where(np.isnan(rows), values, rows))
        return (filled, in_kind_of(X, std)) if return_std else filled

    def sample_columns(
        self, X: ArrayLike, target: Any, *, given: Any = None, n_samples: int = 1, random_state: Any = None
    ) -> Array:
        """Draw values of some columns for each row, given the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_given)
            Rows, as for `condition`.
        target : column or list of columns
            The columns to draw, by name or number.
        given : column or list of columns, optional
            The columns that X holds; by default all.
        n_samples : int, default=1
            Draws for each row.
        random_state : int, RandomState instance or None, default=None
            Source of randomness; None takes that of the model.

        Returns
        -------
        ndarray of shape (n_rows, n_samples, n_targets)
            The draws.
        """
        source = self.random_state if random_state is None else random_state
        return self.condition(X, given=given, target=target).sample(n_samples, source)

    def _names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)

    def _question(self, X: ArrayLike, given: Any, target: Any) -> tuple[Array, Indices]:
        """Rows with all columns, NaN where nothing is given, and the numbers of the target columns."""
        self._check_started()
        names, D = self._names(), self.n_features_in_
        if given is None:
            if target is None:
                raise InputError("Say which columns to ask for: target= by name or number, or given= for all others.")
            return self._check_X(X), column_numbers(target, names, D, "target")
        known = column_numbers(given, names, D, "given")
        columns = np.setdiff1d(np.arange(D), known) if target is None else column_numbers(target, names, D, "target")
        if not len(columns) or np.isin(columns, known).any():
            raise InputError(f"given={given!r} and target={target!r} must be different columns, and target not empty.")
        values, own = as_rows(X), column_names(X)
        if values.shape[1] != len(known):
            raise InputError(f"X has {values.shape[1]} columns, given names {len(known)}; X holds the given ones only.")
        wanted = None if names is None else [names[column] for column in known]
        if own is not None and wanted is not None and own != wanted:
            raise InputError(f"X has the columns {own}, given names {wanted}. Give X in the order of given.")
        # Columns that are not given are gaps like any others.
        rows = np.full((len(values), D), np.nan)
        rows[:, known] = values
        return self._check_X(rows), columns

    # -- the stream so far -------------------------------------------------------------------------

    @property
    def prequential_score_(self) -> float | None:
        """Mean log-density of the rows, each taken before it was learned; None while there is none."""
        self._check_started()
        n, total = self._monitor_.totals
        return float(total / n) if n else None

    @property
    def events_(self) -> list[Event]:
        """The latest novelties and changes."""
        self._check_started()
        return event_log.events(self._monitor_)
