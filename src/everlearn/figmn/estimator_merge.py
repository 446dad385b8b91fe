"""Incremental mixtures learned apart, merged into one that goes on learning; mixtures with fewer components."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.base.scaling import Frame, frame_of_rows
from everlearn.errors import InputError, MergeError
from everlearn.figmn import adaptive
from everlearn.figmn import learn as incremental
from everlearn.figmn import merge as joining
from everlearn.figmn import refine as second_look
from everlearn.figmn import serving as answering
from everlearn.figmn.learn import MixtureState

# The estimator imports this module, so that its class cannot be named here: it would close an import circle.
Model = Any

Array = NDArray[np.float64]

# Spreads of one column in two models that differ by more than this are taken for different units.
MAX_SCALE_RATIO = 1000.0
# From this many rows on a model that is warming up says how wide its columns are.
ROWS_THAT_TELL = 20


def merged(
    model: Model, others: list[Model], *, method: str, weights: ArrayLike | None, n_components: int | None
) -> Model:
    """A new mixture that knows what all know.

    The components of models that have settled are joined. Models that are warming up still hold their rows: these are
    learned. The order in which models are given makes no difference.
    """
    if method not in ("auto", "mean"):
        raise MergeError(
            f"method={method!r} does not apply to mixtures: their components are joined and then merged by their "
            "moments. Use method='auto'."
        )
    models = [model, *others]
    _check_same_scale(models)
    trust = np.ones(len(models)) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = trust * (len(models) / math.fsum(trust))
    pairs = sorted(zip(models, shares, strict=True), key=lambda pair: _content(pair[0]))
    settled = [pair for pair in pairs if pair[0]._warmup_ is None]
    whole = started(model)
    if settled:
        whole = _joined(whole, [part for part, _ in settled], np.array([share for _, share in settled]))
    for part, share in pairs:
        if part._warmup_ is not None:
            rows, row_weights, n = part._warmup_
            whole._learn(rows[:n].copy(), None, row_weights[:n] * share)
    return whole if n_components is None else reduced(whole, n_components)


def reduced(model: Model, n_components: int) -> Model:
    """A copy with at most so many components, made from those that answer."""
    if not isinstance(n_components, int | np.integer) or n_components < 1:
        raise InputError(f"n_components must be an integer from 1 on; got {n_components!r}.")
    fewer = settled_copy(model)
    pair = fewer._pair_
    if fewer.second_look or pair.answering is not None:
        _replace_state(fewer, joining.reduced(fewer._answer()[0], int(n_components)), primed=False)
    else:
        priors = incremental.creation_priors(pair.learning.n_components, fewer._constants_.settings.learning)
        _replace_state(fewer, joining.reduced(pair.learning, int(n_components), priors if pair.primed else None))
    return fewer


def started(model: Model) -> Model:
    """A model with the parameters and columns of `model` that has learned nothing."""
    new = model._unfitted()
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(new, name, getattr(model, name))
    new._start(np.empty((0, model.n_features_in_)), whole=False)
    return new


def with_state(model: Model, state: MixtureState, frame: Frame, *, primed: bool = True) -> Model:
    """A model with the parameters and columns of `model` that has learned `state`, in the coordinates of `frame`."""
    new = started(model)
    new._warmup_ = None
    new._pair_ = answering.init(state, primed=primed)
    new._settle(frame)
    return new


def settled_copy(model: Model) -> Model:
    """A copy that has learned the rows which it was warming up with."""
    if model._warmup_ is None:
        return model.copy()
    rows, weights, n = model._warmup_
    settled = with_state(model, model._empty(model.n_features_in_), frame_of_rows(rows[:n]))
    settled._learn(rows[:n].copy(), None, weights[:n].copy())
    return settled


def _content(model: Model) -> tuple[int, bytes]:
    """What models are ordered by before they are merged."""
    content = model._pair_.learning.means if model._warmup_ is None else model._warmup_.rows
    return model.n_samples_seen_, content.tobytes()


def _replace_state(model: Model, state: MixtureState, *, primed: bool | None = None) -> None:
    """Give a model other components, without room for more: a model that travels is no larger than what it knows."""
    state = incremental.with_arrays(state, lambda array: array[: state.n_components].copy())
    model._pair_ = answering.init(state, primed=model._pair_.primed if primed is None else primed)
    model._cache_.clear()
    if model._bank_ is not None:
        model._bank_ = adaptive.init(state)


def _joined(template: Model, models: list[Model], shares: Array) -> Model:
    """Models that have settled as one; components that differ little are merged."""
    frames = [model._constants_.frame for model in models]
    frame = joining.pooled_frame(frames, np.array([model._pair_.learning.n_rows for model in models]))
    states = [joining.in_frame(model._pair_.learning, old, frame) for model, old in zip(models, frames, strict=True)]
    whole = with_state(template, joining.joined(states, shares), frame)
    if len(models) == 1 and shares[0] == 1.0:
        whole._pair_ = models[0].copy()._pair_
    else:
        _replace_state(whole, _compacted(whole, _priors(models, shares, frame)))
        whole._pair_ = answering.renewed(whole._pair_, whole._constants_.settings)
    whole._monitor_.totals[:] = sum(model._monitor_.totals for model in models)
    if whole.second_look:
        _take_samples(whole, models)
    return whole


def _compacted(whole: Model, priors: Array | None) -> MixtureState:
    state, settings = whole._pair_.learning, whole._constants_.settings.learning
    if state.n_components == 0:
        return state
    limit = 1 if whole.beta == 0 else settings.max_components
    cost = settings.max_merge_cost * incremental.bic_penalty(state)
    return incremental.merged_to(state, max_cost=cost, max_components=limit, priors=priors)


def _priors(models: list[Model], shares: Array, frame: Frame) -> Array | None:
    """Creation prior that each component of each model holds, in the coordinates of `frame`."""
    parts = []
    for model, share in zip(models, shares, strict=True):
        constants = model._constants_
        priors = incremental.creation_priors(model._pair_.learning.n_components, constants.settings.learning)
        if priors is None:
            return None
        parts.append(share * priors * (constants.frame.scale / frame.scale) ** 2)
    return np.concatenate(parts)


def _take_samples(whole: Model, models: list[Model]) -> None:
    """Refine the components on all rows that the models have kept, and keep some of these in proportion."""
    seen = np.array([model._sampled_ for model in models])
    scales = [model._constants_.frame.scale / whole._constants_.frame.scale for model in models]
    samples = [model._sample_[: model._sampled_] * scale for model, scale in zip(models, scales, strict=True)]
    rate = min((len(rows) / n for rows, n in zip(samples, seen, strict=True) if n), default=0.0)
    pool = _in_proportion(samples, seen, int(rate * seen.sum()))
    if len(pool):
        _replace_state(whole, second_look.refined(whole._pair_.learning, pool), primed=False)
    kept = _in_proportion(samples, seen, min(len(whole._sample_), int(seen.sum())))
    whole._sample_[: len(kept)], whole._sampled_ = kept, int(seen.sum())


def _in_proportion(samples: list[Array], seen: NDArray[np.int64], total: int) -> Array:
    """So many rows, from each sample in proportion to the rows that it was drawn from."""
    ends = np.cumsum(seen) * total // max(int(seen.sum()), 1)
    sizes = np.minimum(np.diff(ends, prepend=0), [len(rows) for rows in samples])
    picked = [rows[np.linspace(0, len(rows) - 1, n).astype(int)] for rows, n in zip(samples, sizes, strict=True) if n]
    return np.concatenate([samples[0][:0], *picked])


def _spread(model: Model) -> Array | None:
    """Scale of the columns, or None while there are too few rows to tell."""
    if model._warmup_ is None:
        return model._constants_.frame.scale
    rows = model._warmup_.rows[: model._warmup_.n]
    return frame_of_rows(rows).scale if len(rows) >= ROWS_THAT_TELL else None


def _check_same_scale(models: list[Model]) -> None:
    known = [spread for spread in map(_spread, models) if spread is not None]
    if not known:
        return
    least, most = np.min(known, axis=0), np.max(known, axis=0)
    column = int(np.argmax(most / least))
    if most[column] / least[column] > MAX_SCALE_RATIO:
        name = getattr(models[0], "feature_names_in_", range(len(most)))[column]
        raise MergeError(
            f"Column {name!r} spreads over about {least[column]:.3g} in one model and {most[column]:.3g} in "
            "another. Learn both in the same units, or give both the same scale=."
        )
