"""What all estimators share: validation, fit and partial_fit, copies, merging, saving."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, validate_data

from everlearn.errors import InputError, MergeError
from everlearn.linalg.chunked import first_invalid

_FLOAT64 = np.dtype(np.float64)
_PROGRESS_ROWS = 4096


class StreamEstimator(BaseEstimator):
    """Base of every estimator: a scikit-learn estimator whose model grows with a stream.

    A subclass stores its fitted state in attributes whose names end in an underscore, names its
    caches in `_transient`, and implements `_learn`, `_merge` and `_check_loaded`.
    """

    _allow_nan: ClassVar[bool] = False
    _transient: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows to learn. NaN means "not observed" where the model accepts it.
        y : array-like of shape (n_samples,), optional
            Targets or labels, for the models that use them.
        sample_weight : array-like of shape (n_samples,), optional
            Positive weights of the rows.

        Returns
        -------
        self
            The fitted estimator.
        """
        fresh = self._unfitted()
        rows, y, weights = fresh._check_batch(X, y, sample_weight, first=True)
        fresh._start(rows, whole=True)
        for part in _progress(len(rows), getattr(self, "verbose", 0)):
            fresh._learn(rows[part], _rows_of(y, part), _rows_of(weights, part))
        self._adopt(fresh)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Go on learning from the rows of X in their order.

        Any split of a stream into batches gives the same model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream. NaN means "not observed" where the model accepts it.
        y : array-like of shape (n_samples,), optional
            Targets or labels, for the models that use them.
        sample_weight : array-like of shape (n_samples,), optional
            Positive weights of the rows.

        Returns
        -------
        self
            The estimator, further on in the stream.
        """
        self._advance(X, y, sample_weight)
        return self

    def _advance(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None) -> Any:
        """Check and learn the next rows of the stream; returns what `_learn` does."""
        if self._is_started():
            return self._learn(*self._check_batch(X, y, sample_weight, first=False))
        fresh = self._unfitted()
        rows, y, weights = fresh._check_batch(X, y, sample_weight, first=True)
        fresh._start(rows, whole=False)
        result = fresh._learn(rows, y, weights)
        self._adopt(fresh)
        return result

    def copy(self) -> Self:
        """Return an independent copy that goes on learning as this model would."""
        return copy.deepcopy(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file; see :func:`everlearn.save`."""
        from everlearn.persistence.model_file import save

        save(self, path)

    def merge(
        self,
        *others: Self,
        method: str = "auto",
        weights: ArrayLike | None = None,
        n_components: int | None = None,
    ) -> Self:
        """Return what this model and `others` know together; none of them changes.

        Parameters
        ----------
        *others : estimators of the same class
            Models learned elsewhere on the same columns with the same parameters.
        method : {"auto", "mean", "mode", "bayes"}, default="auto"
            The rule of merging.
        weights : array-like, optional
            Relative trust in each model, this one first.
        n_components : int, optional
            Reduce the merged model to this many components.

        Returns
        -------
        merged
            A new estimator.
        """
        for other in others:
            self._check_mergeable(other)
        models = [self, *others]
        started = [i for i, model in enumerate(models) if model._is_started()]
        if not started or (len(started) == 1 and n_components is None):
            return models[started[0] if started else 0].copy()
        if weights is not None:
            weights = _check_merge_weights(weights, len(models))[started]
        first, *rest = (models[i] for i in started)
        return first._merge(rest, method=method, weights=weights, n_components=n_components)

    def __add__(self, other: Self) -> Self:
        return self.merge(other) if isinstance(other, StreamEstimator) else NotImplemented

    # -- what a subclass implements ---------------------------------------------------------------

    def _start(self, X: NDArray[np.float64], *, whole: bool) -> None:
        """Prepare the fitted state; `whole` says that X is all the data of a `fit`."""
        raise NotImplementedError

    def _learn(self, X: NDArray[np.float64], y: Any, weights: NDArray[np.float64] | None) -> Any:
        """Learn validated rows."""
        raise NotImplementedError

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        raise MergeError(f"{type(self).__name__} cannot be merged.")

    def _to_save(self) -> dict[str, Any]:
        """Fitted attributes as a file holds them: without parameters and caches."""
        params = self.get_params(deep=False)
        return {name: value for name, value in vars(self).items() if name not in params and name not in self._transient}

    def _check_loaded(self) -> None:
        """Verify the shapes of a state that came from a file, raising ModelFileError."""

    # -- validation -------------------------------------------------------------------------------

    def _is_started(self) -> bool:
        return "n_features_in_" in self.__dict__

    def _check_started(self) -> None:
        if not self._is_started():
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' or 'partial_fit' first."
            )

    def _unfitted(self) -> Self:
        """A shallow copy that keeps the parameters as they are and has learned nothing."""
        self._validate_params()
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.get_params(deep=False))
        return fresh

    def _adopt(self, fresh: Self) -> None:
        """Take over what `fresh` has learned in place of what was learned before."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self.__dict__.update({name: value for name, value in vars(fresh).items() if name.endswith("_")})

    def _check_batch(
        self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None, *, first: bool
    ) -> tuple[NDArray[np.float64], Any, NDArray[np.float64] | None]:
        rows = self._check_X(X, first=first)
        weights = None if sample_weight is None else check_weights(sample_weight, len(rows))
        return rows, self._check_y(y, len(rows)), weights

    def _check_y(self, y: Any, n_rows: int) -> Any:
        """Targets are ignored unless a subclass takes them."""
        return None

    def _check_X(self, X: ArrayLike, *, first: bool = False) -> NDArray[np.float64]:
        """Rows as a C-contiguous float64 array; a plain array of a fitted model takes the short way."""
        if (
            first
            or type(X) is not np.ndarray
            or X.dtype is not _FLOAT64
            or X.ndim != 2
            or X.shape[1] != self.__dict__.get("n_features_in_")
            or X.shape[0] == 0
            or not X.flags.c_contiguous
        ):
            return self._check_X_in_full(X, first)
        if first_invalid(X, allow_nan=self._allow_nan) >= 0:
            self._refuse_cell(X)
        return X

    def _check_X_in_full(self, X: ArrayLike, first: bool) -> NDArray[np.float64]:
        if not first:
            self._check_started()
        rows = as_rows(X)
        if first_invalid(rows, allow_nan=self._allow_nan) >= 0:
            self._refuse_cell(rows, column_names(X))
        try:
            validate_data(self, X, reset=first, skip_check_array=True)
        except ValueError as error:
            raise InputError(str(error)) from error
        return rows

    def _refuse_cell(self, X: NDArray[np.float64], columns: Any = None) -> None:
        row, column = divmod(first_invalid(X, allow_nan=self._allow_nan), X.shape[1])
        names = getattr(self, "feature_names_in_", columns)
        name = f"{names[column]!r}" if names is not None else f"{column}"
        what = "NaN" if np.isnan(X[row, column]) else "infinity"
        accepted = "finite numbers, or NaN for a value that was not observed" if self._allow_nan else "finite numbers"
        raise InputError(
            f"Input X contains {what} at row {row}, column {name}. {type(self).__name__} accepts {accepted}. "
            "Remove the row or repair the value."
        )

    def _check_mergeable(self, other: Any) -> None:
        if type(other) is not type(self):
            raise MergeError(f"{type(self).__name__} cannot be merged with {type(other).__name__}.")
        if self._is_started() and other._is_started():
            self._check_same_columns(other)
        for name, value in self.get_params(deep=False).items():
            if name not in ("verbose", "random_state", "device") and not _equal(
                value, other.get_params(deep=False)[name]
            ):
                raise MergeError(
                    f"The models were made with different parameters: {name}={value!r} and "
                    f"{name}={other.get_params(deep=False)[name]!r}. Merge models with the same parameters."
                )

    def _check_same_columns(self, other: Self) -> None:
        if self.n_features_in_ != other.n_features_in_:
            raise MergeError(f"The models have {self.n_features_in_} and {other.n_features_in_} columns.")
        mine, theirs = (list(getattr(model, "feature_names_in_", ())) for model in (self, other))
        if mine != theirs:
            raise MergeError(f"The models have other column names: {_names(mine)} and {_names(theirs)}.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allow_nan
        return tags


def as_rows(X: Any) -> NDArray[np.float64]:
    """Convert any table to a C-contiguous float64 array, naming the first cell that is no number."""
    try:
        return check_array(X, dtype=np.float64, order="C", ensure_all_finite=False)  # type: ignore[no-any-return]
    except ValueError as error:
        cell = _first_text(X)
        if cell is None:
            raise InputError(f"Input X cannot be taken: {error}") from error
        row, column, value = cell
        raise InputError(
            f"Input X has {value!r} at row {row}, column {column}, which is not a number ({error}). "
            "Leave the column out or encode it as numbers."
        ) from error


def check_weights(sample_weight: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Weights of rows: one positive finite number each."""
    try:
        given = np.asarray(sample_weight)
        weights = given.astype(np.float64, order="C", casting="unsafe" if given.dtype == object else "same_kind")
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must hold one positive number a row; {error}.") from error
    if weights.ndim == 0:
        weights = np.full(n_rows, float(weights))
    if weights.shape != (n_rows,):
        raise InputError(f"sample_weight has shape {weights.shape}; X has {n_rows} rows. Give one weight a row.")
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"sample_weight must be positive and finite, not zero or negative; row {row} has the weight "
            f"{weights[row]}. Leave out rows that should not count."
        )
    return weights


def _check_merge_weights(weights: ArrayLike, n_models: int) -> NDArray[np.float64]:
    try:
        if np.ndim(weights):
            return check_weights(weights, n_models)
    except InputError:
        pass
    raise InputError(f"weights must be one positive number for each of the {n_models} models; got {weights!r}.")


def _first_text(X: Any) -> tuple[int, Any, Any] | None:
    """Row, column and value of the first cell that cannot be read as a number."""
    names = column_names(X)
    try:
        cells = np.asarray(X, dtype=object)
    except ValueError:
        return None
    if cells.ndim != 2:
        return None
    for row, values in enumerate(cells):
        for column, value in enumerate(values):
            try:
                value is None or float(value)
            except (TypeError, ValueError):
                return row, repr(names[column]) if names else column, value
    return None


def column_names(X: Any) -> list[Any] | None:
    """Names of the columns of a table, where it has them; Arrow calls them differently."""
    names = getattr(X, "column_names", getattr(X, "columns", None))
    return None if names is None else list(names)


def _rows_of(values: Any, part: slice) -> Any:
    return None if values is None else values[part]


def _progress(n_rows: int, verbose: int) -> Iterator[slice]:
    """Slices over all rows, with a bar on the terminal when `verbose` is set."""
    if not verbose:
        yield slice(0, n_rows)
        return
    from rich.progress import track

    starts = range(0, n_rows, _PROGRESS_ROWS)
    for start in track(starts, description="learning"):
        yield slice(start, start + _PROGRESS_ROWS)


def _names(names: list[Any]) -> str:
    return ", ".join(map(str, names)) or "none"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(np.asarray(a), np.asarray(b))
    return bool(a == b)
