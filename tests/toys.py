"""A small sound estimator, for testing what is generic: persistence and the streaming checks."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from everlearn.base.estimator import StreamEstimator
from everlearn.errors import ModelFileError
from everlearn.persistence.registry import register


@register
class Sums(NamedTuple):
    n: float
    mean: np.ndarray
    scatter: np.ndarray


@register
@dataclass(frozen=True)
class Rate:
    start: float = 1.0
    power: float = 0.5


@register
class RunningNormal(StreamEstimator):
    """Independent normal columns, learned row by row with weights."""

    def __init__(self, ridge=1e-3, rate=None, inner=None):
        self.ridge = ridge
        self.rate = rate
        self.inner = inner

    _transient: ClassVar[tuple[str, ...]] = ("_cache_",)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"ridge": [Interval(Real, 0, 1, closed="right")]}

    def _start(self, X, *, whole):
        D = X.shape[1]
        self._sums_ = Sums(0.0, np.zeros(D), np.zeros(D))

    def _learn(self, X, y, weights):
        n, mean, scatter = self._sums_
        mean, scatter = mean.copy(), scatter.copy()
        for x, w in zip(X, np.ones(len(X)) if weights is None else weights, strict=True):
            n += w
            with np.errstate(under="ignore"):
                step = (x - mean) * (w / n)
                scatter += w * (x - mean) * ((x - mean) - step)
            mean += step
        self._sums_ = Sums(float(n), mean, scatter)

    @property
    def variance_(self):
        spread = np.maximum(np.abs(self._sums_.mean), 1e-140) * self.ridge
        return self._sums_.scatter / self._sums_.n + spread * spread

    @property
    def mean_(self):
        return self._sums_.mean.copy()

    def score_samples(self, X):
        self._check_started()
        X = self._check_X(X)
        sigma = np.sqrt(self.variance_)
        return -0.5 * np.sum(((X - self.mean_) / sigma) ** 2 + np.log(2 * np.pi) + 2 * np.log(sigma), axis=1)

    def _merge(self, others, *, method, weights, n_components):
        merged = self.copy()
        for other in others:
            a, b = merged._sums_, other._sums_
            n = a.n + b.n
            scatter = a.scatter + b.scatter + (a.mean - b.mean) ** 2 * (a.n * b.n / n)
            merged._sums_ = Sums(n, (a.n * a.mean + b.n * b.mean) / n, scatter)
        return merged

    def _check_loaded(self):
        shape = (self.n_features_in_,)
        if type(self._sums_) is not Sums or type(self._sums_.n) is not float or not self._sums_.n > 0:
            raise ModelFileError("the sums have no count.")
        for array in (self._sums_.mean, self._sums_.scatter):
            if array.shape != shape or array.dtype != np.float64:
                raise ModelFileError(f"the sums do not have the shape {shape}.")


def fitted(**params):
    """A small model of 50 rows; it has so many columns that its arrays are tensors of a file."""
    X = np.random.default_rng(0).normal(size=(50, 6))
    return RunningNormal(**params).fit(X)
