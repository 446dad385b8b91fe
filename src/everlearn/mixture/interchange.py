"""Models that know a given mixture: one of scikit-learn, or the pool of several models."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from everlearn.errors import InputError, MergeError
from everlearn.figmn.sklearn_conversion import mixture_of_sklearn
from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.mixture import Mixture, with_matrices
from everlearn.gaussian.pooling import pool
from everlearn.mixture.keep import carry
from everlearn.mixture.keep.world import frame_of_spread, world_of_rows
from everlearn.mixture.state import Model, Settings, Shape, State
from everlearn.typing import Array

# The estimator imports this module, so that its class cannot be named here: it would close an import circle.
Estimator = Any

# The common shape counts for next to nothing, so that covariances stay as they were given.
TAU = 1e-6


def from_sklearn(cls: Any, mixture: Any, n_samples: Any, parameters: dict[str, Any]) -> Estimator:
    """A model with the components of a fitted scikit-learn mixture, as if learned from `n_samples` rows.

    Rows drawn from the mixture stand in the reservoir, so that later searches know of it.
    """
    if not isinstance(n_samples, Real) or not 0.0 < float(n_samples) < np.inf:
        raise InputError(
            f"n_samples must be the positive number of rows that the mixture stands for; got {n_samples!r}."
        )
    known = with_matrices(mixture_of_sklearn(mixture))
    new = cls(**parameters)
    if new.covariance_type == "low_rank":
        raise InputError("A mixture of scikit-learn cannot become one with covariance_type='low_rank'; use 'full'.")
    if new.covariance_type == "auto":
        new.covariance_type = "full"
    new._validate_params()
    new.n_features_in_ = known.means.shape[1]
    if hasattr(mixture, "feature_names_in_"):
        new.feature_names_in_ = mixture.feature_names_in_.copy()
    new._start(known.means, whole=False)
    _adopt(new, known, float(n_samples))
    new._rows_ = round(float(n_samples))
    return new


def pooled(new: Estimator, models: Sequence[Estimator], shares: Sequence[float], n_components: int | None) -> None:
    """Give a model that has learned nothing the pool of several models (mode-IMM), each with its share of trust."""
    if any(model.covariance_type_ == "low_rank" for model in models):
        raise MergeError(
            "method='mode' does not apply to covariance_type='low_rank': the precisions of pooled components are "
            "matrices of all columns, which such a model never forms. Use method='auto' or 'mean'."
        )
    parts = []
    for model, share in zip(models, shares, strict=True):
        shown = with_matrices(Mixture(model.weights_, model.means_, model.covariances_))
        count = share * model._core_.effective_samples(model._state_) / shown.weights.sum()
        # A weight may underflow to nothing; such a component has no say.
        alive = shown.weights > 0.0
        parts.append(Mixture(*(array[alive] for array in shown._replace(weights=shown.weights * count))))
    known = pool(parts, n_components=n_components or new.n_components, max_components=new._core_.settings.most)
    total = float(known.weights.sum())
    _adopt(new, known._replace(weights=known.weights / total), total)


def _adopt(new: Estimator, known: Mixture, n: float) -> None:
    core: Any = new._core_
    empty = core.answering(new._state_).state
    new._state_ = core.adopted(_state_of(known, n, empty, core.settings))


def _state_of(mixture: Mixture, n: float, empty: State, settings: Settings) -> State:
    mean, covariance = mixtures.moments(mixture)
    frame = empty.frame or frame_of_spread(mean, np.sqrt(np.diag(covariance)))
    square = frame.inverse * frame.inverse[:, None]
    inside = Mixture(mixture.weights, (mixture.means - frame.centre) * frame.inverse, mixture.covariances * square)
    rows = max(round(n), 1)
    size = min(len(empty.reservoir.rows), rows)
    rng = np.random.default_rng(0)
    Z, _ = mixtures.sample(inside, max(size, 100), rng)
    world = world_of_rows(Z, np.ones(len(Z)), 1.0)
    # The mixture is all that is known: until a search, nothing stands behind its components.
    world = world._replace(background=world.background._replace(rows=0.0))
    shape = Shape(world.typical, np.zeros(len(mean)), TAU, settings.diagonal)
    K = len(mixture.weights)
    room = carry.room_for(K, settings)
    model = Model(carry.components_of(_stock(inside, n, shape), n, shape, room, settings.parts), shape, world, 1.0, K)
    sample = empty.reservoir
    if size:
        sample.rows[:size] = Z[:size]
        sample.keys[:size] = -np.log(rng.random(size)) + max(0.0, np.log(n / size))
        sample.level[0] = np.log(n / size) if n > size else -np.inf
        sample.size[0], sample.offered[0] = size, rows
    pending = empty.pending._replace(rows=np.zeros((0, len(mean))), weights=np.zeros(0), size=0)
    return State(rows, frame, model, rows, sample, pending)


def _stock(mixture: Mixture, n: float, shape: Shape) -> carry.Stock:
    """Moments whose posterior-mean covariances are those of the mixture.

    Sigma = (tau C + S) (1 + 1/c) / (tau + c - 1), without a ridge.
    """
    count = np.maximum(mixture.weights * n, 2.0)
    scale: Array = (TAU + count - 1.0) / (1.0 + 1.0 / count)
    scatter = mixture.covariances * scale[:, None, None] - TAU * shape.matrix
    return carry.Stock(mixture.weights * n, count, mixture.means, scatter)
