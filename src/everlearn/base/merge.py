"""`merge`: what several models know together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from numpy.typing import ArrayLike

from everlearn.base.estimator import StreamEstimator
from everlearn.errors import InputError

Model = TypeVar("Model", bound=StreamEstimator)


def merge(
    models: Iterable[Model],
    *,
    method: str = "auto",
    weights: ArrayLike | None = None,
    n_components: int | None = None,
) -> Model:
    """Return one model that knows what all of `models` know; none of them changes.

    Parameters
    ----------
    models : iterable of estimators
        Models of one class with the same columns and parameters.
    method : {"auto", "mean", "mode", "bayes"}, default="auto"
        The rule of merging. "mean" keeps the moments of all models together; "mode" multiplies their densities, each to
        the power of its weight; "bayes" adds what each learned beyond the prior. Not every class has all of them;
        "auto" is the one that suits the class.
    weights : array-like, optional
        Relative trust in each model; by default each counts for the rows that it has seen.
    n_components : int, optional
        Reduce the merged model to this many components.

    Returns
    -------
    merged
        A new model, which goes on learning.

    Examples
    --------
    >>> import everlearn
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> shards = [rng.normal(size=(300, 2)) for _ in range(3)]
    >>> models = [everlearn.IncrementalGaussianMixture().partial_fit(shard) for shard in shards]
    >>> everlearn.merge(models).n_samples_seen_
    900
    """
    listed = list(models) if isinstance(models, Iterable) else []
    if not listed or not all(isinstance(model, StreamEstimator) for model in listed):
        raise InputError("models must be one or more everlearn models, as in merge([a, b]).")
    return listed[0].merge(*listed[1:], method=method, weights=weights, n_components=n_components)
