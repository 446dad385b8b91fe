"""The one engine for conditionals: what some columns may be, once others are known, for each of n rows.

`condition` turns a `Mixture` of weights, means and covariances into a mixture over the target columns for each row;
the other functions ask it for means, spreads, quantiles, densities and samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from everlearn.errors import InputError
from everlearn.gaussian.gaussian import (
    LOG_2PI,
    Columns,
    Indices,
    columns,
    log_sum_exp,
    other_columns,
    regression,
    safe_cholesky,
    whiten,
    whitened_norm,
)
from everlearn.gaussian.mixture import CHUNK, Mixture, log_joint_of_complete, patterns, posterior_weights, spans
from everlearn.typing import Array

__all__ = [
    "ConditionalMixture",
    "Imputation",
    "cdf",
    "check_coverage",
    "condition",
    "covariance",
    "full_covariances",
    "impute",
    "interval",
    "log_density",
    "log_sum_exp",
    "mean",
    "quantile",
    "sample",
    "std",
]

# Halvings of a bracket that shrink it from any double to its last bit, with room for Newton steps that fail.
_MAX_STEPS = 200


class Imputation(NamedTuple):
    """Rows with their gaps filled by the conditional mean, and its standard deviation (zero where observed)."""

    mean: Array  # (n, D)
    std: Array  # (n, D)


class ConditionalMixture(NamedTuple):
    """For each of n rows a mixture of K Gaussians over T target columns.

    The covariances, (K, T, T), are shared by all rows; they are (K, T) when diagonal, and (n, K, T, T) when the rows
    have different gaps among the given columns.
    """

    weights: Array  # (n, K)
    means: Array  # (n, K, T)
    covariances: Array  # (K, T, T), (K, T) or (n, K, T, T)


# -- the engine -------------------------------------------------------------------------------------


def condition(mixture: Mixture, given: Columns, values: Array, target: Columns | None = None) -> ConditionalMixture:
    """Mixture of the columns `target` (by default all others) for each row of `values` of the columns `given`.

    Weights are p(k | x_g), means ``mu_t + Sigma_tg Sigma_gg^-1 (x_g - mu_g)``, covariances
    ``Sigma_tt - Sigma_tg Sigma_gg^-1 Sigma_gt``. Values that are NaN are not observed; then each row has its own
    covariances.
    """
    D = mixture.means.shape[1]
    g = columns(given, D)
    t = other_columns(g, D) if target is None else columns(target, D)
    if np.intersect1d(g, t).size or len(np.unique(g)) < len(g):
        raise InputError(f"given={g.tolist()} and target={t.tolist()} must not share or repeat columns.")
    if not np.isnan(values).any():
        return _condition(mixture, g, values, t)
    return _condition_with_gaps(mixture, g, values, t)


def impute(X: Array, mixture: Mixture) -> Imputation:
    """Conditional mean of every gap given the row's observed columns, and its standard deviation.

    A row with nothing observed takes the mixture's own mean.
    """
    filled, spread = X.copy(), np.zeros_like(X)
    for observed, rows in patterns(X):
        gaps = other_columns(observed, X.shape[1])
        if not len(gaps):
            continue
        for span in spans(len(rows), CHUNK // mixture.means.size):
            some = rows[span]
            c = _condition(mixture, observed, X[np.ix_(some, observed)], gaps)
            filled[np.ix_(some, gaps)] = mean(c)
            spread[np.ix_(some, gaps)] = std(c)
    return Imputation(filled, spread)


def _condition(mixture: Mixture, given: Indices, values: Array, target: Indices) -> ConditionalMixture:
    """`condition` on values without gaps."""
    weights, means, covariances = mixture
    on_given = Mixture(weights, means[:, given], covariances)
    if mixture.is_diagonal:
        # Within a diagonal component the given columns say nothing of the others: only the weights depend on them.
        whitening = whiten(covariances[:, given], diagonal=True)
        share = posterior_weights(log_joint_of_complete(values, on_given, whitening), weights)
        fixed = np.repeat(means[None][..., target], len(values), axis=0)
        return ConditionalMixture(share, fixed, covariances[:, target])
    model = regression(covariances, given, target)
    share = posterior_weights(log_joint_of_complete(values, on_given, model.whitening), weights)
    shifted = np.empty((len(values), len(weights), len(target)))
    # Chunks of rows keep the deviations, rows x components x columns, in cache.
    for span in spans(len(values), CHUNK // mixture.means.size):
        E = values[span] - on_given.means[:, None, :]
        shifted[span] = (E @ model.gain.transpose(0, 2, 1)).transpose(1, 0, 2) + means[:, target]
    return ConditionalMixture(share, shifted, model.covariance)


def _condition_with_gaps(mixture: Mixture, given: Indices, values: Array, target: Indices) -> ConditionalMixture:
    """`condition` on values with gaps: full covariances become those of each row's own pattern."""
    n, K, T = len(values), len(mixture.weights), len(target)
    shares, shifted = np.empty((n, K)), np.empty((n, K, T))
    covariances = mixture.covariances[:, target] if mixture.is_diagonal else np.empty((n, K, T, T))
    for observed, rows in patterns(values):
        c = _condition(mixture, given[observed], values[np.ix_(rows, observed)], target)
        shares[rows], shifted[rows] = c.weights, c.means
        if not mixture.is_diagonal:
            covariances[rows] = c.covariances
    return ConditionalMixture(shares, shifted, covariances)


# -- questions to a conditional mixture -----------------------------------------------------------


def mean(mixture: ConditionalMixture) -> Array:
    """Mean of each row, (n, T)."""
    return (mixture.weights[:, None, :] @ mixture.means)[:, 0, :]


def covariance(mixture: ConditionalMixture) -> Array:
    """Covariance of each row, (n, T, T), by total expectation: within components plus between their means."""
    E = mixture.means - mean(mixture)[:, None, :]
    between = np.swapaxes(E, 1, 2) @ (mixture.weights[:, :, None] * E)
    T = mixture.means.shape[2]
    matrices = np.broadcast_to(full_covariances(mixture), (*mixture.means.shape, T))
    within = np.einsum("nk,nkst->nst", mixture.weights, matrices)
    return np.asarray(within + between)


def std(mixture: ConditionalMixture) -> Array:
    """Standard deviation of each target column in each row, (n, T)."""
    E = mixture.means - mean(mixture)[:, None, :]
    spread = _variances(mixture) + E * E
    return np.asarray(np.sqrt(np.einsum("nk,nkt->nt", mixture.weights, spread)))


def cdf(mixture: ConditionalMixture, Y: Array) -> Array:
    """Probability that each target column lies at or below Y, (n, T)."""
    Z = (Y[:, None, :] - mixture.means) / np.sqrt(_variances(mixture))
    return np.asarray(np.einsum("nk,nkt->nt", mixture.weights, ndtr(Z)))


def quantile(mixture: ConditionalMixture, q: float) -> Array:
    """Value below which each target column falls with probability `q`, (n, T).

    The quantile of a mixture lies between the smallest and the largest quantile of its components; from that bracket
    Newton steps, replaced by bisection where they leave it.
    """
    if not 0.0 < q < 1.0:
        raise InputError(f"q={q!r} is not a probability between 0 and 1 (exclusive); give for instance q=0.5.")
    scale = np.sqrt(np.broadcast_to(_variances(mixture), mixture.means.shape))
    weights = np.broadcast_to(mixture.weights[:, :, None], scale.shape)
    # (n, K, T) becomes (n T, K): each row and column is a mixture in one dimension of its own.
    flat = [np.moveaxis(a, 1, 2).reshape(-1, a.shape[1]) for a in (weights, mixture.means, scale)]
    return _invert_cdf(q, *flat).reshape(len(mixture.means), -1)


def interval(mixture: ConditionalMixture, coverage: float) -> tuple[Array, Array]:
    """Central interval of each target column that holds the probability `coverage`: lower and upper ends, (n, T)."""
    check_coverage("coverage", coverage)
    return quantile(mixture, 0.5 - 0.5 * coverage), quantile(mixture, 0.5 + 0.5 * coverage)


def check_coverage(name: str, value: float) -> None:
    """Refuse an argument that is no probability inside an interval."""
    if not 0.0 < value < 1.0:
        raise InputError(f"{name}={value!r} is not a probability between 0 and 1; give for instance 0.9.")


def log_density(mixture: ConditionalMixture, Y: Array) -> Array:
    """Log-density of the target values Y, (n, T), under each row's mixture, (n,)."""
    whitening = whiten(mixture.covariances, diagonal=mixture.covariances.ndim == 2)
    d2 = whitened_norm(Y[:, None, :] - mixture.means, whitening)
    # A weight that has underflowed to zero has the log -inf, which leaves its component out.
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixture.weights)
    return log_sum_exp(log_weights - 0.5 * (d2 + whitening.log_det + Y.shape[-1] * LOG_2PI))


def sample(mixture: ConditionalMixture, n: int, rng: np.random.Generator) -> Array:
    """Draw `n` samples of the targets for each row, (rows, n, T)."""
    rows, _, T = mixture.means.shape
    edges = np.cumsum(mixture.weights, axis=1)
    # Rounded weights may sum to less than one: draws below their own sum cannot pass the last edge.
    u = rng.random((rows, n, 1)) * edges[:, None, -1:]
    labels = (u >= edges[:, None, :]).sum(axis=2)
    row = np.arange(rows)[:, None]
    Z = rng.standard_normal((rows, n, T))
    if mixture.covariances.ndim == 2:
        return np.asarray(mixture.means[row, labels] + np.sqrt(mixture.covariances)[labels] * Z)
    L, _ = safe_cholesky(mixture.covariances)
    out = mixture.means[row, labels]
    # Component by component: a factor for each draw would take rows x n x T^2 numbers at once.
    for k in np.unique(labels):
        if L.ndim == 3:
            drawn = labels == k
            out[drawn] += Z[drawn] @ L[k].T
            continue
        for i in np.flatnonzero((labels == k).any(axis=1)):
            drawn = labels[i] == k
            out[i, drawn] += Z[i, drawn] @ L[i, k].T
    return np.asarray(out)


def full_covariances(mixture: ConditionalMixture) -> Array:
    """Covariances as matrices, (K, T, T) or (n, K, T, T)."""
    if mixture.covariances.ndim > 2:
        return mixture.covariances
    return np.asarray(mixture.covariances[:, :, None] * np.eye(mixture.covariances.shape[1]))


def _variances(mixture: ConditionalMixture) -> Array:
    """Variances of the targets in each component, (K, T) or (n, K, T)."""
    if mixture.covariances.ndim == 2:
        return mixture.covariances
    return np.diagonal(mixture.covariances, axis1=-2, axis2=-1)


def _invert_cdf(q: float, weights: Array, means: Array, scale: Array) -> Array:
    """Quantiles of m one-dimensional mixtures, all arguments (m, K)."""
    w = weights / weights.sum(axis=1, keepdims=True)
    # A component without weight may lie anywhere and must not widen the bracket.
    ends = np.where(w > 0.0, means + scale * ndtri(q), np.nan)
    low, high = np.nanmin(ends, axis=1), np.nanmax(ends, axis=1)
    y, step = 0.5 * (low + high), high - low
    resolution = 4.0 * np.finfo(float).eps
    # A root is found to the last bit of its value or of the narrowest component, whichever is coarser.
    floor = resolution * np.where(w > 0.0, scale, np.inf).min(axis=1)
    rows = np.flatnonzero(step > 0.0)
    for _ in range(_MAX_STEPS):
        if not len(rows):
            break
        smallest = np.maximum(floor[rows], resolution * np.abs(y[rows]))
        state = (low[rows], high[rows], y[rows], step[rows])
        low[rows], high[rows], y[rows], step[rows] = _root_step(q, *state, smallest, w[rows], means[rows], scale[rows])
        rows = rows[high[rows] - low[rows] > 2.0 * smallest]
    return np.asarray(np.clip(y, low, high))


def _root_step(
    q: float, low: Array, high: Array, y: Array, step: Array, smallest: Array, w: Array, m: Array, s: Array
) -> tuple[Array, Array, Array, Array]:
    """Narrow the bracket of F(y) = q and move y in it: by Newton if that halves the last step, else by bisection.

    A Newton step is never smaller than `smallest`, so that a converged y crosses the root and closes the bracket.
    """
    z = (y[:, None] - m) / s
    error = np.einsum("mk,mk->m", w, ndtr(z)) - q
    density = np.einsum("mk,mk->m", w / s, np.exp(-0.5 * z * z - 0.5 * LOG_2PI))
    # F rises, so that the sign of the error says on which side of y the root lies.
    low, high = np.where(error <= 0.0, y, low), np.where(error >= 0.0, y, high)
    # Between far components the density underflows to zero: the step is infinite or NaN and fails the test below.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        length = np.maximum(np.abs(error / density), smallest)
        newton = y - np.copysign(length, error)
    # Steps that do not halve the one before are replaced by bisection: never slower
    # than bisection, quadratic near the root.
    good = (newton > low) & (newton < high) & (length <= 0.5 * np.abs(step))
    new = np.where(good, newton, 0.5 * (low + high))
    return low, high, new, new - y
