"""Questions to a probabilistic PCA: density, latent posterior, gaps, covariance, axes, samples.

Everything runs through M = W'W + sigma2 I, q x q; C = W W' + sigma2 I is formed for a caller who asks for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everlearn.ppca.kernels import density as kernels
from everlearn.ppca.state import PPCA, FactoredPPCA
from everlearn.typing import Array


class Axes(NamedTuple):
    """Principal axes and the variances along them, largest first."""

    components: Array  # (q, d), orthonormal rows
    variances: Array  # (q,)


def log_density(model: FactoredPPCA, X: Array) -> Array:
    """ln N(x_o; mu_o, C_oo) of the observed part of each row; 0 for a row with nothing observed."""
    out = np.empty(len(X))
    kernels.score_rows(X, model, out)
    return out


def latent(model: FactoredPPCA, X: Array) -> Array:
    """Posterior mean of z for each complete row, M^-1 W'(x - mu)."""
    return (X - model.mu) @ (model.W @ model.M_inv)


def fill(model: FactoredPPCA, X: Array) -> Array:
    """Rows with their gaps replaced by the conditional mean E[x_m | x_o] = mu_m + W_m z."""
    filled = np.empty_like(X)
    kernels.fill_rows(X, model, filled, np.empty((0, 0)))
    return filled


def fill_with_variance(model: FactoredPPCA, X: Array) -> tuple[Array, Array]:
    """Rows with their gaps filled, and the conditional variance of each filled cell (zero where observed)."""
    filled, variance = np.empty_like(X), np.zeros_like(X)
    kernels.fill_rows(X, model, filled, variance)
    return filled, variance


def covariance(model: PPCA | FactoredPPCA) -> Array:
    """C = W W' + sigma2 I, d x d."""
    C = model.W @ model.W.T
    C.flat[:: len(C) + 1] += model.sigma2
    return C


def precision(model: FactoredPPCA) -> Array:
    """C^-1 = (I - W M^-1 W')/sigma2, d x d."""
    # Woodbury: a q x q inverse in place of one of d x d.
    P = model.W @ -model.M_inv @ model.W.T
    P.flat[:: len(P) + 1] += 1.0
    return P / model.sigma2


def axes(model: PPCA | FactoredPPCA) -> Axes:
    """Eigenvectors of C with the q largest eigenvalues; the largest entry of each is positive."""
    # Learning fixes W only up to a rotation of the latent axes. C has the left singular vectors of W for
    # eigenvectors, and a sign rule makes them unique.
    U, singular, _ = np.linalg.svd(model.W, full_matrices=False)
    components = U.T
    peak = components[np.arange(len(components)), np.abs(components).argmax(axis=1)]
    return Axes(components * np.where(peak < 0.0, -1.0, 1.0)[:, None], singular**2 + model.sigma2)


def sample(model: PPCA | FactoredPPCA, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows."""
    d, q = model.W.shape
    rows: Array = rng.standard_normal((n, q)) @ model.W.T + np.sqrt(model.sigma2) * rng.standard_normal((n, d))
    return rows + model.mu
