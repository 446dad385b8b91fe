"""Any columns from any others, straight from the precisions of an incremental mixture.

With u the columns that are not observed and o those that are, component j has the conditional mean
``mu_u - Lambda_uu^-1 Lambda_uo (x_o - mu_o)`` and covariance ``Lambda_uu^-1``. Filling the deviation e with that mean
gives the distance in the marginal of o as ``e' Lambda e``, and ``log|Sigma_oo| = log|Sigma| + log|Lambda_uu|``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from everlearn.figmn.kernels import impute as kernels
from everlearn.figmn.learn import MixtureState, is_diagonal
from everlearn.gaussian import conditional
from everlearn.gaussian.conditional import ConditionalMixture, log_sum_exp
from everlearn.gaussian.gaussian import Array, Indices, other_columns, safe_cholesky
from everlearn.gaussian.mixture import Imputation, patterns

# Fewer rows than this are asked one by one.
FEW_ROWS = 16
# Rows are taken in parts whose conditional mixtures fill about this many numbers.
_PART = 1 << 21


class _Rule(NamedTuple):
    """What the rows of one pattern share: the regression of the unobserved columns on the observed ones."""

    gain: Array  # (K, u, o)
    covariance: Array  # (K, u, u), or (K, u) when diagonal
    log_det: Array  # (K,), of the covariance of the observed columns, up to what all components share


def condition(state: MixtureState, X: Array, target: Indices) -> ConditionalMixture:
    """Mixture of the columns `target` for each row of X, given what else is observed in it.

    The target columns of X are not looked at. Covariances are shared by all rows, unless rows have different gaps.
    """
    hidden = X.copy()
    hidden[:, target] = np.nan
    missing = np.isnan(hidden)
    if (missing == missing[0]).all():
        return _condition(state, hidden, np.flatnonzero(~missing[0]), target)
    n, K, T = len(X), state.n_components, len(target)
    diagonal = is_diagonal(state)
    weights, means = np.empty((n, K)), np.empty((n, K, T))
    covariances = np.empty((K, T) if diagonal else (n, K, T, T))
    for observed, rows in patterns(hidden):
        part = _condition(state, hidden[rows], observed, target)
        weights[rows], means[rows] = part.weights, part.means
        covariances[... if diagonal else rows] = part.covariances
    return ConditionalMixture(weights, means, covariances)


def parts(state: MixtureState, X: Array, target: Indices) -> Iterator[ConditionalMixture]:
    """`condition` for some rows after others, so that memory stays bounded."""
    size = max(1, _PART // max(1, state.n_components * max(len(target), X.shape[1]) * len(target)))
    for start in range(0, len(X), size):
        yield condition(state, X[start : start + size], target)


def expect(state: MixtureState, X: Array, target: Indices) -> Array:
    """Conditional mean of the columns `target` for each row of X, given what else is observed in it, (n, T)."""
    if len(X) < FEW_ROWS and not is_diagonal(state):
        hidden, filled = X.copy(), np.empty_like(X)
        hidden[:, target] = np.nan
        kernels.expect_rows(hidden, *state[:4], state.n_components, filled)
        answer: Array = filled[:, target]
        if np.isfinite(answer).all():
            return answer
    return np.concatenate([conditional.mean(part) for part in parts(state, X, target)])


def impute(state: MixtureState, X: Array) -> Imputation:
    """Conditional mean of every gap given the row's observed columns, and its standard deviation."""
    filled, spread = X.copy(), np.zeros_like(X)
    for observed, rows in patterns(X):
        gaps = other_columns(observed, X.shape[1])
        if len(gaps):
            found = list(parts(state, X[rows], gaps))
            filled[np.ix_(rows, gaps)] = np.concatenate([conditional.mean(part) for part in found])
            spread[np.ix_(rows, gaps)] = np.concatenate([conditional.std(part) for part in found])
    return Imputation(filled, spread)


def _condition(state: MixtureState, X: Array, observed: Indices, target: Indices) -> ConditionalMixture:
    """`condition` for rows that all observe the same columns."""
    K, D = state.n_components, X.shape[1]
    unobserved = other_columns(observed, D)
    place = np.searchsorted(unobserved, target)
    rule = _rule(state, observed, unobserved)
    E = np.empty((K, len(X), D))
    E[:, :, observed] = X[:, observed] - state.means[:K, None, observed]
    E[:, :, unobserved] = E[:, :, observed] @ np.swapaxes(rule.gain, 1, 2)
    scaled = E * state.precisions[:K, None, :] if is_diagonal(state) else E @ state.precisions[:K]
    d2 = np.einsum("knd,knd->nk", E, scaled)
    joint = np.log(state.counts[:K]) - 0.5 * (d2 + rule.log_det)
    means = state.means[:K, None, target] + E[:, :, target]
    chosen = rule.covariance[:, place] if is_diagonal(state) else rule.covariance[:, place[:, None], place]
    return ConditionalMixture(np.exp(joint - log_sum_exp(joint)[:, None]), means.transpose(1, 0, 2), chosen)


def _rule(state: MixtureState, observed: Indices, unobserved: Indices) -> _Rule:
    K = state.n_components
    if is_diagonal(state):
        hidden = state.precisions[:K][:, unobserved]
        gain = np.zeros((K, len(unobserved), len(observed)))
        return _Rule(gain, 1.0 / hidden, state.log_dets[:K] + np.log(hidden).sum(axis=1))
    precision = state.precisions[:K]
    L, _ = safe_cholesky(precision[:, unobserved[:, None], unobserved])
    V = np.linalg.solve(L, np.broadcast_to(np.eye(len(unobserved)), L.shape))
    covariance = np.swapaxes(V, 1, 2) @ V
    gain = -covariance @ precision[:, unobserved[:, None], observed]
    log_det = 2.0 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
    return _Rule(gain, covariance, state.log_dets[:K] + log_det)
