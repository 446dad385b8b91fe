"""What the river learners share: a model, and which feature is in which of its columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from everlearn.base.estimator import StreamEstimator, check_weights
from everlearn.base.user_warnings import warn_user
from everlearn.errors import InputError, require
from everlearn.river.batches import Dicts, Features, Names, Table, in_order, observed_in, rows_of
from everlearn.typing import Array

require("river", extra="river")

from river import base  # noqa: E402 (the line above says which extra brings it)

Batch = Dicts | Table


class Sample(NamedTuple):
    """One row of the grace period."""

    x: Features
    y: Any
    w: float


class Learner(base.Base):
    """A model that learns from dicts.

    A subclass names in `_default` the class of the model that it makes when none is given, and in `_needs` what it asks
    of a model.
    """

    _default: ClassVar[type[StreamEstimator]]
    _needs: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        model: StreamEstimator | None = None,
        *,
        features: Sequence[Hashable] | None = None,
        grace_period: int = 200,
    ) -> None:
        self.features = features
        self.grace_period = grace_period
        given = self._default() if model is None else model
        self._check_parameters(given)
        # What a clone by river begins from: the parameters, and nothing of what was learned.
        self._template: StreamEstimator = clone(given)
        self._model = given.copy()
        # Rows of the grace period, from the beginning; None once the columns are final.
        self._first: list[Sample] | None = None if given._is_started() else []
        self._set_names(_columns_of(given, features))
        self._silent = features is not None

    def _check_parameters(self, model: Any) -> None:
        if not isinstance(model, StreamEstimator) or not all(hasattr(type(model), name) for name in self._needs):
            raise InputError(
                f"{type(self).__name__} takes a model of everlearn that has {', '.join(self._needs)}; "
                f"got {model!r}. Try model={self._default.__name__}()."
            )
        if not isinstance(self.grace_period, int | np.integer) or self.grace_period < 1:
            raise InputError(f"grace_period must be a number of rows, at least 1; got {self.grace_period!r}.")

    @property
    def model(self) -> StreamEstimator:
        """The model as learned so far, to save, merge, or ask anything else."""
        return self._model

    def _get_params(self) -> dict[str, Any]:
        """Parameters of the constructor; the model among them has learned nothing, so that a clone starts anew."""
        return {**super()._get_params(), "model": self._template}

    def _set_names(self, names: Names) -> None:
        self._names = names
        self._known = frozenset(names)

    # -- learning ---------------------------------------------------------------------------------

    def _learn(self, batch: Batch, y: Sequence[Any] | None = None, w: Any = None) -> None:
        """Learn a batch; targets and weights as None where there are none."""
        if not len(batch):
            return
        w = None if w is None else self._check_weights(w, len(batch))
        if self._first is not None:
            w = np.ones(len(batch)) if w is None else w
            self._learn_first(self._first, batch, [None] * len(batch) if y is None else y, w)
        else:
            self._teach(self._model, batch.rows(self._names), y, w)
        if self._first is None:
            self._note_unknown(batch)

    def _check_weights(self, w: Any, n_rows: int) -> Array:
        if not has_fit_parameter(self._template, "sample_weight"):
            raise InputError(f"{type(self._template).__name__} does not weigh its rows: leave out w.")
        return check_weights(w, n_rows)

    def _learn_first(self, earlier: list[Sample], batch: Batch, y: Sequence[Any], w: Array) -> None:
        """Learn a batch that begins in the grace period, in which every new feature becomes a column.

        For a new column the period's rows are learned again, those without the feature as not observed; so the model
        is the one that had known all columns from the start.
        """
        start = 0 if earlier else self._first_observed(batch)
        if start == len(batch):
            return
        # The batch may reach beyond the grace period: only the part within it can bring columns.
        part = slice(start, start + self._n_first() - len(earlier))
        new = [Sample(*row) for row in zip(islice(batch, part.start, part.stop), y[part], w[part], strict=True)]
        names = self._names_with(new)
        rows = batch.rows(names)
        # Before anything is kept: the model, which would refuse it, does not see the rows that wait in `_first`.
        _refuse_infinity(rows, names)
        full = len(earlier) + len(new) >= self._n_first()
        # A PPCA of q axes cannot start with fewer than q columns; until then rows wait in `_first`.
        if full or len(names) >= self._least_columns():
            # Learned from the beginning whenever a column was added. The grace period bounds what that costs.
            again = earlier if names != self._names or not self._model._is_started() else None
            self._model = self._taught(again, names, rows[start:], y[start:], w[start:])
        self._set_names(names)
        self._first = None if full else earlier + new

    def _taught(self, again: list[Sample] | None, names: Names, rows: Array, y: Sequence[Any], w: Array) -> Any:
        """The model after more rows; after those of `again` first, if there is to be a new one."""
        if again is None:
            return self._teach(self._model, rows, y, w)
        before = rows_of([sample.x for sample in again], names)
        model = self._teach(
            clone(self._template),
            np.concatenate([before, rows]),
            [*(sample.y for sample in again), *y],
            np.concatenate([[sample.w for sample in again], w]),
        )
        if all(isinstance(name, str) for name in names):
            model.feature_names_in_ = np.array(names, dtype=object)
        return model

    def _teach(self, model: StreamEstimator, rows: Array, y: Sequence[Any] | None, w: Array | None) -> StreamEstimator:
        extra: dict[str, Any] = {}
        if self._supervised:
            extra["y"] = np.asarray(y)
        if w is not None and np.any(w != 1.0):
            extra["sample_weight"] = w
        return model.partial_fit(rows, **extra)

    def _first_observed(self, batch: Batch) -> int:
        """Number of rows before the first one that has a value in a column."""
        wanted = self._known if self.features is not None else None
        return next((i for i, x in enumerate(batch) if observed_in([x], wanted)), len(batch))

    def _n_first(self) -> int:
        return int(self.grace_period) if self.features is None else 1

    def _least_columns(self) -> int:
        """Number of columns that the model cannot start without."""
        n = getattr(self._template, "n_components", 1)
        return int(n) if isinstance(n, Integral) else 1

    def _names_with(self, samples: list[Sample]) -> Names:
        if self.features is not None:
            return self._names
        new = observed_in(sample.x for sample in samples) - self._known
        return in_order(self._known | new) if new else self._names

    def _note_unknown(self, batch: Batch) -> None:
        """Say once that a feature came too late to be learned."""
        if self._silent or not (unknown := batch.features() - self._known):
            return
        self._silent = True
        warn_user(
            f"{type(self).__name__} ignores features that had no value in the first {self.grace_period} rows, such as "
            f"{in_order(unknown)[0]!r}. Name the features (features=[...]) or raise grace_period to learn them."
        )

    # -- asking -----------------------------------------------------------------------------------

    def _ask(self, question: str, batch: Batch, before: Array) -> Array:
        """The model's answer for each row, or `before` while nothing was learned or nothing is asked."""
        if not len(batch) or not self._model._is_started():
            return before
        answer: Array = getattr(self._model, question)(batch.rows(self._names))
        return answer


def _columns_of(model: StreamEstimator, features: Sequence[Hashable] | None) -> Names:
    """Feature in each column of a model, as given or as the model remembers them."""
    names = tuple(getattr(model, "feature_names_in_", ())) if features is None else tuple(features)
    if not model._is_started():
        return () if features is None else names
    if len(names) != model.n_features_in_:
        raise InputError(
            f"The model has learned {model.n_features_in_} columns; features names {len(names)}. Give "
            "features=[...], a name for each column in their order."
        )
    return names


def _refuse_infinity(rows: Array, names: Names) -> None:
    if np.isinf(rows).any():
        row, column = np.argwhere(np.isinf(rows))[0]
        raise InputError(
            f"Feature {names[column]!r} of row {row} is infinite. Leave the feature out where it was not observed."
        )
