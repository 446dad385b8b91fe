"""What a mixture shows of itself: a copy with fewer, sturdier components than it learns with.

Learning keeps many fine components, because merging early loses what later rows could still tell apart. In the copy
that people read, each component gives back the variance that it was created with, and takes two rows of the shape that
all have in common instead; then pairs are merged while that costs less than a fifth of a BIC penalty.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn.learn import MixtureState, bic_penalty, covariances_of, creation_priors, merged_to
from everlearn.figmn.state import Settings, from_components, is_diagonal
from everlearn.gaussian.merge import holds

Array = NDArray[np.float64]

RIDGE = 1e-3
COMMON_ROWS = 2.0
MERGE_COST = 0.2


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
