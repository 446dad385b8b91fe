"""A second look at rows that a stream has left behind: EM steps on a sample, each component's streamed self its prior.

Rows may have gaps: these are filled by conditional means, and their conditional covariance is added (Ghahramani and
Jordan, "Supervised learning from incomplete data via an EM approach", 1994).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn.ask import score as ask
from everlearn.figmn.kernels.missing_moments import add_expected_moments
from everlearn.figmn.learn import MixtureState, covariances_of
from everlearn.figmn.state import from_components

Array = NDArray[np.float64]

EM_STEPS = 10
PRIOR_ROWS = 2.0  # a column
PRIOR_SHARE = 0.1


class _Prior(NamedTuple):
    """What the components were, and how many rows that is worth: for each mean `kappa`, for each covariance `nu`."""

    means: Array
    covariances: Array
    kappa: Array
    nu: Array


def refined(state: MixtureState, rows: Array) -> MixtureState:
    """EM steps on a uniform sample of the stream, with each component (n_j, m_j, Sigma_j) as its own prior.

    With u the share of the stream outside the sample: kappa_j = 1 + 0.1 n_j u and nu_j = 2D + 0.1 n_j u;
    mu = (sum r x + kappa m)/(sum r + kappa), weights sum r + 1/2, and
    Sigma = (scatter about mu + nu Sigma_j + kappa (mu-m)(mu-m)')/(sum r + nu).
    """
    if not len(rows):
        return state
    K, D = state.n_components, state.means.shape[1]
    counts = state.counts[:K]
    unseen = max(0.0, 1.0 - len(rows) / max(counts.sum(), 1.0))
    rest = PRIOR_SHARE * counts * unseen
    prior = _Prior(state.means[:K], covariances_of(state), 1.0 + rest, PRIOR_ROWS * D + rest)
    looked = state
    for _ in range(EM_STEPS):
        looked = _em_step(looked, rows, prior)
    share = counts.sum() / looked.counts.sum()
    return looked._replace(counts=looked.counts * share, n_rows=state.n_rows)


def _em_step(state: MixtureState, rows: Array, prior: _Prior) -> MixtureState:
    R = ask(state, rows, np.zeros(rows.shape[1]), posteriors=True)[2]
    n, K = R.sum(axis=0), state.n_components
    sums, squares = _expected_moments(state, rows, R)
    back = prior.means - state.means[:K]
    shift = (sums + prior.kappa[:, None] * back) / (n + prior.kappa)[:, None]
    covariances = np.empty_like(prior.covariances)
    product = np.multiply if covariances.ndim == 2 else np.outer
    for j, (s, d, b) in enumerate(zip(sums, shift, back, strict=True)):
        about_new_mean = squares[j] - product(s, d) - product(d, s) + n[j] * product(d, d)
        pull = prior.nu[j] * prior.covariances[j] + prior.kappa[j] * product(b - d, b - d)
        covariances[j] = (about_new_mean + pull) / (n[j] + prior.nu[j])
    return from_components(n + 0.5, state.means[:K] + shift, covariances, state.ages[:K])


def _expected_moments(state: MixtureState, rows: Array, R: Array) -> tuple[Array, Array]:
    """Sums of r E[e] and r E[e e'] over the rows, e their deviations from each mean; of squares if it is diagonal."""
    K, gaps = state.n_components, np.isnan(rows)
    means, precisions = state.means[:K], state.precisions[:K]
    sums, squares = np.zeros_like(means), np.zeros_like(precisions)
    if precisions.ndim == 2:
        for j in range(K):
            E = np.where(gaps, 0.0, rows - means[j])
            sums[j], squares[j] = R[:, j] @ E, R[:, j] @ (E * E) + (R[:, j] @ gaps) / precisions[j]
        return sums, squares
    complete = ~gaps.any(axis=1)
    seen, weights = rows[complete], R[complete]
    for j in range(K):
        E = seen - means[j]
        weighed = weights[:, j, None] * E
        sums[j], squares[j] = weighed.sum(axis=0), weighed.T @ E
    add_expected_moments(rows[~complete], R[~complete], means, precisions, sums, squares)
    return sums, squares
