"""How many components there are, and how thin one may become: make room, merge, widen.

New components are created, and faint ones pruned, inside the learning loops (`figmn.kernels.rows`), because each
decision depends on the row before. They hand back here what needs more memory or a factorisation.
"""

from __future__ import annotations

import numpy as np

from everlearn.figmn.kernels import diagonal, rows
from everlearn.figmn.state import (
    Settings,
    State,
    covariances_of,
    from_components,
    inverted,
    is_diagonal,
    with_capacity,
)
from everlearn.gaussian.merge import prior_counted_once
from everlearn.gaussian.reduction import Greedy, reduce_greedy
from everlearn.typing import Array

# A full mixture merges its cheapest pairs until one in so many places is free. Finding the cheapest pair costs
# O(K^2 D^3); for one place at a time every novel row would pay for it.
ROOM_SHARE = 8


def make_room(state: State, settings: Settings) -> State:
    """Longer arrays, or fewer components once there are as many as are allowed."""
    K = state.n_components
    if K < settings.max_components:
        return with_capacity(state, min(max(2 * K, 4), settings.max_components))
    room = max(1, K // ROOM_SHARE)
    return merged_to(state, max_cost=0.0, max_components=K - room, priors=creation_priors(K, settings))


def creation_priors(n_components: int, settings: Settings) -> Array | None:
    """What each component holds of its creation prior, (K, D); None if forgetting or the printed update changes it."""
    if settings.forgetting < 1.0 or settings.paper:
        return None
    return np.tile(settings.initial_variance, (n_components, 1))


def merged_to(state: State, *, max_cost: float, max_components: int, priors: Array | None = None) -> State:
    """Merge the cheapest pairs: all that cost up to `max_cost`, and more until `max_components` are left.

    Merged components hold their creation `priors` (K, D) once, if these are given.
    """
    K = state.n_components
    greedy = reduce_greedy(
        state.counts[:K], state.means[:K], covariances_of(state), max_cost=max_cost, max_components=max_components
    )
    return regrouped(state, greedy, priors)


def regrouped(state: State, groups: Greedy, priors: Array | None = None) -> State:
    """The state with its components merged into `groups`, which hold their creation `priors` once."""
    counts, means, covariances, labels = groups
    if priors is not None:
        covariances = prior_counted_once(counts, covariances, priors, labels)
    # A merged component is as old as its oldest part: younger, it would get another grace period before pruning.
    ages = np.zeros(len(counts))
    np.maximum.at(ages, labels, state.ages[: state.n_components])
    merged = from_components(counts, means, covariances, ages, capacity=len(state.counts))
    return merged._replace(n_rows=state.n_rows)


def widen(state: State, settings: Settings) -> State:
    """Give components that have become thin, by forgetting on columns that do not vary, twice the least variance."""
    is_thin = diagonal.is_thin if is_diagonal(state) else rows.is_thin
    # Added to the covariance: each column's variance given the others then is at least twice the floor, and the matrix
    # can only become more definite. Clipping Lambda_aa would promise neither.
    extra = 2.0 * rows.FLOOR * settings.initial_variance
    for j in range(state.n_components):
        if is_thin(state.precisions[j], settings.initial_variance):
            covariance, _ = inverted(state.precisions[j], diagonal=is_diagonal(state))
            covariance = covariance + (extra if is_diagonal(state) else np.diag(extra))
            state.precisions[j], state.log_dets[j] = inverted(covariance, diagonal=is_diagonal(state))
    return state
