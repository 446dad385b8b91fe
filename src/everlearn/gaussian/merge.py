"""Merging what several models know: Gaussian posteriors, creation priors, latent axes.

Three rules join Gaussian posteriors f_i = N(mu_i, Sigma_i): `mean_imm` (moment matching, the g that minimises
sum_i a_i KL(f_i, g)), `mode_imm` (the log-linear pool), and `bayes` (posteriors from independent data under one prior).
Each takes full covariances (K, D, D) or diagonal ones (K, D); `LowRank` covariances have their own two, which stay
low-rank plus diagonal and never form a D x D matrix.

References
----------
Lee et al., "Overcoming catastrophic forgetting by incremental moment matching", NIPS 2017.
Broderick et al., "Streaming variational Bayes", NIPS 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, MergeError
from everlearn.gaussian.gaussian import Array, Gaussian, Indices, inverse, moment_match

_EPSILON = 4.0 * float(np.finfo(np.float64).eps)


class LowRank(NamedTuple):
    """A Gaussian with covariance V V' + diag(noise)."""

    mean: Array  # (D,)
    factor: Array  # V, (D, r)
    noise: Array  # (D,)


def mean_imm(weights: Array, means: Array, covariances: Array) -> Gaussian:
    """Moment matching: ``mu = sum a_i mu_i``, ``Sigma = sum a_i (Sigma_i + (mu_i - mu)(mu_i - mu)')``."""
    return moment_match(_shares(weights), means, covariances)


def mode_imm(weights: Array, means: Array, covariances: Array) -> Gaussian:
    """Log-linear pool: ``Sigma^-1 = sum a_i Sigma_i^-1``, ``mu = Sigma sum a_i Sigma_i^-1 mu_i``.

    It is the mode of the product of the f_i^a_i, not of the mixture.
    """
    a = _shares(weights)
    if covariances.ndim == 2:
        # As differences from one of the means, here and below: natural parameters of large means would lose digits.
        pulls = a[:, None] / covariances
        variance = 1.0 / pulls.sum(axis=0)
        return Gaussian(means[0] + variance * (pulls * (means - means[0])).sum(axis=0), variance)
    precisions = a[:, None, None] * inverse(covariances)
    return _from_natural(means[0], precisions.sum(axis=0), _pull(precisions, means - means[0]))


def bayes(means: Array, covariances: Array, prior: Gaussian) -> Gaussian:
    """Posterior from all data, of posteriors from independent parts of it: ``eta = eta_0 + sum (eta_i - eta_0)``.

    eta are natural parameters, of the shared `prior` eta_0.

    Raises
    ------
    MergeError
        If the precisions do not add up to a positive definite one: then the posteriors cannot have come from this
        prior.
    """
    # Each posterior holds the prior; of all together one copy is to stay.
    extra = len(means) - 1.0
    if covariances.ndim == 2:
        learned = (1.0 / covariances).sum(axis=0)
        total = learned - extra / prior.covariance
        # A difference of the size of rounding has no digit, not even a sign.
        _require_definite(np.all(total > len(means) * _EPSILON * learned))
        pull = ((means - prior.mean) / covariances).sum(axis=0)
        return Gaussian(prior.mean + pull / total, 1.0 / total)
    precisions = inverse(covariances)
    learned = precisions.sum(axis=0)
    total = learned - extra * inverse(prior.covariance)
    _require_definite(_is_definite(total, np.diagonal(learned)))
    return _from_natural(prior.mean, total, _pull(precisions, means - prior.mean))


def mean_imm_low_rank(weights: Array, models: Sequence[LowRank]) -> LowRank:
    """`mean_imm`; the factors stand side by side, with the deviations of the means."""
    a = np.sqrt(_shares(weights))
    mean = sum((s * s * m.mean for s, m in zip(a, models, strict=True)), np.zeros_like(models[0].mean))
    # Roots of the weights on the factors: V V' then has the weights themselves. One more column for each
    # mean holds the spread between the models.
    parts = [s * np.column_stack([m.factor, m.mean - mean]) for s, m in zip(a, models, strict=True)]
    noise = sum((s * s * m.noise for s, m in zip(a, models, strict=True)), np.zeros_like(mean))
    return LowRank(mean, np.hstack(parts), noise)


def mode_imm_low_rank(weights: Array, models: Sequence[LowRank]) -> LowRank:
    """`mode_imm`, through precisions of the form ``diag(e) - C C'``.

    By Woodbury's identity the precision of a model is ``N^-1 - B B'`` with ``B = N^-1 V L'^-1`` and
    ``L L' = I + V' N^-1 V``; the inverse of the weighted sum is ``diag(1/e) + F F'``.
    """
    reference = models[0].mean
    e, pull = np.zeros_like(reference), np.zeros_like(reference)
    parts = []
    for a, m in zip(_shares(weights), models, strict=True):
        scaled = m.factor / m.noise[:, None]
        L = np.linalg.cholesky(np.eye(scaled.shape[1]) + m.factor.T @ scaled)
        B = np.linalg.solve(L, scaled.T).T
        shift = m.mean - reference
        e, pull = e + a / m.noise, pull + a * (shift / m.noise - B @ (B.T @ shift))
        parts.append(np.sqrt(a) * B)
    C = np.hstack(parts)
    # Woodbury once more, on diag(e) - C C'. The inner matrix is definite because that precision is.
    inner = np.eye(C.shape[1]) - C.T @ (C / e[:, None])
    F = np.linalg.solve(np.linalg.cholesky(inner), (C / e[:, None]).T).T
    return LowRank(reference + pull / e + F @ (F.T @ pull), F, 1.0 / e)


def prior_counted_once(counts: Array, covariances: Array, priors: Array, labels: Indices) -> Array:
    """Covariances of merged components that hold the creation prior once, as after one pass over all their samples.

    Component i was merged into labels[i] by its moments. It held ``n_i Sigma_i = diag(priors_i) + scatter``; of the sum
    of the priors their mean is kept. Exact without forgetting. A covariance that would be left with less than half of
    it cannot have come about so, and stays as it is.
    """
    total = np.zeros((len(counts), priors.shape[1]))
    np.add.at(total, labels, priors)
    once = total / np.bincount(labels, minlength=len(counts))[:, None]
    copies = (total - once) / counts[:, None]
    lowered = covariances - (copies if covariances.ndim == 2 else copies[:, :, None] * np.eye(copies.shape[1]))
    merged = np.flatnonzero(np.any(copies > 0.0, axis=1))
    # With forgetting, a component may hold less than its priors add up to; then nothing is taken off.
    kept = merged[~holds(lowered[merged], 0.5 * once[merged] / counts[merged, None])]
    lowered[kept] = covariances[kept]
    return lowered


def holds(covariances: Array, variances: Array) -> NDArray[np.bool_]:
    """Which of the covariances (or rows of variances) exceed diag(variances) in every direction."""
    if covariances.ndim == 2:
        return np.asarray(np.all(covariances > variances, axis=1))
    scale = np.broadcast_to(np.sqrt(variances), covariances.shape[:2])
    excess = covariances / scale[:, :, None] / scale[:, None, :] - np.eye(scale.shape[1])
    return np.asarray(np.linalg.eigvalsh(excess).min(axis=1, initial=np.inf) > 0.0)


def procrustes(A: Array, B: Array) -> Array:
    """Orthogonal matrix R that brings A R nearest to B in the Frobenius norm: U V' of the SVD of A'B."""
    # Orthogonal, reflections included: the sign of a latent axis means nothing.
    U, _, Vt = np.linalg.svd(A.T @ B)
    return np.asarray(U @ Vt)


def _shares(weights: Array) -> Array:
    weights = np.asarray(weights, dtype=np.float64)
    if not (np.all(weights >= 0.0) and 0.0 < weights.sum() < np.inf):
        raise InputError(f"weights={weights.tolist()} must be non-negative numbers with a positive sum.")
    return np.asarray(weights / weights.sum())


def _pull(precisions: Array, shifts: Array) -> Array:
    """Sum of Lambda_i (mu_i - reference)."""
    return np.asarray(np.einsum("kij,kj->i", precisions, shifts))


def _from_natural(reference: Array, total: Array, pull: Array) -> Gaussian:
    """Gaussian with precision `total` and mean reference + total^-1 pull."""
    covariance = inverse(total)
    return Gaussian(reference + covariance @ pull, covariance)


def _is_definite(matrix: Array, size: Array) -> bool:
    """Whether a difference of matrices is positive definite beyond the rounding of terms of `size`, (D,)."""
    scale = np.sqrt(size)
    smallest = np.linalg.eigvalsh(matrix / scale / scale[:, None]).min(initial=np.inf)
    return bool(smallest > len(matrix) * _EPSILON)


def _require_definite(definite: bool | np.bool_) -> None:
    if not definite:
        raise MergeError(
            "The merged precision, the sum of all precisions less the copies of the prior's, is not positive definite: "
            "these posteriors are less certain than the prior allows. Give the prior that they were learned from, or "
            "merge with method='mean' or 'mode'."
        )
