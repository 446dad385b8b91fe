"""What the mixture says of rows: densities, distances, responsibilities, and any columns given any others.

Rows with the same missing values are asked together, as complete rows of a marginal; where there are many columns,
distances are matrix products. Single rows and rare patterns go one by one.

Conditionals come straight from the precisions. With u the columns that are not observed and o those that are,
component j has the conditional mean ``mu_u - Lambda_uu^-1 Lambda_uo (x_o - mu_o)`` and covariance ``Lambda_uu^-1``.
Filling the deviation e with that mean gives the distance in the marginal of o as ``e' Lambda e``, and
``log|Sigma_oo| = log|Sigma| + log|Lambda_uu|``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.blocks import stacks
from everlearn.figmn.kernels import diagonal
from everlearn.figmn.kernels import rows as rows_kernels
from everlearn.figmn.state import Scores, State, is_diagonal
from everlearn.gaussian import conditional
from everlearn.gaussian.conditional import ConditionalMixture, Imputation, log_sum_exp
from everlearn.gaussian.gaussian import LOG_2PI, Indices, other_columns, safe_cholesky
from everlearn.gaussian.mixture import patterns
from everlearn.linalg.backend import HOST, LARGE, Backend, each
from everlearn.linalg.chunked import has_gaps
from everlearn.typing import Array

# Fewer rows than this are asked one by one: a call of NumPy's costs more than a row.
FEW_ROWS = 16
# Deviations of rows from means are formed in chunks of about this many numbers (8 MiB).
CHUNK = 1 << 20
# Conditional mixtures are made for so many rows at a time that they fill about this many numbers (16 MiB).
_PART = 1 << 21


class _Rule(NamedTuple):
    """What the rows of one pattern share: the regression of the unobserved columns on the observed ones."""

    gain: Array  # (K, u, o)
    covariance: Array  # (K, u, u), or (K, u) when diagonal
    log_det: Array  # (K,), of the covariance of the observed columns, up to what all components share


def score(
    state: State,
    X: Array,
    log_scale: Array,
    *,
    posteriors: bool = False,
    backend: Backend = HOST,
    gaps: bool | None = None,
) -> Scores:
    """Log-density of each row (of the unscaled columns), smallest squared distance, and posteriors if asked for.

    `gaps` is whether values may be missing; by default the rows are searched for them.

    With many columns and rows, distances are matrix products: rows with the same missing values are complete rows of
    the marginal of what they observe. Other rows go one by one.
    """
    K, (n, D) = state.n_components, X.shape
    scores = Scores(np.empty(n), np.empty(n), np.empty((n if posteriors else 0, K)))
    missing = has_gaps(X) if gaps is None else gaps
    if n < FEW_ROWS or D < LARGE or is_diagonal(state):
        _score_one_by_one(state, X, missing, log_scale, scores)
        return scores
    if not missing:
        return _score_complete(state, X, log_scale, posteriors, backend)
    for observed, rows in patterns(X):
        some = X[rows]
        # A marginal takes a factorisation for each component, which a pattern of a few rows does not earn back.
        part = marginal(state, observed) if len(rows) >= FEW_ROWS and len(observed) else None
        if part is None:
            found = Scores(np.empty(len(rows)), np.empty(len(rows)), np.empty((len(rows) if posteriors else 0, K)))
            _score_one_by_one(state, some, missing, log_scale, found)
        else:
            found = _score_complete(part, some[:, observed], log_scale[observed], posteriors, backend)
        for whole, values in zip(scores, found, strict=True):
            if len(whole):
                whole[rows] = values
    return scores


def _score_one_by_one(state: State, X: Array, missing: bool, log_scale: Array, out: Scores) -> None:
    score_rows = diagonal.score_rows if is_diagonal(state) else rows_kernels.score_rows
    score_rows(X, missing, state, log_scale, out)


def _score_complete(state: State, X: Array, log_scale: Array, posteriors: bool, backend: Backend) -> Scores:
    K, D = state.n_components, X.shape[1]
    d2 = squared_distances(state, X, backend)
    # Priors are counts over their sum (eq. 12). The sum is common to all components: it leaves the
    # posteriors alone and comes off the density once.
    joint = np.log(state.counts[:K]) - 0.5 * (state.log_dets[:K] + D * LOG_2PI + d2)
    density = log_sum_exp(joint)
    posterior = np.exp(joint - density[:, None]) if posteriors else np.empty((0, K))
    # Dividing a column by its scale multiplies densities by it; the last term takes that off again.
    return Scores(density - np.log(state.counts[:K].sum()) - log_scale.sum(), d2.min(axis=1), posterior)


def marginal(state: State, observed: Indices) -> State | None:
    """The mixture of some columns, with precisions Lambda_oo - Lambda_om Lambda_mm^-1 Lambda_mo.

    None if Lambda_mm is not definite in some component: the row-wise loops say NaN of that component alone.
    """
    K, D = state.n_components, state.means.shape[1]
    if len(observed) == D:
        return state
    missing, precisions = other_columns(observed, D), state.precisions[:K]
    try:
        L = np.linalg.cholesky(precisions[:, missing[:, None], missing])
    except np.linalg.LinAlgError:
        return None
    # With Lambda_mm = L L' and C = L^-1 Lambda_mo the Schur complement is Lambda_oo - C'C, symmetric to the last bit.
    # Lambda_oo itself would be the precision given the missing columns (docs/errata.md, eq. 14).
    C = np.linalg.solve(L, precisions[:, missing[:, None], observed])
    explained = np.swapaxes(C, 1, 2) @ C
    return state._replace(
        means=np.ascontiguousarray(state.means[:K, observed]),
        precisions=np.ascontiguousarray(precisions[:, observed[:, None], observed] - explained),
        log_dets=state.log_dets[:K] + 2.0 * np.log(np.einsum("jii->ji", L)).sum(axis=1),
    )


def squared_distances(state: State, X: Array, backend: Backend = HOST) -> Array:
    """(x - mu_j)' Lambda_j (x - mu_j), (n, K), as matrix products."""
    K, (n, D) = state.n_components, X.shape
    d2 = np.empty((n, K))
    matrices, rows, step = backend.matrices(state.precisions), backend.rows(X), max(FEW_ROWS, CHUNK // D)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        some = rows.part(part.start, part.stop)

        def measure(which: slice, part: slice = part, some: Any = some) -> None:
            E, Y = backend.project(some, state.means[which], matrices, which)
            d2[part, which] = backend.squares(E, Y).T

        each(measure, stacks(backend, K, len(some), D), 0 if backend.batched else D)
    return d2


def condition(state: State, X: Array, target: Indices) -> ConditionalMixture:
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
    # Within a diagonal component nothing observed changes the variance of another column: one array fits all patterns.
    covariances = np.empty((K, T) if diagonal else (n, K, T, T))
    for observed, rows in patterns(hidden):
        part = _condition(state, hidden[rows], observed, target)
        weights[rows], means[rows] = part.weights, part.means
        covariances[... if diagonal else rows] = part.covariances
    return ConditionalMixture(weights, means, covariances)


def conditional_parts(state: State, X: Array, target: Indices) -> Iterator[ConditionalMixture]:
    """`condition` for some rows after others, so that memory stays bounded."""
    size = max(1, _PART // max(1, state.n_components * max(len(target), X.shape[1]) * len(target)))
    for start in range(0, len(X), size):
        yield condition(state, X[start : start + size], target)


def conditional_mean(state: State, X: Array, target: Indices) -> Array:
    """Conditional mean of the columns `target` for each row of X, given what else is observed in it, (n, T)."""
    if len(X) < FEW_ROWS and not is_diagonal(state):
        hidden, filled = X.copy(), np.empty_like(X)
        hidden[:, target] = np.nan
        rows_kernels.fill_expected(hidden, state, filled)
        answer: Array = filled[:, target]
        # The compiled loop says NaN where a block is not definite; the way below inflates it until it is.
        if np.isfinite(answer).all():
            return answer
    return np.concatenate([conditional.mean(part) for part in conditional_parts(state, X, target)])


def impute(state: State, X: Array) -> Imputation:
    """Conditional mean of every gap given the row's observed columns, and its standard deviation."""
    filled, spread = X.copy(), np.zeros_like(X)
    for observed, rows in patterns(X):
        gaps = other_columns(observed, X.shape[1])
        if len(gaps):
            found = list(conditional_parts(state, X[rows], gaps))
            filled[np.ix_(rows, gaps)] = np.concatenate([conditional.mean(part) for part in found])
            spread[np.ix_(rows, gaps)] = np.concatenate([conditional.std(part) for part in found])
    return Imputation(filled, spread)


def _condition(state: State, X: Array, observed: Indices, target: Indices) -> ConditionalMixture:
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
    # Eq. 14; what all components share, powers of 2 pi and the sum of the counts, cancels in the posteriors.
    joint = np.log(state.counts[:K]) - 0.5 * (d2 + rule.log_det)
    # Eq. 15 in precision form: the corrected eq. 32.
    means = state.means[:K, None, target] + E[:, :, target]
    chosen = rule.covariance[:, place] if is_diagonal(state) else rule.covariance[:, place[:, None], place]
    return ConditionalMixture(np.exp(joint - log_sum_exp(joint)[:, None]), means.transpose(1, 0, 2), chosen)


def _rule(state: State, observed: Indices, unobserved: Indices) -> _Rule:
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
