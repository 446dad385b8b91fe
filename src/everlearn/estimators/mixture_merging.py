"""Incremental mixtures learned apart, merged into one that goes on learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from everlearn.core import adaptive, joining
from everlearn.core.frame import Frame
from everlearn.core.incremental import MixtureState
from everlearn.errors import MergeError

if TYPE_CHECKING:
    from everlearn.estimators.mixture import IncrementalGaussianMixture

    Model = TypeVar("Model", bound=IncrementalGaussianMixture)

# Spreads of one column in two models that differ by more than this are taken for different units.
MAX_SCALE_RATIO = 1000.0


def merged(
    model: Model, others: list[Model], *, method: str, weights: ArrayLike | None, n_components: int | None
) -> Model:
    """A new mixture with the components of all, in the frame of the first, within the components that are allowed."""
    if method not in ("auto", "mean"):
        raise MergeError(
            f"method={method!r} does not apply to mixtures: their components are joined and then merged by their "
            "moments. Use method='auto'."
        )
    parts = [part._settled() for part in (model, *others)]
    frame = parts[0][1].frame
    for _, constants in parts[1:]:
        _check_same_scale(model, frame, constants.frame)
    shares = np.ones(len(parts)) if weights is None else np.asarray(weights) * len(parts) / np.sum(weights)
    states = [joining.in_frame(state, constants.frame, frame) for state, constants in parts]
    whole = with_state(model, joining.joined(states, shares, model.delta * frame.variance), frame, n_components)
    _take_signals(whole, [model, *others])
    return whole


def with_state(model: Model, state: MixtureState, frame: Frame, n_components: int | None = None) -> Model:
    """A model with the parameters and columns of `model` that has learned `state`."""
    new = model._unfitted()
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(new, name, getattr(model, name))
    new._start(np.empty((0, model.n_features_in_)), whole=False)
    new._warmup_ = None
    limit = new._settings_for(frame).max_components if n_components is None else n_components
    new._state_ = joining.within(state, limit)
    new._settle(frame)
    return new


def _check_same_scale(model: IncrementalGaussianMixture, mine: Frame, theirs: Frame) -> None:
    ratio = np.maximum(mine.scale / theirs.scale, theirs.scale / mine.scale)
    if ratio.max() > MAX_SCALE_RATIO:
        column = int(ratio.argmax())
        name = getattr(model, "feature_names_in_", range(len(ratio)))[column]
        raise MergeError(
            f"Column {name!r} spreads over about {mine.scale[column]:.3g} in one model and "
            f"{theirs.scale[column]:.3g} in another. Learn both in the same units, or give both the same scale=."
        )


def _take_signals(whole: IncrementalGaussianMixture, models: list[Model]) -> None:
    """Add up the totals of the merged models, and sample from their samples in proportion."""
    if whole._bank_ is not None:
        whole._bank_ = adaptive.init(whole._state_)
    whole._monitor_.totals[:] = sum(model._monitor_.totals for model in models)
    if not whole.second_look:
        return
    room = len(whole._sample_)
    seen = np.array([model._sampled_ for model in models])
    taken = np.minimum(seen, room * seen // max(int(seen.sum()), 1)) if seen.sum() > room else seen
    rows = [
        model._sample_[:n] * (model._constants_.frame.scale / whole._constants_.frame.scale)
        for model, n in zip(models, taken, strict=True)
        if n
    ]
    joint = np.concatenate([np.empty((0, whole.n_features_in_)), *rows])
    whole._sample_[: len(joint)] = joint
    whole._sampled_ = int(seen.sum()) if len(joint) == room else len(joint)
