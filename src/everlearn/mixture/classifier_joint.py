"""Classes as further columns of one mixture: a one for the class of a row, zeros for the others (FIGMN)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from everlearn.base.estimator import StreamEstimator
from everlearn.base.scaling import Frame
from everlearn.figmn import serving as answering
from everlearn.figmn.first_edition import IncrementalGaussianMixture
from everlearn.figmn.learn import MixtureState
from everlearn.persistence.schema import expect, require

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

# Standard deviation of a column of zeros and ones, where nothing is known about it: the largest that it can have.
INDICATOR_STD = 0.5
# Least probability of a class whose expected indicator is zero or below.
TINY = 1e-9


class JointClasses(StreamEstimator):
    """One mixture over the inputs and the indicators of numbered classes; a class's probability is what it expects.

    Parameters
    ----------
    mixture : IncrementalGaussianMixture
        The parameters of the mixture; it is not fitted itself.
    """

    _allow_nan: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"mixture": [IncrementalGaussianMixture]}

    def __init__(self, mixture: IncrementalGaussianMixture) -> None:
        self.mixture = mixture

    def start(self, X: Array, labels: Codes | None) -> None:
        """Prepare for rows like those of X; if these are all rows, with their labels, they set the frame."""
        self.n_features_in_ = X.shape[1]
        self._class_counts_ = np.zeros(0 if labels is None else labels.max() + 1)
        parameters = self.mixture.get_params(deep=False)
        if not isinstance(self.mixture.scale, str):
            indicators = np.full(len(self._class_counts_), INDICATOR_STD)
            parameters["scale"] = np.concatenate([self.mixture._given_scale(X.shape[1]), indicators])
        self._joint_ = IncrementalGaussianMixture(**parameters)
        rows = X if labels is None else self._with_indicators(X, labels)
        self._joint_.n_features_in_ = rows.shape[1]
        self._joint_._start(rows, whole=labels is not None)

    def add_class(self, at: int) -> None:
        """Make room for a class before the one that is number `at` so far."""
        self._class_counts_ = np.insert(self._class_counts_, at, 0.0)
        insert_column(self._joint_, self.n_features_in_ + at, self.n_features_in_)

    def learn(self, X: Array, labels: Codes, weights: Array) -> None:
        """Learn rows of known classes in their order."""
        self._joint_._learn(self._with_indicators(X, labels), None, weights)
        np.add.at(self._class_counts_, labels, weights)

    def _with_indicators(self, X: Array, labels: Codes) -> Array:
        return np.hstack([X, np.eye(len(self._class_counts_))[labels]])

    def log_proba(self, X: Array) -> Array:
        """Log-probability of each class for each row."""
        D, C = self.n_features_in_, len(self._class_counts_)
        rows = np.hstack([X, np.full((len(X), C), np.nan)])
        expected = self._joint_.predict_columns(rows, range(D, D + C))
        p = np.maximum(expected, TINY)
        return np.log(p / p.sum(axis=1, keepdims=True))

    @property
    def n_components(self) -> int:
        """Number of components."""
        return self._joint_._answer()[0].n_components

    @property
    def n_rows(self) -> int:
        """Number of rows learned or held."""
        return self._joint_.n_samples_seen_

    @property
    def class_counts(self) -> Array:
        """Weight of the rows of each class."""
        return self._class_counts_.copy()

    def _merge(self, others: list[Self], *, method: str, weights: Any, n_components: int | None) -> Self:
        """As the mixtures are merged; all models have the same classes."""
        merged = self.copy()
        rest = [other._joint_ for other in others]
        merged._joint_ = self._joint_.merge(*rest, method=method, weights=weights, n_components=n_components)
        merged._class_counts_ = np.sum([model._class_counts_ for model in (self, *others)], axis=0)
        return merged

    def _check_loaded(self) -> None:
        expect(self._class_counts_, "C", {}, "the class counts")
        require(not self.mixture._is_started(), "the parameters of its mixture are a fitted model")
        require(type(self._joint_) is IncrementalGaussianMixture, "it has no mixture")
        width = self.n_features_in_ + len(self._class_counts_)
        require(vars(self._joint_).get("n_features_in_") == width, "its mixture has other columns")


def insert_column(model: IncrementalGaussianMixture, at: int, first_indicator: int) -> None:
    """Give a mixture a column of zeros, as if it had always been there; its spread is that of the other indicators."""
    if not isinstance(model.scale, str):
        model.scale = np.insert(model.scale, at, INDICATOR_STD)
    model.n_features_in_ += 1
    if model._warmup_ is not None:
        model._warmup_ = model._warmup_._replace(rows=np.insert(model._warmup_.rows, at, 0.0, axis=1))
        model._pair_ = answering.init(model._empty(model.n_features_in_))
        model._cache_.clear()
        return
    assert model._frame_ is not None
    frame = _wider_frame(model._frame_, at, first_indicator)
    model._pair_ = answering.init(_wider_state(model._pair_.learning, at, model.delta * frame.variance[at]))
    model._settle(frame)


def _wider_frame(frame: Frame, at: int, first_indicator: int) -> Frame:
    indicators = slice(first_indicator, None)
    variances = (frame.variance * frame.scale**2)[indicators]
    variance = variances.mean() if len(variances) else INDICATOR_STD**2
    scale = INDICATOR_STD
    return Frame(
        np.insert(frame.scale, at, scale),
        np.insert(frame.variance, at, variance / scale**2),
        np.insert(frame.centre, at, 0.0),
    )


def _wider_state(state: MixtureState, at: int, initial_variance: float) -> MixtureState:
    """Components that have seen nothing but zeros in the new column, which keeps its share of the creation prior."""
    precision = np.maximum(state.counts, 1.0) / initial_variance
    if state.precisions.ndim == 2:
        precisions = np.insert(state.precisions, at, precision, axis=1)
    else:
        precisions = np.insert(np.insert(state.precisions, at, 0.0, axis=1), at, 0.0, axis=2)
        precisions[:, at, at] = precision
    means = np.insert(state.means, at, 0.0, axis=1)
    return state._replace(means=means, precisions=precisions, log_dets=state.log_dets - np.log(precision))
