"""Mixtures of scikit-learn as values, and values as fitted mixtures of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from everlearn.errors import InputError
from everlearn.gaussian.gaussian import whiten
from everlearn.gaussian.mixture import Mixture

if TYPE_CHECKING:
    # Imported when used: it takes as long to import as a model file to load.
    from sklearn.mixture import GaussianMixture


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
