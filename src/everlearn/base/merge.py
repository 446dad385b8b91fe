"""`merge`: what several models know together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from everlearn.base.estimator import StreamEstimator, no_more_words, warn_of_differing
from everlearn.base.merge_tree import MergeTree
from everlearn.base.posterior import StreamingPosterior
from everlearn.errors import InputError, MergeError
from everlearn.typing import MergingModel

Model = TypeVar("Model", bound=StreamEstimator)
Mergeable = TypeVar("Mergeable", bound=MergingModel)

# Models that are merged at once; more of them go in a tree. A merge is one search, whose cost hardly depends on the
# number of models, so that small groups are slow: 500 models took 6.6 s in groups of 16, 2.3 s in groups of 64 and
# 1.4 s all at once, and 1,000 took 2.9 s in groups of 512 and 1.8 s at once, with a better held-out score. Large groups
# take memory: a group is complete, too, when its models hold so many bytes.
FAN_IN, GROUP_BYTES = 1024, 256 * 2**20


def merge(
    models: Iterable[Mergeable],
    *,
    method: str = "auto",
    weights: ArrayLike | None = None,
    n_components: int | None = None,
) -> Mergeable:
    """Return one model that knows what all of `models` know; none of them changes.

    More than 1,024 models are merged in a tree of that fan-in. An iterator is consumed one model at a time, so that no
    more than 1,024 models of each level are in memory, and fewer where these hold 256 MiB.

    Models whose columns have names are merged by name: the columns may stand in another order, and mixtures may have
    other columns. The merged model then has all of them, and where a model lacks a column its rows count as gaps there.

    Parameters
    ----------
    models : iterable of estimators, of StreamImputer, or of StreamingPosterior
        Models of one class. Parameters that would give another kind of model must be the same; others may differ, with
        a warning that says which ones hold.
    method : {"auto", "mean", "mode", "bayes"}, default="auto"
        The rule of merging. "mean" keeps the moments of all models together; "mode" multiplies their densities, each to
        the power of its weight (of mixtures those of components that stand for the same, each weighed by its rows, and
        draws take the place of rows that were kept); "bayes" adds what each learned beyond the prior, and so needs a
        posterior of the parameters: `VariationalPPCA` and `StreamingPosterior` keep one. Not every class has all of
        them; "auto" is the one that suits the class.
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
    if not isinstance(models, Iterable):
        raise InputError("models must be one or more everlearn models, as in merge([a, b]).")
    if weights is not None or method != "auto":
        # Trust is relative to all models, and other rules than "auto" are sums: they are quick in one go.
        return _merge_at_once(list(models), method, weights, n_components)
    if isinstance(models, Sequence) and len(models) <= FAN_IN:
        return _merge_at_once(models, method, weights, n_components)
    models = models if isinstance(models, Sequence) else _looked_into(models)
    if isinstance(models, Sequence) and not isinstance(models[0], StreamEstimator):
        return _merge_at_once(models, method, weights, n_components)
    merger: Merger[Any] = Merger()
    for model in _in_canonical_order(models):
        merger.add(model)
    merged: Mergeable = merger.merged(n_components)
    return merged


def _looked_into(models: Iterable[Any]) -> Iterable[Any]:
    """The models of an iterator: a list of them if they are no estimators, but posteriors or imputers."""
    # One model is taken out to see its class, and put back in front.
    iterator = iter(models)
    first = list(itertools.islice(iterator, 1))
    if first and not isinstance(first[0], StreamEstimator):
        return [*first, *iterator]
    return itertools.chain(first, iterator)


def _merge_at_once(models: Sequence[Any], method: str, weights: ArrayLike | None, n_components: int | None) -> Any:
    posteriors = [isinstance(model, StreamingPosterior) for model in models]
    if models and all(posteriors):
        return _merge_posteriors(models, method, weights, n_components)
    if not models or any(posteriors) or not all(isinstance(model, MergingModel) for model in models):
        raise InputError("models must be one or more everlearn models, as in merge([a, b]).")
    return models[0].merge(*models[1:], method=method, weights=weights, n_components=n_components)


def _merge_posteriors(models: Sequence[Any], method: str, weights: ArrayLike | None, n_components: int | None) -> Any:
    if n_components is not None:
        raise MergeError(f"n_components={n_components!r}: a StreamingPosterior is one density and has no components.")
    return models[0].merge(*models[1:], method=method, weights=weights)


def _in_canonical_order(models: Iterable[Any]) -> Iterable[Any]:
    """A list of more models than one merge takes, so ordered that its own order makes no difference.

    The first model stays the first: its parameters hold, and its columns come first.
    """
    if not isinstance(models, Sequence) or not all(isinstance(model, StreamEstimator) for model in models):
        return models
    started = [model for model in models if model._is_started()]
    if not all(hasattr(model, "_content") for model in started):
        return models
    return [models[0]._unfitted(), *sorted(started, key=lambda model: model._content())]


class Merger(Generic[Model]):
    """Takes models one by one and merges them in trees, one for each set of columns.

    Parameters
    ----------
    fan_in : int
        Models that are merged at once: so many of each level wait in memory.
    group_bytes : float
        Models of each level are also merged when their arrays hold so many bytes.

    Attributes
    ----------
    n_models : int
        Models that were added.
    """

    def __init__(self, fan_in: int = FAN_IN, group_bytes: float = GROUP_BYTES) -> None:
        self._fan_in, self._group_bytes = fan_in, group_bytes
        self._lead: Any = None  # has learned nothing: its parameters hold
        self._first: dict[Any, Any] = {}  # the first model of each set of columns
        self._trees: dict[Any, MergeTree[Any]] = {}
        self._differing: dict[str, tuple[Any, Any]] = {}
        self.n_models = 0

    def add(self, model: Model) -> None:
        """Take the next model; one that cannot be merged with those before it is an error now."""
        if not isinstance(model, StreamEstimator):
            raise InputError("models must be one or more everlearn models, as in merge([a, b]).")
        if self._lead is None:
            self._lead = model._unfitted()
        self._differing = self._lead._differing_parameters(model) | self._differing
        self.n_models += 1
        # It is counted, and its parameters are compared, but there is nothing to merge.
        if not model._is_started():
            return
        key = model._column_set()
        if key not in self._trees:
            for other in self._first.values():
                other._check_columns_mergeable(model)
            self._first[key] = model
            self._trees[key] = MergeTree(self._merge_group, self._fan_in, bytes_of, self._group_bytes)
        self._trees[key].add(model)

    def merged(self, n_components: int | None = None) -> Model:
        """All models as one; more cannot be added."""
        if self._lead is None:
            raise InputError("models must be one or more everlearn models, as in merge([a, b]).")
        warn_of_differing(self._lead, self._differing)
        roots = [tree.root() for tree in self._trees.values()]
        with no_more_words():
            merged: Model = self._lead.merge(*roots, n_components=n_components)
        return merged

    def _merge_group(self, group: Sequence[Any]) -> Any:
        with no_more_words():
            return self._lead.merge(*group)


def bytes_of(value: Any) -> int:
    """Bytes of the arrays in a model, or in the states and lists that it is made of."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple | list):
        return sum(map(bytes_of, value))
    if isinstance(value, StreamEstimator):
        return sum(map(bytes_of, vars(value).values()))
    return 0
