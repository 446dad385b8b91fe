"""Mixtures from and to scikit-learn, and the mixture that any model stands for."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from everlearn.base.scaling import Frame, frame_of_spread
from everlearn.errors import InputError
from everlearn.figmn import merge as joining
from everlearn.figmn.estimator_merge import with_state
from everlearn.figmn.learn import MixtureState
from everlearn.figmn.state import from_components, mixture_of
from everlearn.gaussian.gaussian import moment_match, whiten
from everlearn.gaussian.mixture import Mixture, variances, with_matrices

if TYPE_CHECKING:
    # Imported when used: it takes as long to import as a model file to load.
    from sklearn.mixture import GaussianMixture

# The estimator imports this module, so that its class cannot be named here: it would close an import circle.
Model = Any

Array = NDArray[np.float64]


def from_sklearn(cls: Any, mixture: GaussianMixture, n_samples: Any, parameters: dict[str, Any]) -> Model:
    """A model that has learned a fitted scikit-learn mixture, as if from `n_samples` rows, and goes on learning.

    The counts of the components are their weights times `n_samples`; densities are those of `mixture`.
    """
    if not isinstance(n_samples, Real) or not 0.0 < float(n_samples) < np.inf:
        raise InputError(
            f"n_samples must be the positive number of rows that the mixture stands for; got {n_samples!r}."
        )
    known = mixture_of_sklearn(mixture)
    model = cls(**{"covariance": "diag" if known.is_diagonal else "full", **parameters})
    model._validate_params()
    model.n_features_in_ = known.means.shape[1]
    if hasattr(mixture, "feature_names_in_"):
        model.feature_names_in_ = mixture.feature_names_in_.copy()
    frame = _frame_of(known, model)
    state = _state_of(_with_shape(known, model.covariance), frame, float(n_samples))
    limit = model._settings_for(frame).max_components
    return with_state(model, joining.reduced(state, limit), frame, primed=False)


def _frame_of(mixture: Mixture, model: Model) -> Frame:
    """The model's own scale, or that of the mixture's columns."""
    mean, variance = moment_match(mixture.weights, mixture.means, variances(mixture))
    own = isinstance(model.scale, str)
    return frame_of_spread(np.sqrt(variance) if own else model._given_scale(len(mean)), mean)


def _state_of(mixture: Mixture, frame: Frame, n_samples: float) -> MixtureState:
    """The mixture as learned from `n_samples` rows."""
    square = frame.scale**2 if mixture.is_diagonal else frame.scale * frame.scale[:, None]
    ages = np.full(len(mixture.weights), n_samples)
    state = from_components(
        mixture.weights * n_samples, mixture.means / frame.scale, mixture.covariances / square, ages
    )
    return state._replace(n_rows=round(n_samples))


def to_sklearn(model: Model) -> GaussianMixture:
    """A fitted scikit-learn mixture with the components that densities are answered from."""
    weights, means, covariances = answering_mixture(model)
    shape = "diag" if covariances.ndim == 2 else "full"
    new = fitted_sklearn(Mixture(weights, means, covariances), shape)
    if hasattr(model, "feature_names_in_"):
        new.feature_names_in_ = model.feature_names_in_.copy()
    new.random_state = model.random_state
    return new


def fitted_sklearn(mixture: Mixture, covariance_type: str) -> GaussianMixture:
    """A scikit-learn mixture fitted by hand."""
    from sklearn.mixture import GaussianMixture

    new = GaussianMixture(len(mixture.weights), covariance_type=covariance_type)
    new.weights_, new.means_, new.covariances_ = mixture
    U, _ = whiten(mixture.covariances, diagonal=mixture.is_diagonal)
    new.precisions_cholesky_ = U
    new.precisions_ = U * U if mixture.is_diagonal else U @ U.transpose(0, 2, 1)
    new.converged_, new.n_iter_, new.lower_bound_, new.lower_bounds_ = True, 0, np.nan, []
    new.n_features_in_ = mixture.means.shape[1]
    return new


def answering_mixture(model: Model) -> Mixture:
    """The mixture that the densities of a model are, in the units of its columns."""
    model._check_started()
    state, constants = model._answer()
    weights, means, covariances = mixture_of(state)
    scale = constants.frame.scale
    square = scale * scale if covariances.ndim == 2 else scale * scale[:, None]
    return Mixture(weights, means * scale, covariances * square)


def mixture_of_sklearn(mixture: GaussianMixture) -> Mixture:
    """The components of a fitted scikit-learn mixture that have weight; tied and spherical covariances written out."""
    from sklearn.mixture import GaussianMixture

    if not isinstance(mixture, GaussianMixture):
        raise InputError(f"A fitted sklearn.mixture.GaussianMixture is needed, not a {type(mixture).__name__}.")
    check_is_fitted(mixture)
    weights, means = (np.asarray(a, dtype=np.float64) for a in (mixture.weights_, mixture.means_))
    covariances = np.asarray(mixture.covariances_, dtype=np.float64)
    if mixture.covariance_type == "tied":
        covariances = np.tile(covariances, (len(weights), 1, 1))
    elif mixture.covariance_type == "spherical":
        covariances = np.tile(covariances[:, None], (1, means.shape[1]))
    alive = weights > 0.0
    return Mixture(weights[alive] / weights[alive].sum(), means[alive], covariances[alive])


def _with_shape(mixture: Mixture, covariance: str) -> Mixture:
    """Covariances of the shape that the model keeps."""
    if covariance == "diag" and not mixture.is_diagonal:
        raise InputError(
            "covariance='diag' cannot hold the full covariances of this mixture. Leave the parameter out, or fit the "
            "mixture with covariance_type='diag'."
        )
    if covariance == "full" and mixture.is_diagonal:
        return with_matrices(mixture)
    return mixture
