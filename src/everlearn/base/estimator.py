"""What all estimators share: validation, fit and partial_fit, copies, merging, saving."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import os
import time
from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, validate_data

from everlearn.base.interrupts import HeldInterrupts, checkpoint
from everlearn.base.privacy import MIN_ROWS, Privacy, privacy_of
from everlearn.base.redo_log import UNDO_ROWS, drop_log, log_of
from everlearn.base.snapshot import copied
from everlearn.base.user_warnings import warn_user
from everlearn.errors import InputError, MergeError
from everlearn.linalg.chunked import first_invalid
from everlearn.persistence.answers import AnyAnswers, PredictorAnswers
from everlearn.persistence.metadata import Origin, contributions, origin_of
from everlearn.persistence.schema import MOST_WEIGHT
from everlearn.typing import Array, CovarianceModel

_FLOAT64 = np.dtype(np.float64)
_PROGRESS_ROWS = 4096
# Cells of a part of a long batch: tens of milliseconds of learning, after which Ctrl-C is heard.
_PART_CELLS = 2**18
# A file says the ranges of so many columns: more would need covariances that take longer than saving.
_MOST_DESCRIBED = 256


class StreamEstimator(BaseEstimator):
    """Base of every estimator: a scikit-learn estimator whose model grows with a stream.

    A subclass stores its fitted state in attributes whose names end in an underscore, names its
    caches in `_transient`, and implements `_learn`, `_merge` and `_check_loaded`.
    """

    _allow_nan: ClassVar[bool] = False
    _transient: ClassVar[tuple[str, ...]] = ()
    # Parameters that may differ between models that are merged, and which of them then holds; no word about some.
    _merge_free: ClassVar[dict[str, str]] = {"verbose": "", "random_state": "", "device": ""}
    # Whether columns may stand in another order, or be absent, in models that are merged.
    _merges_by_name: ClassVar[bool] = False
    _why_not_merged: ClassVar[str] = ""  # of a class without `_merge`
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return list(_parameter_names(cls))  # type: ignore[arg-type]

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as scikit-learn does; rows learned from now on are learned with them.

        Parameters
        ----------
        **params : dict
            Names and values.

        Returns
        -------
        self
            The estimator.
        """
        drop_log(self)
        super().set_params(**params)
        return self

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows of X in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows to learn. NaN means "not observed" where the model accepts it.
        y : array-like of shape (n_samples,), optional
            Targets or labels, for the models that use them.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight zero is left out.

        Returns
        -------
        self
            The fitted estimator.
        """
        # All is learned into a new model that replaces this one at the end: what fails on the way has changed nothing.
        fresh = self._unfitted()
        rows, y, weights = fresh._check_batch(X, y, sample_weight, first=True)
        check_rows_left(rows)
        fresh._start(rows, whole=True)
        with HeldInterrupts(undoable=True):
            for part in _progress(len(rows), getattr(self, "verbose", 0)):
                fresh._learn(rows[part], _rows_of(y, part), _rows_of(weights, part))
                checkpoint()
        self._adopt(fresh)
        self._note_beginning()
        return self

    def _note_beginning(self) -> None:
        """Write down that the model was made now, from rows that ended now."""
        self._last_row_ = time.time()
        self._origin_ = Origin(created=self._last_row_)

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Go on learning from the rows of X in their order.

        Any split of a stream into batches gives the same model. After an exception, an interrupt (Ctrl-C) included, the
        model is what it was before the call. While a few rows are learned, which takes no time, an interrupt waits and
        comes after the call.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The next rows of the stream. NaN means "not observed" where the model accepts it.
        y : array-like of shape (n_samples,), optional
            Targets or labels, for the models that use them.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight zero is left out.

        Returns
        -------
        self
            The estimator, further on in the stream.
        """
        self._advance(X, y, sample_weight)
        return self

    def _advance(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None) -> Any:
        """Check and learn the next rows of the stream; returns what `_learn` does, with NaN for rows left out."""
        learn = self._learn_next_batch if self._is_started() else self._learn_first_batch
        result = learn(X, y, sample_weight)
        self._last_row_ = time.time()
        return result if sample_weight is None else _spread(result, np.asarray(sample_weight, dtype=np.float64))

    def _learn_first_batch(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None) -> Any:
        """Learn the first rows, into a new model that is exchanged for this one at the end."""
        fresh = self._unfitted()
        rows, y, weights = fresh._check_batch(X, y, sample_weight, first=True)
        if not len(rows):
            return np.empty(0)
        with HeldInterrupts(undoable=True):
            fresh._start(rows, whole=False)
            result = fresh._learn_in_parts(rows, y, weights)
            checkpoint()
        self._adopt(fresh)
        self._origin_ = Origin(created=time.time())
        return result

    def _learn_next_batch(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None) -> Any:
        """Learn further rows, all of them or none."""
        rows, y, weights = self._check_batch(X, y, sample_weight, first=False)
        if not len(rows):
            return np.empty(0)
        with HeldInterrupts() as held:
            if not held.only_interrupts() or self._takes_long(len(rows)):
                with self._undone_if_it_fails(held):
                    return self._learn_in_parts(rows, y, weights)
            log = log_of(self, rows.shape[1])
            try:
                result = self._learn(rows, y, weights)
                log.add(rows, y, weights)
            except BaseException as error:
                log.go_back(self, error)
                raise
            return result

    @contextlib.contextmanager
    def _undone_if_it_fails(self, held: HeldInterrupts) -> Iterator[None]:
        """Go back to what the model is now if the block raises, or if a signal has come by its end."""
        # Before anything is learned; from here on a signal that waits may be raised.
        drop_log(self)
        before, held.undoable = self._snapshot() if self._is_started() else dict(vars(self)), True
        try:
            yield
            checkpoint()
        except BaseException:
            # One assignment: a second interrupt falls before it or after it, not into it.
            self.__dict__ = before
            raise

    def _takes_long(self, n_rows: int) -> bool:
        """Whether learning so many rows takes so long that a copy of the state costs next to nothing."""
        return n_rows >= UNDO_ROWS

    def _rows_of_a_part(self, n_features: int) -> int:
        """Rows of a long batch that are learned before an interrupt that waits is raised."""
        return max(UNDO_ROWS, _PART_CELLS // n_features)

    def _learn_in_parts(self, rows: Array, y: Any, weights: Array | None) -> Any:
        """Learn a batch; a long one in parts, between which an interrupt that waits is raised."""
        step = self._rows_of_a_part(rows.shape[1])
        if len(rows) <= step:
            return self._learn(rows, y, weights)
        results = []
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            results.append(self._learn(rows[part], _rows_of(y, part), _rows_of(weights, part)))
            checkpoint()
        return None if results[0] is None else np.concatenate(results)

    def _snapshot(self) -> dict[str, Any]:
        """Attributes with copies of all that learning changes; caches start empty or are made again."""
        kept = {}
        for name, value in vars(self).items():
            if name in self._transient:
                kept[name] = {} if isinstance(value, dict) else value
            else:
                kept[name] = copied(value) if name.endswith("_") else value
        return kept

    def copy(self) -> Self:
        """Return an independent copy that goes on learning as this model would."""
        return copy.deepcopy(self)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        answers: bool = False,
        tags: dict[str, str] | None = None,
        units: dict[str, str] | None = None,
    ) -> None:
        """Write the model to a file, with the mixture that it answers from if wanted; see :func:`everlearn.save`."""
        from everlearn.persistence.model_file import save

        save(self, path, answers=answers, tags=tags, units=units)

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
            Models learned elsewhere. Columns with names are matched by name; parameters that may differ do so with a
            warning, see :func:`everlearn.merge`.
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
        models = [self, *others]
        differing: dict[str, tuple[Any, Any]] = {}
        for other in others:
            differing = self._differing_parameters(other) | differing
        warn_of_differing(self, differing)
        started = [i for i, model in enumerate(models) if model._is_started()]
        # A model that has learned nothing is the identity of merging.
        if not started or (len(started) == 1 and n_components is None):
            return models[started[0] if started else 0].copy()
        if weights is not None:
            weights = _check_merge_weights(weights, len(models))[started]
        known = self._over_common_columns([models[i] for i in started], method, weights)
        # Models of other columns have been merged among themselves: what is left has no weights of the caller's.
        weights = None if len(known) < len(started) else weights
        first = known[0] if self._is_started() else self._led_by_parameters(known[0])
        merged = first._merge(known[1:], method=method, weights=weights, n_components=n_components)
        merged._origin_ = _origin_of_merged([models[i] for i in started])
        times = [time for i in started if (time := vars(models[i]).get("_last_row_")) is not None]
        if times:
            merged._last_row_ = max(times)
        return merged

    def _led_by_parameters(self, model: Self) -> Self:
        """What `model` has learned under the parameters of this model, to be merged and not to learn."""
        lead = self._unfitted()
        params = lead.get_params(deep=False)
        lead.__dict__.update({name: value for name, value in vars(model).items() if name not in params})
        return lead

    def _over_common_columns(self, models: list[Self], method: str, weights: Any) -> list[Self]:
        """The models over the columns of all of them, in the order of the first; models that have the same columns are
        merged before, so that what they know fills the columns that others lack.
        """
        groups: dict[Any, list[Self]] = {}
        for model in models:
            groups.setdefault(model._column_set(), []).append(model)
        for group in groups.values():
            models[0]._check_columns_mergeable(group[0])
        names = list(dict.fromkeys(name for model in models for name in getattr(model, "feature_names_in_", ())))
        # The same columns, perhaps in another order.
        if len(groups) == 1:
            return [model._over_columns(names, []) if names else model for model in models]
        if weights is not None:
            raise InputError("weights= is for models with the same columns: merge those first, then the results.")
        with no_more_words():
            merged = [group[0].merge(*group[1:], method=method) for group in groups.values()]
        return [model._over_columns(names, merged) for model in merged]

    def privacy(self, min_rows: int = MIN_ROWS) -> Privacy:
        """Return what could be read from this model, and so from its file, about single rows.

        Parameters
        ----------
        min_rows : int, default=20
            Rows that a component should stand for.

        Returns
        -------
        Privacy
            Rows that are inside, and components of few rows.

        Examples
        --------
        >>> import numpy as np
        >>> from everlearn import IncrementalGaussianMixture
        >>> X = np.random.default_rng(0).normal(size=(900, 2))
        >>> model = IncrementalGaussianMixture().fit(X)
        >>> model.privacy().rows, model.anonymised(min_rows=20).privacy().rows
        (900, 0)
        """
        self._check_started()
        check_min_rows(min_rows)
        return privacy_of(self._rows_inside(), self._rows_of_components(), int(min_rows))

    def anonymised(self, min_rows: int = MIN_ROWS) -> Self:
        """Return a copy without rows of the stream, whose components stand for `min_rows` rows or more each.

        Parameters
        ----------
        min_rows : int, default=20
            Rows that a component stands for at least.

        Returns
        -------
        estimator
            The copy.
        """
        raise InputError(
            f"{type(self).__name__} has no copy without its rows. IncrementalGaussianMixture has one: learn it "
            "from the same columns."
        )

    def __add__(self, other: Self) -> Self:
        return self.merge(other) if isinstance(other, StreamEstimator) else NotImplemented

    def __radd__(self, other: Any) -> Self:
        # `sum(models)` begins with 0.
        return self.copy() if isinstance(other, int) and other == 0 else NotImplemented

    # -- what a subclass implements ---------------------------------------------------------------

    def _start(self, X: Array, *, whole: bool) -> None:
        """Prepare the fitted state; `whole` says that X is all the data of a `fit`."""
        raise NotImplementedError

    def _learn(self, X: Array, y: Any, weights: Array | None) -> Any:
        """Learn validated rows."""
        raise NotImplementedError

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        raise MergeError(f"{type(self).__name__} cannot be merged{self._why_not_merged}.")

    def _to_save(self) -> dict[str, Any]:
        """Fitted attributes as a file holds them: without parameters and caches."""
        apart = {*self.get_params(deep=False), *self._transient, "_origin_", "_last_row_"}
        return {name: value for name, value in vars(self).items() if name not in apart}

    def _column_moments(self) -> tuple[Array, Array] | None:
        """Mean and standard deviation of each column, if they are at hand without work."""
        if isinstance(self, CovarianceModel) and self.n_features_in_ <= _MOST_DESCRIBED:
            with contextlib.suppress(ValueError, AttributeError):  # it is warming up
                return np.asarray(self.mean_), np.sqrt(np.diagonal(self.get_covariance()))  # type: ignore[attr-defined]
        return None

    def _rows_inside(self) -> int:
        """Rows of the stream that the model holds as they were."""
        return 0

    def _rows_of_components(self) -> Array:
        """Rows that each component stands for."""
        return np.empty(0)

    def _ask_without_search(self) -> None:
        """Let the next questions be answered from what is learned as it is, in place; no model has to do anything."""

    def _changed_parameters(self) -> str:
        """Parameters that differ from their defaults, as they are written in Python."""
        default = type(self)().get_params(deep=False)
        changed = (f"{k}={v!r}" for k, v in self.get_params(deep=False).items() if repr(v) != repr(default[k]))
        return ", ".join(changed)

    def _answers(self) -> AnyAnswers | None:
        """What a file holds for those who only ask; of a model that is no density of its columns, what it is."""
        return PredictorAnswers(*self._identity(), int(self.n_features_in_), int(self.n_components_))  # type: ignore[attr-defined]

    def _identity(self) -> tuple[str, str, int, tuple[str, ...] | None]:
        """Class, parameters, rows learned and names of the columns, as all answers begin."""
        names = getattr(self, "feature_names_in_", None)
        own = None if names is None else tuple(map(str, names))
        return type(self).__name__, self._changed_parameters(), int(self.n_samples_seen_), own  # type: ignore[attr-defined]

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
        """Take over what `fresh` has learned in place of what was learned before, by one assignment."""
        drop_log(self)
        # Parameters are this model's own; what ends in an underscore was learned.
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = kept | {name: value for name, value in vars(fresh).items() if name.endswith("_")}

    def _check_batch(
        self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None, *, first: bool
    ) -> tuple[Array, Any, Array | None]:
        """Rows, targets and weights as arrays, without the rows of weight zero."""
        rows = self._check_X(X, first=first)
        y = self._check_y(y, len(rows))
        if sample_weight is None:
            return rows, y, None
        weights = check_weights(sample_weight, len(rows))
        if weights.all():
            return rows, y, weights
        # Left out once, here: no kernel has to think of rows without weight.
        kept = weights > 0.0
        return rows[kept], None if y is None else y[kept], weights[kept]

    def _check_y(self, y: Any, n_rows: int) -> Any:
        """Targets are ignored unless a subclass takes them."""
        return None

    def _check_X(self, X: ArrayLike, *, first: bool = False) -> Array:
        """Rows as a C-contiguous float64 array; a plain array of a fitted model takes the short way."""
        # What scikit-learn would have to convert or compare goes the long way; an
        # array of the right shape is only scanned.
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

    def _check_X_in_full(self, X: ArrayLike, first: bool) -> Array:
        if not first:
            self._check_started()
        rows = as_rows(X)
        if first_invalid(rows, allow_nan=self._allow_nan) >= 0:
            self._refuse_cell(rows, column_names(X))
        if first and type(X) is np.ndarray:
            # What `validate_data` does with an array, without the import of the library that it knows tables by.
            self.n_features_in_ = rows.shape[1]
            self.__dict__.pop("feature_names_in_", None)
            return rows
        try:
            validate_data(self, X, reset=first, skip_check_array=True)
        except ValueError as error:
            raise InputError(str(error)) from error
        return rows

    def _refuse_cell(self, X: Array, columns: Any = None) -> None:
        row, column = divmod(first_invalid(X, allow_nan=self._allow_nan), X.shape[1])
        names = getattr(self, "feature_names_in_", columns)
        name = f"{names[column]!r}" if names is not None else f"{column}"
        what = "NaN" if np.isnan(X[row, column]) else "infinity"
        accepted = "finite numbers, or NaN for a value that was not observed" if self._allow_nan else "finite numbers"
        raise InputError(
            f"Input X contains {what} at row {row}, column {name}. {type(self).__name__} accepts {accepted}. "
            "Remove the row or repair the value."
        )

    def _differing_parameters(self, other: Any) -> dict[str, tuple[Any, Any]]:
        """Parameters in which a model to be merged with differs, and may; others are an error."""
        if type(other) is not type(self):
            raise MergeError(f"{type(self).__name__} cannot be merged with {type(other).__name__}.")
        mine, theirs = self.get_params(deep=False), other.get_params(deep=False)
        differing = {name: (mine[name], theirs[name]) for name in mine if not _equal(mine[name], theirs[name])}
        for name, (a, b) in differing.items():
            if name not in self._merge_free:
                raise MergeError(
                    f"The models were made with different parameters: {name}={a!r} and {name}={b!r}. Merge models with "
                    f"the same {name}."
                )
        return {name: values for name, values in differing.items() if self._merge_free[name]}

    def _column_set(self) -> Any:
        """What models that are merged must share, unless it is done by name: names of columns, or their number."""
        names = getattr(self, "feature_names_in_", ())
        return frozenset(names) if len(names) else self.n_features_in_

    def _check_columns_mergeable(self, other: Self) -> None:
        mine, theirs = (list(getattr(model, "feature_names_in_", ())) for model in (self, other))
        if mine == theirs and self.n_features_in_ == other.n_features_in_:
            return
        if self.n_features_in_ != other.n_features_in_ and not (self._merges_by_name and mine and theirs):
            hint = " Learn from data frames: columns are then merged by name." if self._merges_by_name else ""
            raise MergeError(f"The models have {self.n_features_in_} and {other.n_features_in_} columns.{hint}")
        if not (self._merges_by_name and mine and theirs):
            hint = " Learn all of them from data frames, or none." if self._merges_by_name else ""
            raise MergeError(f"The models have different column names: {_names(mine)} and {_names(theirs)}.{hint}")

    def _over_columns(self, names: list[Any], donors: list[Self]) -> Self:
        """The same model over the columns `names`: reordered, and with those that it lacks as `donors` know them."""
        if names != list(self.feature_names_in_):
            raise MergeError(
                f"The models have different column names: {_names(names)} and {_names(self.feature_names_in_)}."
            )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allow_nan
        return tags


def _origin_of_merged(models: list[Any]) -> Origin:
    """The files that were merged, and what all models say alike about themselves."""
    origins = [origin_of(model) for model in models]
    tags = dict(set.intersection(*(set(origin.tags.items()) for origin in origins)))
    units = {name: unit for origin in origins for name, unit in origin.units.items()}
    parents = sorted({parent for model in models for parent in contributions(model)})
    created = [origin.created for origin in origins if origin.created is not None]
    return Origin(tags, units, tuple(parents), min(created, default=None))


@functools.cache
def _parameter_names(cls: type[BaseEstimator]) -> tuple[str, ...]:
    """Names of the constructor's arguments: scikit-learn inspects the signature each time, a fifth of loading."""
    return tuple(BaseEstimator._get_param_names.__func__(cls))


def warn_of_differing(model: StreamEstimator, differing: dict[str, tuple[Any, Any]]) -> None:
    """Say which parameters of merged models differ, and which of them hold."""
    words = [f"{name}={a!r} and {name}={b!r}: {model._merge_free[name]}" for name, (a, b) in differing.items()]
    if words and not _SILENT.get():
        warn_user(f"The merged models were made with different parameters. {'; '.join(words)}.")


_SILENT: contextvars.ContextVar[bool] = contextvars.ContextVar("everlearn_silent_merges", default=False)


@contextlib.contextmanager
def no_more_words() -> Iterator[None]:
    """Merge within a larger merge, which says what there is to say once."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def check_min_rows(min_rows: Any) -> None:
    """Refuse a number of rows that hides nothing."""
    if not isinstance(min_rows, Integral) or int(min_rows) < 2:
        raise InputError(f"min_rows must be an integer from 2 on; got {min_rows!r}.")


def as_rows(X: Any) -> Array:
    """Convert any table to a C-contiguous float64 array, naming the first cell that is no number."""
    # What `check_array` would give back as it is, without the import of the library that it knows tables by.
    if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size and X.flags.c_contiguous:
        return X
    _refuse_times(X)
    if isinstance(X, np.ma.MaskedArray):
        # check_array drops the mask and would take what lies below it for data.
        X = np.ma.asarray(X, dtype=np.float64).filled(np.nan)
    try:
        return check_array(X, dtype=np.float64, order="C", ensure_all_finite=False)  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as error:
        cell = _first_text(X)
        if cell is None:
            raise InputError(f"Input X cannot be taken: {_reason(X, error)}") from error
        row, column, value = cell
        raise InputError(
            f"Input X has {_short(value)} at row {row}, column {column}, which is not a number ({_reason(X, error)}). "
            "Leave the column out or encode it as numbers."
        ) from error


def _reason(X: Any, error: Exception) -> str:
    """Why scikit-learn refuses a table: its words, without the values that it prints."""
    if hasattr(X, "columns") and 0 in getattr(X, "shape", ()):
        return f"a data frame of {X.shape[0]} rows and {X.shape[1]} columns holds nothing to learn."
    return str(error).partition("\n[")[0]


def _refuse_times(X: Any) -> None:
    """Refuse dates and durations: NumPy turns them into numbers whose unit nobody chose."""
    dtypes = getattr(X, "dtypes", None)
    kinds = [getattr(X, "dtype", None)] if dtypes is None else list(np.atleast_1d(dtypes))
    for column, dtype in enumerate(kinds):
        if getattr(dtype, "kind", "") in ("m", "M"):
            where = "" if dtypes is None else f" in column {column_names(X)[column]!r}"  # type: ignore[index]
            raise InputError(
                f"Input X has values of type {dtype}{where}. Give numbers: for example the seconds since a fixed time."
            )


def check_weights(sample_weight: ArrayLike, n_rows: int) -> Array:
    """Weights of rows: one finite number each, not negative. A row of weight zero counts as if it were not there."""
    try:
        given = np.asarray(sample_weight)
        # "same_kind" refuses complex numbers and text, which an unsafe cast would take.
        weights = given.astype(np.float64, order="C", casting="unsafe" if given.dtype == object else "same_kind")
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"sample_weight must hold one number per row; {error}.") from error
    if weights.ndim == 0:
        weights = np.full(n_rows, float(weights))
    if weights.shape != (n_rows,):
        raise InputError(f"sample_weight has shape {weights.shape}; X has {n_rows} rows. Give one weight per row.")
    bad = ~((weights >= 0.0) & (weights <= MOST_WEIGHT))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"sample_weight must be finite, not negative and at most {MOST_WEIGHT:g}; row {row} has the weight "
            f"{weights[row]}. Give weight 0 to rows that should not count."
        )
    return weights


def check_rows_left(rows: Array) -> None:
    """Refuse to fit to rows all of which were left out by their weights."""
    if not len(rows):
        raise InputError("sample_weight is zero for every row; fit needs at least one row that counts.")


def _check_merge_weights(weights: ArrayLike, n_models: int) -> Array:
    with contextlib.suppress(InputError):
        if np.ndim(weights) and (found := check_weights(weights, n_models)).all():
            return found
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
            except (TypeError, ValueError, OverflowError):
                return row, repr(names[column]) if names else column, value
    return None


def column_names(X: Any) -> list[Any] | None:
    """Names of the columns of a table, where it has them; Arrow calls them differently."""
    names = getattr(X, "column_names", getattr(X, "columns", None))
    return None if names is None else list(names)


def _short(value: Any) -> str:
    """A value for a message; a number of 400 digits is cut."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        text = f"a {type(value).__name__} of more digits than Python prints"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _spread(answers: Any, weights: Array) -> Any:
    """Answers for all rows given, NaN for those that were left out because their weight is zero."""
    if not isinstance(answers, np.ndarray) or weights.ndim == 0 or len(answers) == len(weights):
        return answers
    whole = np.full(len(weights), np.nan)
    whole[weights > 0.0] = answers
    return whole


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


def _names(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(np.asarray(a), np.asarray(b))
    return bool(a == b)
