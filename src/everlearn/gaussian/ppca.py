"""Probabilistic PCA: likelihood, latent posterior, closed-form maximum likelihood, Fisher information.

The model is x = W z + mu + eps with z ~ N(0, I_q) and eps ~ N(0, sigma2 I_d), so that x ~ N(mu, C), C = W W' + sigma2 I
(Tipping and Bishop, 1999). Everything runs through M = W'W + sigma2 I, q x q; C is formed for a caller who asks for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.gaussian import merge as merging
from everlearn.gaussian.kernels import ppca as kernels

Array = NDArray[np.float64]


class PPCA(NamedTuple):
    """Mean (d,), loadings (d, q) and noise variance."""

    mu: Array
    W: Array
    sigma2: float


class Ready(NamedTuple):
    """A model with M^-1 and ln|M|, ready to answer."""

    mu: Array
    W: Array
    sigma2: float
    M_inv: Array
    log_det: float


class Fisher(NamedTuple):
    """Diagonal of the Fisher information of one row about mu (d,), W (d, q) and sigma2."""

    mu: Array
    W: Array
    sigma2: float


class Axes(NamedTuple):
    """Principal axes in the rows of an orthonormal (q, d) matrix, and the variances along them, largest first."""

    components: Array
    variances: Array


class Part(NamedTuple):
    """A model of rows divided by `scale`, and the columns that they observed."""

    model: PPCA
    scale: float
    seen: NDArray[np.bool_]


def ready(model: PPCA) -> Ready:
    """Compute M^-1 and ln|M|."""
    M = model.W.T @ model.W
    M.flat[:: len(M) + 1] += model.sigma2
    log_det = kernels.invert_spd(M, np.empty(len(M)))
    return Ready(np.ascontiguousarray(model.mu), np.ascontiguousarray(model.W), float(model.sigma2), M, float(log_det))


def log_density(model: Ready, X: Array) -> Array:
    """ln N(x_o; mu_o, C_oo) of the observed part of each row; 0 for a row with nothing observed."""
    out = np.empty(len(X))
    kernels.score_rows(X, *model, out)
    return out


def latent(model: Ready, X: Array) -> Array:
    """Posterior mean of z for each complete row, M^-1 W'(x - mu)."""
    return (X - model.mu) @ (model.W @ model.M_inv)


def fill(model: Ready, X: Array) -> Array:
    """Rows with their gaps replaced by the conditional mean E[x_m | x_o] = mu_m + W_m z."""
    filled = np.empty_like(X)
    kernels.fill_rows(X, *model[:4], filled, np.empty((0, 0)))
    return filled


def fill_with_variance(model: Ready, X: Array) -> tuple[Array, Array]:
    """Rows with their gaps filled, and the conditional variance of each filled cell (zero where observed)."""
    filled, variance = np.empty_like(X), np.zeros_like(X)
    kernels.fill_rows(X, *model[:4], filled, variance)
    return filled, variance


def covariance(model: PPCA) -> Array:
    """C = W W' + sigma2 I, d x d."""
    C = model.W @ model.W.T
    C.flat[:: len(C) + 1] += model.sigma2
    return C


def precision(model: Ready) -> Array:
    """C^-1 = (I - W M^-1 W')/sigma2, d x d."""
    P = model.W @ -model.M_inv @ model.W.T
    P.flat[:: len(P) + 1] += 1.0
    return P / model.sigma2


def axes(model: PPCA) -> Axes:
    """Eigenvectors of C with the q largest eigenvalues; the largest entry of each is positive."""
    U, singular, _ = np.linalg.svd(model.W, full_matrices=False)
    components = U.T
    peak = components[np.arange(len(components)), np.abs(components).argmax(axis=1)]
    return Axes(components * np.where(peak < 0.0, -1.0, 1.0)[:, None], singular**2 + model.sigma2)


def sample(model: PPCA, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows."""
    d, q = model.W.shape
    rows: Array = rng.standard_normal((n, q)) @ model.W.T + np.sqrt(model.sigma2) * rng.standard_normal((n, d))
    return rows + model.mu


def noise_floor(mean_variance: float, mu: Array) -> float:
    """Least noise variance that keeps C definite, and no finer than the rounding of the data."""
    return float(kernels.least_noise(mean_variance, mu))


def maximum_likelihood(X: Array, q: int) -> PPCA:
    """Closed-form maximum likelihood from complete rows (Tipping and Bishop, 1999, eq. 7 and 8).

    sigma2 is the mean of the discarded eigenvalues of the rows' covariance, W = U_q (Lambda_q - sigma2 I)^(1/2).
    """
    mu = X.mean(axis=0)
    return of_factor(mu, (X - mu).T / np.sqrt(len(X)), 0.0, q)


def of_factor(mu: Array, V: Array, noise: float, q: int) -> PPCA:
    """Closed-form PPCA with q axes of the covariance V V' + noise I, from the thin singular value decomposition of V.

    Directions beyond the q-th go into the noise variance.
    """
    d = len(mu)
    U, singular, _ = np.linalg.svd(V, full_matrices=False)
    spread = np.zeros(max(q, len(singular)))
    spread[: len(singular)] = singular**2
    rest = float(spread[q:].sum()) / max(d - q, 1) + noise
    sigma2 = max(rest, noise_floor(float(spread.sum()) / d + noise, mu))
    W = np.zeros((d, q))
    kept = min(q, len(singular))
    W[:, :kept] = U[:, :kept] * np.sqrt(np.maximum(spread[:kept] + noise - sigma2, 0.0))
    return PPCA(mu, W, sigma2)


def rescale(model: PPCA, factor: float) -> PPCA:
    """Model of the rows times `factor`."""
    return PPCA(model.mu * factor, model.W * factor, model.sigma2 * factor * factor)


def pool(parts: list[Part], weights: ArrayLike, q: int) -> Part:
    """Model of all parts' data in one scale; a column's mean comes from the parts that have seen it.

    The closed form for the moment-matched covariance ``sum a_i (W_i W_i' + s_i I + (mu_i - mu)(mu_i - mu)')``: exact
    before it is cut to q axes, and never a d x d matrix.
    """
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    scale = max(part.scale for part in parts)
    models = [rescale(part.model, part.scale / scale) for part in parts]
    seen = np.array([part.seen for part in parts])
    trust = shares[:, None] * seen
    mean = np.sum(trust * [model.mu for model in models], axis=0) / np.maximum(trust.sum(axis=0), 1e-300)
    means = np.where(seen, [model.mu for model in models], mean)
    low_rank = [
        merging.LowRank(mu, model.W, np.full(len(mu), model.sigma2)) for mu, model in zip(means, models, strict=True)
    ]
    joined = merging.mean_imm_low_rank(shares, low_rank)
    return Part(of_factor(joined.mean, joined.factor, float(joined.noise[0]), q), scale, np.any(seen, axis=0))


def fisher(model: Ready, *, body: bool = False) -> Fisher:
    """Diagonal Fisher information in O(d q^2), by the appendix of NAT-oEM (eq. 28, 29 and 32).

    With A = W M^-1 and c_i = (1 - A_i.W_i)/sigma2: F_mu = c, F_W[i,j] = (1 - sigma2 (M^-1)_jj) c_i + A_ij^2,
    F_sigma2 = ((d - q)/sigma2^2 + |M^-1|_F^2)/2. With `body`, what the body of the paper prints (eq. 19 to 21): the
    diagonal of C^-2, twice F_W, and tr C^-1.
    """
    F_mu, F_W = np.empty_like(model.mu), np.empty_like(model.W)
    F_sigma2 = kernels.fisher(*model[1:4], body, np.empty_like(model.W), F_mu, F_W)
    return Fisher(F_mu, F_W, float(F_sigma2))
