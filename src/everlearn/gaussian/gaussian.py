"""One Gaussian, or a stack of them: factors, density, regression, divergence, moment matching.

Leading axes are stacks and follow NumPy's broadcasting. Factorisations run on the covariance scaled by powers of
two to nearly unit variances, so columns of any scale from 1e-150 to 1e150 can stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from everlearn.errors import InputError
from everlearn.typing import Array as Array

Indices = NDArray[np.intp]
Columns = int | slice | Sequence[int] | Sequence[bool] | NDArray[Any]

LOG_2PI = float(np.log(2.0 * np.pi))
# Stacks of matrices up to this size are factorised in one compiled loop: LAPACK costs about 10 us a call, whatever the
# size. A matrix with a pivot lost to rounding goes the careful way.
_SMALL = 32
# Relative inflations of the variances that are tried until a matrix is definite.
_INFLATIONS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)


class Gaussian(NamedTuple):
    """A Gaussian N(mean, covariance), or a stack of them along leading axes."""

    mean: Array  # (..., D)
    covariance: Array  # (..., D, D)


class Whitening(NamedTuple):
    """A matrix U with U U' = covariance^-1, so that rows e U are white, and log|covariance|.

    U is the inverse of the transposed Cholesky factor, (..., D, D); for a diagonal covariance the inverse standard
    deviations, (..., D).
    """

    matrix: Array
    log_det: Array  # (...)

    @property
    def is_diagonal(self) -> bool:
        """Whether the covariance is diagonal, so that `matrix` holds one number a column."""
        return self.matrix.ndim == self.log_det.ndim + 1


class Regression(NamedTuple):
    """Linear regression of target columns on given ones under a Gaussian."""

    whitening: Whitening  # of the given columns
    gain: Array  # (..., T, G)
    covariance: Array  # (..., T, T), of the targets once the given columns are known


def log_sum_exp(values: Array) -> Array:
    """log sum exp over the last axis; -inf where every value is -inf."""
    top = values.max(axis=-1, keepdims=True)
    # -inf less -inf is NaN; with 0 in its place the sum is zero and its log -inf.
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0])


def columns(select: Columns, n_features: int) -> Indices:
    """Column numbers that `select` (an index, a list of them, a mask or a slice) stands for."""
    return np.atleast_1d(np.arange(n_features, dtype=np.intp)[select])


def other_columns(given: Indices, n_features: int) -> Indices:
    """Columns that are not among `given`, in order."""
    left = np.ones(n_features, dtype=bool)
    left[given] = False
    return np.flatnonzero(left)


def inverse(matrix: Array) -> Array:
    """Inverse of a positive definite matrix, by its Cholesky factor: a covariance from a precision, or back."""
    U = whiten(matrix).matrix
    return U @ np.swapaxes(U, -1, -2)


def safe_cholesky(covariance: Array) -> tuple[Array, Array]:
    """Lower Cholesky factor of a covariance, and the matrix that it factorises.

    A matrix that is numerically not positive definite has each variance multiplied by 1 + 1e-12, 1 + 1e-10, ...
    until it is.

    Raises
    ------
    InputError
        If a variance is not positive and finite, or no such inflation up to doubling helps.
    """
    scale, L, inflation = _scaled_cholesky(covariance)
    # A share of each variance and not a constant: the result does not depend on the units of the columns.
    used = covariance.copy()
    diagonal = np.arange(covariance.shape[-1])
    used[..., diagonal, diagonal] *= 1.0 + inflation[..., None]
    return scale[..., :, None] * L, used


def whiten(covariance: Array, *, diagonal: bool = False) -> Whitening:
    """Whitening matrix and log-determinant of a covariance (made definite as in `safe_cholesky`).

    With ``diagonal=True`` the argument holds variances only, (..., D).
    """
    if diagonal:
        _check_variances(covariance)
        return Whitening(1.0 / np.sqrt(covariance), np.log(covariance).sum(axis=-1))
    if covariance.ndim == 3 and covariance.shape[-1] <= _SMALL:
        from everlearn.linalg.dense import whiten_stack  # compiled; conditioning on a few columns does without numba

        matrix, log_dets = whiten_stack(np.ascontiguousarray(covariance))
        if np.isfinite(log_dets).all():
            return Whitening(matrix, log_dets)
    scale, L, _ = _scaled_cholesky(covariance)
    return Whitening(_inverse_transposed(L) / scale[..., :, None], _log_det(scale, L))


def log_det(covariance: Array) -> Array:
    """Log-determinant of a covariance (made definite as in `safe_cholesky`)."""
    scale, L, _ = _scaled_cholesky(covariance)
    return _log_det(scale, L)


def log_density(X: Array, gaussian: Gaussian) -> Array:
    """Log-density of N(mean, covariance) at X, which broadcasts against the mean."""
    whitening = whiten(gaussian.covariance)
    d2 = whitened_norm(X - gaussian.mean, whitening)
    return np.asarray(-0.5 * (d2 + whitening.log_det + X.shape[-1] * LOG_2PI))


def whitened_norm(E: Array, whitening: Whitening) -> Array:
    """Squared length of the whitened deviations E, (..., D)."""
    U = whitening.matrix
    if whitening.is_diagonal:
        Z = E * U
    elif U.ndim == 2:
        Z = E @ U
    else:
        Z = (E[..., None, :] @ U)[..., 0, :]
    return np.asarray(np.einsum("...d,...d->...", Z, Z))


def regression(covariance: Array, given: Indices, target: Indices) -> Regression:
    """Gain Sigma_tg Sigma_gg^-1 and conditional covariance Sigma_tt - Sigma_tg Sigma_gg^-1 Sigma_gt.

    Both are blocks of one Cholesky factor with the given columns first, so the conditional covariance is positive
    definite by construction.
    """
    # With L = [[L_gg, 0], [L_tg, L_tt]] the gain is L_tg L_gg^-1 and the conditional covariance L_tt L_tt'. Taking
    # Sigma_tg Sigma_gg^-1 Sigma_gt off Sigma_tt would cancel where the given columns nearly determine the targets.
    order, g = np.concatenate([given, target]), len(given)
    scale, L, _ = _scaled_cholesky(covariance[..., order[:, None], order])
    U = _inverse_transposed(L[..., :g, :g]) / scale[..., :g, None]
    whitening = Whitening(U, _log_det(scale[..., :g], L[..., :g, :g]))
    L_t = scale[..., g:, None] * L[..., g:, :]
    gain = L_t[..., :g] @ np.swapaxes(U, -1, -2)
    return Regression(whitening, gain, L_t[..., g:] @ np.swapaxes(L_t[..., g:], -1, -2))


def kl(f: Gaussian, g: Gaussian) -> Array:
    """Kullback-Leibler divergence KL(f, g) = E_f[log f - log g]."""
    L_f, _ = safe_cholesky(f.covariance)
    log_det_f = 2.0 * np.log(np.diagonal(L_f, axis1=-2, axis2=-1)).sum(axis=-1)
    whitening = whiten(g.covariance)
    # tr(Sigma_g^-1 Sigma_f) = |L_f' U|^2: a sum of squares, which cannot cancel.
    trace = np.square(np.swapaxes(L_f, -1, -2) @ whitening.matrix).sum(axis=(-2, -1))
    d2 = whitened_norm(f.mean - g.mean, whitening)
    # Where f equals g, rounding may leave a number just below zero.
    return np.asarray(np.maximum(0.5 * (trace + d2 - f.mean.shape[-1] + whitening.log_det - log_det_f), 0.0))


def moment_match(weights: Array, means: Array, covariances: Array) -> Gaussian:
    """Gaussian with the mean and covariance of a mixture: the g that minimises sum_i w_i KL(f_i, g).

    Weights (..., K) need not sum to one. Diagonal covariances, (..., K, D) like the means, give a diagonal one.
    """
    w = weights / weights.sum(axis=-1, keepdims=True)
    mean = (w[..., None, :] @ means)[..., 0, :]
    # About the mean: second moments about zero would cancel where the mean is large against the spread.
    E = means - mean[..., None, :]
    if covariances.ndim == means.ndim:
        return Gaussian(mean, (w[..., None, :] @ (covariances + E * E))[..., 0, :])
    within = np.einsum("...k,...kij->...ij", w, covariances)
    return Gaussian(mean, within + np.swapaxes(E, -1, -2) @ (w[..., None] * E))


def _scaled_cholesky(covariance: Array) -> tuple[Array, Array, Array]:
    """Scale s (powers of two), factor L of diag(s)^-1 Sigma diag(s)^-1, and the relative inflation it took."""
    variances = np.diagonal(covariance, axis1=-2, axis2=-1)
    _check_variances(variances)
    # A power of two near each standard deviation: division by it is exact.
    scale = np.ldexp(1.0, np.frexp(variances)[1] // 2)
    C = covariance / scale[..., :, None] / scale[..., None, :]
    inflation = np.zeros(covariance.shape[:-2])
    # NumPy fails for the whole stack if one matrix is not definite; then each is tried by itself below.
    try:
        L = np.linalg.cholesky(C)
    except np.linalg.LinAlgError:
        L = np.zeros_like(C)
    for i in np.argwhere(~_is_factor(L)):
        where = tuple(i)
        L[where], inflation[where] = _inflated_cholesky(C[where])
    return scale, L, inflation


def _is_factor(L: Array) -> NDArray[np.bool_]:
    """Whether every pivot stands above rounding; a smaller one has no correct digit."""
    pivots = np.diagonal(L, axis1=-2, axis2=-1)
    return np.asarray((pivots * pivots > L.shape[-1] * np.finfo(float).eps).all(axis=-1))


def _inflated_cholesky(C: Array) -> tuple[Array, float]:
    diagonal = np.diag(np.diagonal(C))
    for inflation in (0.0, *_INFLATIONS):
        try:
            L = np.asarray(np.linalg.cholesky(C + inflation * diagonal), dtype=np.float64)
        except np.linalg.LinAlgError:
            continue
        if _is_factor(L):
            return L, inflation
    raise InputError(
        "The covariance is not positive semi-definite, even with its variances doubled; give a symmetric matrix with "
        "correlations between -1 and 1, such as a sample covariance."
    )


def _check_variances(variances: Array) -> None:
    if not np.all((variances > 0.0) & (variances < np.inf)):
        bad = variances[~((variances > 0.0) & (variances < np.inf))].flat[0]
        raise InputError(
            f"A covariance has the variance {bad} on its diagonal; variances must be positive and finite. Add a small "
            "positive number to the diagonal if a column is constant."
        )


def _log_det(scale: Array, L: Array) -> Array:
    pivots = np.diagonal(L, axis1=-2, axis2=-1)
    # A sum of logs: the product of the scales would overflow long before its logarithm does.
    return np.asarray(2.0 * (np.log(scale) + np.log(pivots)).sum(axis=-1))


def _inverse_transposed(L: Array) -> Array:
    """L'^-1 for a stack of lower triangular matrices."""
    out = np.zeros(L.shape)
    if L.size:
        for i in np.ndindex(L.shape[:-2]):
            out[i] = lapack.dtrtri(L[i].T, lower=0)[0]
    return out
