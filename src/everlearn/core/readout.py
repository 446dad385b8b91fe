"""What a mixture shows of itself: a copy with fewer, sturdier components than it learns with.

Learning keeps many fine components, because merging early loses what later rows could still tell apart. The copy that
people read has a little of each column's variance added and pairs merged while that costs less than a fifth of a BIC
penalty. A second look refines it by a few EM steps on a sample of rows, each component's streamed self its prior.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everlearn.core.incremental import MixtureState, bic_penalty, covariances_of, from_components, merged_to
from everlearn.core.mixture import Mixture, responsibilities

Array = NDArray[np.float64]

RIDGE = 1e-3
MERGE_COST = 0.2
EM_STEPS = 10
PRIOR_SHARE = 0.1


def merged_copy(state: MixtureState, variance: Array) -> MixtureState:
    """A copy with ridge `RIDGE` times the columns' variance, merged while a pair costs little."""
    K = state.n_components
    diagonal = np.diag(RIDGE * variance) if state.precisions.ndim == 3 else RIDGE * variance
    widened = from_components(state.counts[:K], state.means[:K], covariances_of(state) + diagonal, state.ages[:K])
    widened = widened._replace(n_rows=state.n_rows)
    return merged_to(widened, max_cost=MERGE_COST * bic_penalty(widened), max_components=K)


def second_look(state: MixtureState, rows: Array) -> MixtureState:
    """EM steps on a uniform sample of the stream, with each component (n_j, m_j, Sigma_j) as its own prior.

    With u the share of the stream outside the sample: kappa_j = 1 + 0.1 n_j u and nu_j = 2D + 0.1 n_j u;
    mu = (sum r x + kappa m)/(sum r + kappa), weights sum r + 1/2, and
    Sigma = (scatter about mu + nu Sigma_j + kappa (mu-m)(mu-m)')/(sum r + nu).
    """
    K, D = state.n_components, state.means.shape[1]
    counts, means, covariances = state.counts[:K], state.means[:K], covariances_of(state)
    unseen = max(0.0, 1.0 - len(rows) / max(counts.sum(), 1.0))
    kappa = 1.0 + PRIOR_SHARE * counts * unseen
    nu = 2.0 * D + PRIOR_SHARE * counts * unseen
    mixture = Mixture(counts / counts.sum(), means, covariances)
    for _ in range(EM_STEPS):
        mixture = _em_step(mixture, rows, means, covariances, kappa, nu)
    refined = from_components(mixture.weights * counts.sum(), mixture.means, mixture.covariances, state.ages[:K])
    return refined._replace(n_rows=state.n_rows)


def _em_step(mixture: Mixture, rows: Array, means: Array, covariances: Array, kappa: Array, nu: Array) -> Mixture:
    R = responsibilities(rows, mixture)
    n = R.sum(axis=0)
    mu = (R.T @ rows + kappa[:, None] * means) / (n + kappa)[:, None]
    new = np.empty_like(covariances)
    for j, (r, m) in enumerate(zip(R.T, mu, strict=True)):
        E, shift = rows - m, m - means[j]
        if covariances.ndim == 3:
            scatter = (r[:, None] * E).T @ E + nu[j] * covariances[j] + kappa[j] * np.outer(shift, shift)
        else:
            scatter = r @ (E * E) + nu[j] * covariances[j] + kappa[j] * shift * shift
        new[j] = scatter / (n[j] + nu[j])
    weights = n + 0.5
    return Mixture(weights / weights.sum(), mu, new)
