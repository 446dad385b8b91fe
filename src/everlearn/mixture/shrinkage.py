"""Shrinkage of correlations in conditional answers: how far a column follows the others, judged leave-one-out.

A column given all the others is a regression in each component. With few rows a column, part of its coefficients is
chance: predictions go too far and intervals hold too little. In the mixture that conditional answers come from,
each column therefore has noise of its own, a multiple of its variance given the others; the variances of the columns
stay as they are. How much is chosen on sampled rows, each by components without it. With many rows a column nothing is
gained, and the answers are those of the density itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.gaussian import LOG_2PI, inverse
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture.ask import Look, scaled_mixture
from everlearn.mixture.keep.evidence import made_of_rows
from everlearn.mixture.keep.forgetting import sample_weights
from everlearn.mixture.keep.reconsider import gathered
from everlearn.mixture.kernels.covariance import factors_of_counts
from everlearn.typing import Array

# Noise that is tried, in variances of a column given the others.
NOISES = (0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.57, 0.8, 1.13, 1.6)
# Coverage of the central interval at which no more noise is tried.
COVERAGE = 0.9
# With fewer rows without gaps nothing is judged; so many are, by cells times components, if there are as many.
FEWEST_ROWS, MIN_ROWS, MAX_ROWS, NUMBERS = 50, 100, 500, 200_000


class Learned(NamedTuple):
    """What leaving a row out of the components needs to know; the background is not made of rows."""

    mass: Array  # (K,)
    counts: Array  # (K,), rows behind the moments
    tau: float  # rows that the common shape counts for
    rows: float  # that the common shape is made of


class Cells(NamedTuple):
    """Each value of some rows given the other columns, by components without its row."""

    log_density: Array  # (n, D)
    cdf: Array  # (n, D), probability of a lower value


def conditional_mixture(look: Look) -> tuple[Mixture, Array]:
    """The mixture that conditional answers come from, in units of the scales that are returned with it."""
    mixture, scale = scaled_mixture(look)
    noise = shrinkage(look)
    if not noise:
        return mixture, scale
    if "shrunk" not in look.cache:
        look.cache["shrunk"] = shrunk(mixture, noise)
    return look.cache["shrunk"], scale


def shrinkage(look: Look) -> float:
    """Noise of conditional answers; chosen once, with the first of them, while rows go on being learned."""
    if look.shrinkage is None:
        look.shrinkage = _choose(look, scaled_mixture(look)[0])
    return look.shrinkage


def shrunk(mixture: Mixture, noise: float) -> Mixture:
    """Covariances with the given multiple of each column's conditional variance as noise, at unchanged variances.

    ``T (Sigma + noise diag(1 / P_jj)) T`` with P the precision and T diagonal. It commutes with a change of units.
    """
    covariances = mixture.covariances
    return Mixture(mixture.weights, mixture.means, _with_variances(covariances, _factors(covariances, noise)))


def _factors(covariances: Array, noise: float) -> Array:
    """Factors T of the columns, (K, D), that give noisy columns their variances back."""
    scale = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    # Of correlations, whose inverses do not depend on the units of the columns: the diagonal is var / var given others.
    precisions = inverse(covariances / (scale[:, :, None] * scale[:, None, :]))
    return np.asarray(1.0 / np.sqrt(1.0 + noise / np.diagonal(precisions, axis1=1, axis2=2)))


def _with_variances(covariances: Array, T: Array) -> Array:
    """T Sigma T with the variances of Sigma."""
    D = T.shape[1]
    return np.where(np.eye(D, dtype=bool), covariances, covariances * T[:, :, None] * T[:, None, :])


def _choose(look: Look, mixture: Mixture) -> float:
    """The least noise with which intervals hold what they promise; none that predicts the sampled values worse."""
    X = _judged_rows(look, mixture)
    if mixture.is_diagonal or mixture.means.shape[1] < 2 or len(X) < FEWEST_ROWS:
        return 0.0
    mass, counts, _, _ = gathered(look.model.components)
    shape = look.model.shape
    rows = float(look.sample.size[0]) / made_of_rows(counts, shape)
    learned = Learned(mass, np.maximum(counts, 1.0), shape.tau, rows)
    best, found = 0.0, leave_one_out(X, mixture, learned, 0.0)
    least = found.log_density.mean()
    for noise in NOISES:
        if _coverage(found.cdf) >= COVERAGE:
            break
        found = leave_one_out(X, mixture, learned, noise)
        if found.log_density.mean() < least:
            break
        best = noise
    return best


def _coverage(cdf: Array) -> float:
    return float(np.mean(np.abs(cdf - 0.5) <= 0.5 * COVERAGE))


def _judged_rows(look: Look, mixture: Mixture) -> Array:
    """Sampled rows without gaps, in the units of `scaled_mixture`: as many as are worth their time."""
    if not look.sample.size[0]:
        return np.empty((0, len(look.frame.centre)))
    slots, _, _ = sample_weights(look.sample, look.fading)
    rows = look.sample.rows[slots].astype(np.float64)
    rows = rows[~np.isnan(rows).any(axis=1)]
    most = int(np.clip(NUMBERS // mixture.means.size, MIN_ROWS, MAX_ROWS))
    # Evenly spread over the slots, which are in the order of the stream at first.
    some = np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.intp)
    return np.asarray(rows[some] + look.frame.centre * look.frame.inverse)


class Change(NamedTuple):
    """What a component is without each of n rows."""

    before: float  # Sigma over B, with the row
    after: Array  # (n,), Sigma over B, without it
    share: Array  # (n,), a: B loses a e e'
    moved: Array  # (n,), deviation from the mean without the row over that with it
    log_weight: Array  # (n,)


def leave_one_out(X: Array, mixture: Mixture, learned: Learned, noise: float) -> Cells:
    """Each value of learned rows given the other columns, by shrunk components without the row."""
    joint = mixtures.log_joint(X, mixture)
    R = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    T = _factors(mixture.covariances, noise)
    precisions = inverse(_with_variances(mixture.covariances, T))
    (n, D), C = X.shape, len(mixture.weights)
    weights, densities, below = (np.empty((n, C, D)) for _ in range(3))
    for k in range(C):
        change = _change(mixture, learned, R[:, k], k)
        whole, densities[:, k], below[:, k] = _without_rows(X - mixture.means[k], precisions[k], T[k], change)
        # Of the other columns alone: the joint density over that of the value given them.
        weights[:, k] = whole[:, None] - densities[:, k]
    weights -= np.logaddexp.reduce(weights, axis=1)[:, None]
    return Cells(np.logaddexp.reduce(weights + densities, axis=1), np.einsum("ncd,ncd->nd", np.exp(weights), below))


def _change(mixture: Mixture, learned: Learned, r: Array, k: int) -> Change:
    """Component k without its shares r of the rows; the background, behind the components, stays."""
    K, one = len(learned.counts), np.ones(len(r))
    if k >= K:
        mass = learned.mass.sum() * mixture.weights[k] / mixture.weights[:K].sum()
        return Change(1.0, one, 0.0 * one, one, np.log(mass) * one)
    N, tau = learned.counts[k], learned.tau
    left = np.maximum(N - r, 0.5)
    before, after = factors_of_counts(np.array([N]), tau)[0], factors_of_counts(left, tau)
    # The common shape is made of the rows, too.
    share = r * (N / left + tau / max(learned.rows, 1.0))
    return Change(before, after, share, N / left, np.log(np.maximum(learned.mass[k] - r, 1e-9)))


def _without_rows(E: Array, precision: Array, T: Array, change: Change) -> tuple[Array, Array, Array]:
    """Log joint of each row, and log-density and distribution function of each value given the others, (n, D).

    As in `kernels.em.leave_one_out`, B = Sigma / f(N) loses a e e', with e the deviation from the mean, which becomes
    N / N' e. With noise, B is T (B + noise) T and loses a (Te)(Te)': by the Sherman-Morrison formula its inverse P
    gains a g g' / (1 - a g'Te), g = P T e. Given the others, column j then has the variance f(N') / P_jj and the
    residual (P N/N' e)_j / P_jj.
    """
    before, after, a, moved, log_weight = change
    D, P = E.shape[1], precision * before
    PE, G = E @ P, (E * T) @ P
    cross = np.einsum("nd,nd->n", G, E)
    rest = np.maximum(1.0 - a * np.einsum("nd,nd->n", G, E * T), 1e-12)
    diagonal = np.diagonal(P) + (a / rest)[:, None] * G**2
    variance = after[:, None] / diagonal
    residual = moved[:, None] * (PE + (a * cross / rest)[:, None] * G) / diagonal
    distance = (np.einsum("nd,nd->n", PE, E) + a * cross**2 / rest) * moved**2 / after
    log_det = D * np.log(after) - np.linalg.slogdet(P)[1] + np.log(rest)
    joint = log_weight - 0.5 * (D * LOG_2PI + log_det + distance)
    return joint, -0.5 * (LOG_2PI + np.log(variance) + residual**2 / variance), ndtr(residual / np.sqrt(variance))
