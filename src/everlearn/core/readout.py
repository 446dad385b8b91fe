"""What a mixture shows of itself: a copy with fewer, sturdier components than it learns with.

Learning keeps many fine components, because merging early loses what later rows could still tell apart. In the copy
that people read, each component gives back the variance that it was created with, and takes two rows of the shape that
all have in common instead; then pairs are merged while that costs less than a fifth of a BIC penalty. A second look
refines it by a few EM steps on a sample of rows, each component's streamed self its prior.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everlearn.core.incremental import (
    MixtureState,
    Settings,
    bic_penalty,
    covariances_of,
    creation_priors,
    from_components,
    is_diagonal,
    merged_to,
)
from everlearn.core.merging import holds
from everlearn.core.mixture import Mixture, responsibilities

Array = NDArray[np.float64]

RIDGE = 1e-3
COMMON_ROWS = 2.0
MERGE_COST = 0.2
EM_STEPS = 10
PRIOR_ROWS = 2.0  # a column
PRIOR_SHARE = 0.1


def merged_copy(state: MixtureState, settings: Settings, variance: Array, *, primed: bool = True) -> MixtureState:
    """A copy with sturdy covariances, merged while a pair costs little.

    Components that are not `primed`, or that forgetting or the printed update has changed, have no creation prior to
    give back; they only take `RIDGE` times the columns' variance.
    """
    K = state.n_components
    if primed and creation_priors(K, settings) is not None:
        covariances = sturdy_covariances(state, settings.initial_variance, variance)
    else:
        covariances = covariances_of(state) + _ridge(state, variance)
    sturdy = from_components(state.counts[:K], state.means[:K], covariances, state.ages[:K])
    sturdy = sturdy._replace(n_rows=state.n_rows)
    return merged_to(sturdy, max_cost=MERGE_COST * bic_penalty(sturdy), max_components=K)


def _ridge(state: MixtureState, variance: Array) -> Array:
    return RIDGE * variance if is_diagonal(state) else np.diag(RIDGE * variance)


def sturdy_covariances(state: MixtureState, initial_variance: Array, variance: Array) -> Array:
    """Covariances of the components, drawn together; `RIDGE` times the columns' variance is added to all.

    Component j holds ``n_j Sigma_j = P + S_j``, its creation prior and the scatter of its rows. With the shape that all
    have in common, ``C = (P + sum S_j)/(1 + sum (n_j - 1))``, it becomes ``(S_j + 2 C)/(n_j + 1)``: a component of one
    row takes the common shape. A covariance that cannot hold the prior keeps all it has.
    """
    K, ridge = state.n_components, _ridge(state, variance)
    covariances, counts = covariances_of(state), state.counts[:K]
    prior = initial_variance if is_diagonal(state) else np.diag(initial_variance)
    n = counts.reshape(-1, *(1 for _ in prior.shape))
    held = holds(n * covariances, (1.0 - RIDGE) * initial_variance)
    scatter = n * covariances - held.reshape(n.shape) * prior
    common = (prior + scatter.sum(axis=0)) / max(1.0, 1.0 + counts.sum() - K)
    return np.asarray((scatter + COMMON_ROWS * (common + ridge)) / (n + COMMON_ROWS - 1.0) + ridge)


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
    nu = PRIOR_ROWS * D + PRIOR_SHARE * counts * unseen
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
