"""A Gaussian mixture: density, responsibilities, marginal, moments, sampling. Its conditionals are in `conditional`.

NaN means "not observed": rows are grouped by their gaps, and the marginal of each pattern is factorised once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.gaussian.gaussian import (
    LOG_2PI,
    Columns,
    Gaussian,
    Indices,
    Whitening,
    columns,
    log_sum_exp,
    moment_match,
    safe_cholesky,
    whiten,
)
from everlearn.linalg.backend_torch import TorchDevice
from everlearn.typing import Array

# Deviations of rows from means are formed in blocks of about this many numbers, which stay in cache, and of enough
# rows for a matrix product.
CHUNK, ROWS = 1 << 16, 256


class Mixture(NamedTuple):
    """A mixture of K Gaussians in D columns; covariances of shape (K, D) are diagonal."""

    weights: Array  # (K,)
    means: Array  # (K, D)
    covariances: Array  # (K, D, D) or (K, D)

    @property
    def is_diagonal(self) -> bool:
        """Whether the covariances hold variances only."""
        return self.covariances.ndim == 2


def with_matrices(mixture: Mixture) -> Mixture:
    """The same mixture with a full matrix for each covariance."""
    if not mixture.is_diagonal:
        return mixture
    return mixture._replace(covariances=mixture.covariances[:, :, None] * np.eye(mixture.means.shape[1]))


def variances(mixture: Mixture) -> Array:
    """Variance of every column in every component, (K, D)."""
    if mixture.is_diagonal:
        return mixture.covariances
    return np.asarray(np.diagonal(mixture.covariances, axis1=1, axis2=2))


def whitenings(mixture: Mixture) -> Whitening:
    """Whitening matrices and log-determinants of the components, to score many batches with one mixture."""
    return whiten(mixture.covariances, diagonal=mixture.is_diagonal)


def log_joint(X: Array, mixture: Mixture, whitening: Whitening | None = None) -> Array:
    """log w_k + log N(x; mu_k, Sigma_k) for every row and component, (n, K); gaps are integrated out.

    `whitening` is what `whitenings` returned for this mixture; it serves the rows without gaps.
    """
    if not np.isnan(X).any():
        return log_joint_of_complete(X, mixture, whitenings(mixture) if whitening is None else whitening)
    out = np.empty((len(X), len(mixture.weights)))
    for observed, rows in patterns(X):
        part = mixture if len(observed) == X.shape[1] else marginal(mixture, observed)
        known = whitening if part is mixture and whitening is not None else whitenings(part)
        out[rows] = log_joint_of_complete(X[np.ix_(rows, observed)], part, known)
    return out


def log_density(X: Array, mixture: Mixture, whitening: Whitening | None = None) -> Array:
    """Log-density of every row, (n,)."""
    return log_sum_exp(log_joint(X, mixture, whitening))


def responsibilities(X: Array, mixture: Mixture, whitening: Whitening | None = None) -> Array:
    """Posterior probability of every component given each row, (n, K)."""
    return posterior_weights(log_joint(X, mixture, whitening), mixture.weights)


def marginal(mixture: Mixture, keep: Columns) -> Mixture:
    """Mixture of the columns `keep`, in that order."""
    weights, means, covariances = mixture
    kept = columns(keep, means.shape[1])
    if mixture.is_diagonal:
        return Mixture(weights, means[:, kept], covariances[:, kept])
    return Mixture(weights, means[:, kept], covariances[:, kept[:, None], kept])


def moments(mixture: Mixture) -> Gaussian:
    """Mean and covariance of the mixture (variances only, if it is diagonal)."""
    return moment_match(*mixture)


def sample(mixture: Mixture, n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.intp]]:
    """Draw `n` rows, and the component that each came from."""
    weights, means, covariances = mixture
    labels = rng.choice(len(weights), size=n, p=weights / weights.sum()).astype(np.intp)
    X = rng.standard_normal((n, means.shape[1]))
    if mixture.is_diagonal:
        return means[labels] + np.sqrt(covariances)[labels] * X, labels
    factors, _ = safe_cholesky(covariances)
    for k in np.unique(labels):
        X[labels == k] = X[labels == k] @ factors[k].T + means[k]
    return X, labels


def patterns(X: Array) -> Iterator[tuple[Indices, Indices]]:
    """Groups of rows with the same gaps: the columns that they observe, and the rows."""
    missing = np.isnan(X)
    if not X.shape[1]:  # nothing is given: one group, and no bytes to compare
        yield np.empty(0, dtype=np.intp), np.arange(len(X))
        return
    # One bit a cell: patterns are compared as short byte strings.
    packed = np.ascontiguousarray(np.packbits(missing, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
    _, first, group, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    for row, rows in zip(first, np.split(order, np.cumsum(counts)[:-1]), strict=True):
        yield np.flatnonzero(~missing[row]), rows


def log_joint_of_complete(X: Array, mixture: Mixture, whitening: Whitening, device: TorchDevice | None = None) -> Array:
    """`log_joint` of rows without gaps, given the components' whitening; by products on a device, if there is one."""
    with np.errstate(divide="ignore"):
        constant = np.log(mixture.weights) - 0.5 * (whitening.log_det + X.shape[1] * LOG_2PI)
    if device is None:
        return np.asarray(constant - 0.5 * squared_distances(X, mixture.means, whitening))
    return np.asarray(constant - 0.5 * squared_distances_on(device, X, mixture.means, whitening))


def squared_distances(X: Array, means: Array, whitening: Whitening) -> Array:
    """(x - mu_k)' Sigma_k^-1 (x - mu_k), (n, K), as matrix products over blocks of rows and components."""
    K, D = means.shape
    out = np.empty((len(X), K))
    n_rows = max(ROWS, CHUNK // max(1, means.size))
    for rows in spans(len(X), n_rows):
        for some in spans(K, CHUNK // max(1, min(n_rows, len(X)) * D)):
            E = X[rows] - means[some, None, :]
            U = whitening.matrix[some]
            Z = E * U[:, None, :] if whitening.is_diagonal else E @ U
            out[rows, some] = np.einsum("knd,knd->nk", Z, Z)
    return out


def squared_distances_on(device: TorchDevice, X: Array, means: Array, whitening: Whitening) -> Array:
    """`squared_distances` by products on a device."""
    sent, centres, U = device.rows(X), device.tensor(means), device.tensor(whitening.matrix)
    found = []
    for rows in spans(len(X), device.stack_numbers // max(1, means.size)):
        E = sent.part(rows.start, min(rows.stop, len(X))) - centres[:, None]
        Z = E * U[:, None] if whitening.is_diagonal else E @ U
        found.append((Z * Z).sum(dim=2).T)
    return device.array(device.torch.cat(found))


def white(X: Array, mixture: Mixture, k: int) -> Array:
    """The rows in the white axes of component k, (n, D): their squared lengths are its Mahalanobis distances."""
    whitening = whiten(mixture.covariances[k : k + 1], diagonal=mixture.is_diagonal)
    E = X - mixture.means[k]
    return E * whitening.matrix[0] if whitening.is_diagonal else np.asarray(E @ whitening.matrix[0])


def spans(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover n items."""
    step = max(1, size)
    return (slice(start, start + step) for start in range(0, n, step))


def posterior_weights(log_joints: Array, weights: Array) -> Array:
    """Normalised exp of each row; a row out of reach of every component falls back to the weights."""
    total = log_sum_exp(log_joints)[:, None]
    reached = np.isfinite(total)
    shares = np.exp(log_joints - np.where(reached, total, 0.0))
    return np.asarray(np.where(reached, shares, weights / weights.sum()))
