"""Mixtures of factor analysers: covariances ``W' W + diag(psi)`` of few factors in many columns.

No matrix of columns by columns is formed: by Woodbury's identity all that is asked of such Gaussians needs matrices
of factors by factors only (Ghahramani and Hinton, 1996).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError
from everlearn.gaussian.conditional import ConditionalMixture, Imputation
from everlearn.gaussian.gaussian import LOG_2PI, Indices, log_sum_exp, other_columns
from everlearn.gaussian.mixture import patterns, posterior_weights
from everlearn.typing import Array

# Numbers of covariance matrices that an answer may hold (1 GiB).
MOST_NUMBERS = 2**27


class FactorMixture(NamedTuple):
    """A mixture of K Gaussians in D columns, each with Q factors and its own noise in each column."""

    weights: Array  # (K,)
    means: Array  # (K, D)
    loadings: Array  # (K, Q, D), rows of zeros where a component has fewer factors
    noise: Array  # (K, D)


class Posterior(NamedTuple):
    """What observed columns say about each row."""

    log_joint: Array  # (n, K), log-density of the observed columns and the component
    latent: Array  # (n, K, Q), expected factors
    inverse: Array  # (K, Q, Q), inverse Cholesky factor of their precision, lower


def posterior(mixture: FactorMixture, given: Indices, values: Array) -> Posterior:
    """Densities and factors of rows of which the columns `given` are observed.

    With ``M = I + W_o psi_o^-1 W_o' = L L'`` and ``v = L^-1 W_o psi_o^-1 e``, the squared distance is
    ``e' psi_o^-1 e - |v|^2`` and the log-determinant ``sum log psi_o + 2 sum log L_kk``.
    """
    K, Q, _ = mixture.loadings.shape
    out = Posterior(np.empty((len(values), K)), np.empty((len(values), K, Q)), np.empty((K, Q, Q)))
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixture.weights)
    for k in range(K):
        W, psi = mixture.loadings[k][:, given], mixture.noise[k, given]
        E = values - mixture.means[k, given]
        # Woodbury and the matrix determinant lemma: everything in Q x Q.
        scaled = W / psi
        inverse = np.linalg.inv(np.linalg.cholesky(np.eye(Q) + scaled @ W.T))
        v = inverse @ (scaled @ E.T)
        d2 = (E * E) @ (1.0 / psi) - (v * v).sum(axis=0)
        # The diagonal of L^-1 holds 1/L_kk, hence the minus.
        log_det = np.log(psi).sum() - 2.0 * np.log(np.diagonal(inverse)).sum()
        out.log_joint[:, k] = log_weights[k] - 0.5 * (d2 + log_det + len(given) * LOG_2PI)
        # E[z | x] = M^-1 W_o psi_o^-1 e, with M^-1 = L'^-1 L^-1.
        out.latent[:, k] = (inverse.T @ v).T
        out.inverse[k] = inverse
    return out


def log_density(X: Array, mixture: FactorMixture) -> Array:
    """Log-density of each row; of its observed part where it has gaps, 0 where nothing is observed."""
    out = np.zeros(len(X))
    for observed, rows in patterns(X):
        if len(observed):
            out[rows] = log_sum_exp(posterior(mixture, observed, X[np.ix_(rows, observed)]).log_joint)
    return out


def responsibilities(X: Array, mixture: FactorMixture) -> Array:
    """Posterior probability of each component for each row, (n, K)."""
    out = np.empty((len(X), len(mixture.weights)))
    for observed, rows in patterns(X):
        found = posterior(mixture, observed, X[np.ix_(rows, observed)])
        out[rows] = posterior_weights(found.log_joint, mixture.weights)
    return out


def condition(mixture: FactorMixture, given: Indices, values: Array, target: Indices) -> ConditionalMixture:
    """Mixture of the columns `target` for each row of the columns `given`; NaN among the values is not observed.

    Means are ``mu_t + W_t' z``, covariances ``(L^-1 W_t)' (L^-1 W_t) + psi_t``.
    """
    n, K, T = len(values), len(mixture.weights), len(target)
    per_row = bool(np.isnan(values).any())
    if (n if per_row else 1) * K * T * T > MOST_NUMBERS:
        raise InputError(
            f"The covariances of {T} columns in {K} components would take more than a gigabyte. Ask for fewer target "
            "columns at a time; predict_columns and impute, without covariances, take any number."
        )
    shares, means = np.empty((n, K)), np.empty((n, K, T))
    covariances = np.empty((n, K, T, T)) if per_row else np.empty((K, T, T))
    for observed, rows in patterns(values):
        found = posterior(mixture, given[observed], values[np.ix_(rows, observed)])
        shares[rows] = posterior_weights(found.log_joint, mixture.weights)
        means[rows] = _conditional_means(mixture, found, target)
        for k in range(K):
            S = found.inverse[k] @ mixture.loadings[k][:, target]
            C = S.T @ S + np.diag(mixture.noise[k, target])
            if per_row:
                covariances[rows, k] = C
            else:
                covariances[k] = C
    return ConditionalMixture(shares, means, covariances)


def expected_columns(mixture: FactorMixture, given: Indices, values: Array, target: Indices) -> Array:
    """Mean of `condition`, without its covariances: any number of columns from any others."""
    out = np.empty((len(values), len(target)))
    for observed, rows in patterns(values):
        found = posterior(mixture, given[observed], values[np.ix_(rows, observed)])
        share = posterior_weights(found.log_joint, mixture.weights)
        out[rows] = np.einsum("nk,nkt->nt", share, _conditional_means(mixture, found, target))
    return out


def impute(X: Array, mixture: FactorMixture) -> Imputation:
    """Conditional mean of every gap given the row's observed columns, and its standard deviation."""
    filled, spread = X.copy(), np.zeros_like(X)
    for observed, rows in patterns(X):
        gaps = other_columns(observed, X.shape[1])
        if not len(gaps):
            continue
        found = posterior(mixture, observed, X[np.ix_(rows, observed)])
        share = posterior_weights(found.log_joint, mixture.weights)
        means = _conditional_means(mixture, found, gaps)
        mean = np.einsum("nk,nkt->nt", share, means)
        variance = np.array(
            [
                ((inverse @ W[:, gaps]) ** 2).sum(axis=0) + psi[gaps]
                for inverse, W, psi in zip(found.inverse, mixture.loadings, mixture.noise, strict=True)
            ]
        )
        # Law of total variance: within the components, and between their means.
        second = np.einsum("nk,nkt->nt", share, variance + (means - mean[:, None, :]) ** 2)
        filled[np.ix_(rows, gaps)] = mean
        spread[np.ix_(rows, gaps)] = np.sqrt(second)
    return Imputation(filled, spread)


def draw_gaps(X: Array, mixture: FactorMixture, rng: np.random.Generator) -> Array:
    """Rows with every gap drawn from its conditional distribution under the row's most probable component."""
    filled, Q = X.copy(), mixture.loadings.shape[1]
    for observed, rows in patterns(X):
        gaps = other_columns(observed, X.shape[1])
        if not len(gaps):
            continue
        found = posterior(mixture, observed, X[np.ix_(rows, observed)])
        best = np.argmax(found.log_joint, axis=1)
        for i, row in enumerate(rows):
            k = best[i]
            # Standard normals times L^-1 have the covariance L'^-1 L^-1 = M^-1 of the factors given the row.
            z = found.latent[i, k] + rng.standard_normal(Q) @ found.inverse[k]
            noise = rng.standard_normal(len(gaps)) * np.sqrt(mixture.noise[k, gaps])
            filled[row, gaps] = mixture.means[k, gaps] + z @ mixture.loadings[k][:, gaps] + noise
    return filled


def sample(mixture: FactorMixture, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
    """Draw `n` rows and the components that they came from."""
    K, Q, D = mixture.loadings.shape
    labels = rng.choice(K, size=n, p=mixture.weights)
    Z, noise = rng.standard_normal((n, Q)), rng.standard_normal((n, D))
    out = mixture.means[labels] + noise * np.sqrt(mixture.noise[labels])
    for k in np.unique(labels):
        out[labels == k] += Z[labels == k] @ mixture.loadings[k]
    return out, labels


def covariances(mixture: FactorMixture) -> Array:
    """Covariance matrices, (K, D, D)."""
    K, D = mixture.means.shape
    if K * D * D > MOST_NUMBERS:
        raise InputError(
            f"The covariances of {K} components in {D} columns would take more than a gigabyte. Use loadings_ and "
            "noise_variances_: each covariance is loadings_[k].T @ loadings_[k] + np.diag(noise_variances_[k])."
        )
    full = mixture.loadings.transpose(0, 2, 1) @ mixture.loadings
    full[:, np.arange(D), np.arange(D)] += mixture.noise
    return np.asarray(full)


def precisions(mixture: FactorMixture) -> Array:
    """Inverses of the covariances, (K, D, D): ``psi^-1 - psi^-1 W' M^-1 W psi^-1``."""
    out = -covariances(mixture)  # for its size, and its refusal
    for k, (W, psi) in enumerate(zip(mixture.loadings, mixture.noise, strict=True)):
        B = np.linalg.solve(np.linalg.cholesky(np.eye(len(W)) + (W / psi) @ W.T), W / psi)
        out[k] = np.diag(1.0 / psi) - B.T @ B
    return out


def _conditional_means(mixture: FactorMixture, found: Posterior, target: Indices) -> Array:
    """Mean of the target columns for each row and component, (n, K, T)."""
    means = np.empty((len(found.latent), len(mixture.weights), len(target)))
    for k in range(len(mixture.weights)):
        means[:, k] = mixture.means[k, target] + found.latent[:, k] @ mixture.loadings[k][:, target]
    return means
