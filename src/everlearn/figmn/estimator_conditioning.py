"""Asking a mixture for any columns, given any others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.base.columns import Indices, column_numbers
from everlearn.base.conditioning import LIMIT as LIMIT
from everlearn.base.conditioning import Conditional
from everlearn.base.estimator import as_rows, column_names
from everlearn.errors import InputError
from everlearn.figmn import ask as asking
from everlearn.figmn.learn import MixtureState
from everlearn.gaussian import conditional
from everlearn.linalg.chunked import to_internal

if TYPE_CHECKING:
    from everlearn.figmn.settings import Constants

Array = NDArray[np.float64]


class MixtureConditioning:
    """Any columns from any others; the estimator provides `_answer`."""

    if TYPE_CHECKING:
        n_features_in_: int
        random_state: Any

        def _answer(self) -> tuple[MixtureState, Constants]: ...
        def _check_X(self, X: ArrayLike, *, first: bool = False) -> Array: ...
        def _check_started(self) -> None: ...

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
        >>> from everlearn.figmn.first_edition import IncrementalGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=2000)
        >>> model = IncrementalGaussianMixture(beta=0).fit(np.column_stack([x, 3 * x + 1]))
        >>> model.condition([[2.0]], given=0, target=1).mean().round(1)
        array([[7.]])
        """
        rows, columns = self._ask_for(X, given, target)
        state, constants = self._answer()
        mixture = asking.condition(state, to_internal(rows, constants.inverse_scale, LIMIT), columns)
        names = self._names()
        shown = columns.tolist() if names is None else [names[column] for column in columns]
        return Conditional(mixture, constants.frame.scale[columns], shown)

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
        >>> from everlearn.figmn.first_edition import IncrementalGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=2000)
        >>> model = IncrementalGaussianMixture(beta=0).fit(np.column_stack([x, 3 * x + 1, -x]))
        >>> model.predict_columns([[2.0]], target=[1, 2], given=0).round(1)
        array([[ 7., -2.]])
        >>> mean, (low, high) = model.predict_columns([[2.0, np.nan, np.nan]], target=1, interval=0.9)
        >>> bool(low < mean < high)
        True
        """
        rows, columns = self._ask_for(X, given, target)
        state, constants = self._answer()
        scale = constants.frame.scale[columns]
        if interval is not None:
            conditional.check_coverage("interval", interval)
        if not (return_std or return_cov or interval is not None):
            return asking.conditional_mean(state, to_internal(rows, constants.inverse_scale, LIMIT), columns) * scale
        wanted = ["mean"] + ["std"] * bool(return_std) + ["cov"] * bool(return_cov)
        found: dict[str, list[Any]] = {name: [] for name in (*wanted, "interval")}
        for part in asking.conditional_parts(state, to_internal(rows, constants.inverse_scale, LIMIT), columns):
            answer = Conditional(part, scale, [])
            for name in wanted:
                found[name].append(getattr(answer, name)())
            if interval is not None:
                found["interval"].append(answer.interval(interval))
        answers: list[Any] = [np.concatenate(found[name]) for name in wanted]
        if interval is not None:
            answers.append(tuple(np.concatenate(ends) for ends in zip(*found["interval"], strict=True)))
        return answers[0] if len(answers) == 1 else tuple(answers)

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
            The rows without gaps; observed values as they were.
        std : ndarray of shape (n_samples, n_features)
            Standard deviations, zero where a value was observed; only with `return_std`.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn.figmn.first_edition import IncrementalGaussianMixture
        >>> x = np.random.default_rng(0).normal(size=2000)
        >>> model = IncrementalGaussianMixture(beta=0).fit(np.column_stack([x, 3 * x + 1]))
        >>> model.impute([[2.0, np.nan], [np.nan, 4.0]]).round(1)
        array([[2., 7.],
               [1., 4.]])
        """
        self._check_started()
        rows = self._check_X(X)
        state, constants = self._answer()
        mean, std = asking.impute(state, to_internal(rows, constants.inverse_scale, LIMIT))
        filled: Array = np.where(np.isnan(rows), mean * constants.frame.scale, rows)
        return (filled, std * constants.frame.scale) if return_std else filled

    def sample_columns(self, X: ArrayLike, target: Any, *, given: Any = None, n_samples: int = 1) -> Array:
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

        Returns
        -------
        ndarray of shape (n_rows, n_samples, n_targets)
            The draws.
        """
        return self.condition(X, given=given, target=target).sample(n_samples, self.random_state)

    # -- which columns ----------------------------------------------------------------------------

    def _names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)

    def _ask_for(self, X: ArrayLike, given: Any, target: Any) -> tuple[Array, Indices]:
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
        values = self._given_values(X, known)
        rows = np.full((len(values), D), np.nan)
        rows[:, known] = values
        return self._check_X(rows), columns

    def _given_values(self, X: ArrayLike, known: Indices) -> Array:
        values, names, own = as_rows(X), self._names(), column_names(X)
        if values.shape[1] != len(known):
            raise InputError(f"X has {values.shape[1]} columns, given names {len(known)}; X holds the given ones only.")
        wanted = None if names is None else [names[column] for column in known]
        if own is not None and wanted is not None and own != wanted:
            raise InputError(f"X has the columns {own}, given names {wanted}. Give X in the order of given.")
        return values
