"""Merging models of OnlinePPCA: exact in the mean and covariance of the pooled data, before they are cut to q axes."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.errors import InputError, MergeError
from everlearn.gaussian import ppca
from everlearn.gaussian.ppca import PPCA, Part
from everlearn.ppca.base import PPCAFace

Array = NDArray[np.float64]


class MergesPPCA(PPCAFace):
    """How several models with warm-up rows or a state of online EM become one."""

    n_components: int
    _state_: Any
    _reference_: Any
    _buffer_: Array
    _buffered_: int
    _scale_: float
    _n_rows_: int
    _divergence_: NDArray[np.int64]

    def _of_rows(self, rows: Array) -> Part:
        raise NotImplementedError

    def _set_state(self, part: Part, k: int) -> None:
        raise NotImplementedError

    def _take_reference(self) -> None:
        raise NotImplementedError

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        if method not in ("auto", "mean"):
            raise MergeError(
                f"method={method!r} does not apply to OnlinePPCA, whose moments are merged. Use method='auto'."
            )
        models = [self, *others]
        shares = np.ones(len(models)) if weights is None else np.asarray(weights)
        known = [(model, share) for model, share in zip(models, shares, strict=True) if model._count() > 0]
        merged = known[0][0].copy() if known else self.copy()
        if len(known) > 1 or n_components is not None:
            merged._become(known, weights is not None, merged._axes_after_merge(n_components))
        merged._n_rows_ = sum(model._n_rows_ for model in models)
        return merged

    def _axes_after_merge(self, n_components: Any) -> int:
        if n_components is None:
            return self.n_components
        if not isinstance(n_components, Integral) or not 1 <= int(n_components) <= self.n_features_in_:
            raise InputError(f"n_components must be from 1 to {self.n_features_in_}; got {n_components!r}.")
        return int(n_components)

    def _count(self) -> int:
        """Rows that the model rests on."""
        return self._buffered_ if self._state_ is None else int(self._state_.k)

    def _become(self, known: list[tuple[Self, float]], weighted: bool, q: int) -> None:
        """Take on what several models know together, each by its share or its number of rows."""
        models = [model for model, _ in known]
        self.n_components = q
        self._start(np.empty((0, self.n_features_in_)), whole=False)
        self._divergence_ = np.sum([model._divergence_ for model in models], axis=0)
        if not weighted and all(model._state_ is None for model in models):
            self._warm_up_together(np.concatenate([model._buffer_[: model._buffered_] for model in models]))
            return
        counts = [model._count() for model in models]
        pooled = ppca.pool(
            [model._part() for model in models], [share for _, share in known] if weighted else counts, q
        )
        self._set_state(pooled, k=sum(counts))
        if any(model._reference_.is_active for model in models):
            self._take_reference()

    def _warm_up_together(self, rows: Array) -> None:
        """Keep the rows of several warm-ups, or start from all of them if they are enough."""
        if len(rows) >= len(self._buffer_):
            self._set_state(self._of_rows(rows), k=len(rows))
        else:
            self._buffer_[: len(rows)] = rows
            self._buffered_ = len(rows)

    def _part(self) -> Part:
        """What there is to merge."""
        if self._state_ is None:
            return self._of_rows(self._buffer_[: self._buffered_])
        return Part(PPCA(*self._state_.model[:3]), self._scale_, self._state_.seen)
