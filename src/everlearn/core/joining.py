"""Mixtures learned apart, joined into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from everlearn.core.frame import Frame
from everlearn.core.incremental import MixtureState, covariances_of, from_components, merged_to
from everlearn.core.merging import Component, merge_components

Array = NDArray[np.float64]


def in_frame(state: MixtureState, old: Frame, new: Frame) -> MixtureState:
    """The same mixture in the coordinates of another frame (exact: both scales are powers of two)."""
    ratio = old.scale / new.scale
    square = ratio * ratio[:, None] if state.precisions.ndim == 3 else ratio * ratio
    return state._replace(
        means=state.means * ratio,
        precisions=state.precisions / square,
        log_dets=state.log_dets + 2.0 * np.log(ratio).sum(),
    )


def joined(states: Sequence[MixtureState], shares: Array, initial_variance: Array) -> MixtureState:
    """All components of all states side by side, the counts of state i times shares[i].

    When each state is a single component, the result is one component that has learned what all of them have, its
    creation prior counted once.
    """
    if all(state.n_components == 1 for state in states) and np.all(shares == 1.0):
        return _joined_single(states, initial_variance)
    weighed = [s._replace(counts=s.counts * share) for s, share in zip(states, shares, strict=True)]
    means, precisions, log_dets, counts, ages = (
        np.concatenate([array[: s.n_components] for s, array in zip(weighed, arrays, strict=True)])
        for arrays in zip(*(s[:5] for s in weighed), strict=True)
    )
    n_rows = sum(s.n_rows for s in states)
    return MixtureState(means, precisions, log_dets, counts, ages, len(counts), n_rows, 0)


def _joined_single(states: Sequence[MixtureState], initial_variance: Array) -> MixtureState:
    parts = [Component(float(s.counts[0]), s.means[0], covariances_of(s)[0]) for s in states]
    whole = merge_components(parts, initial_variance)
    ages = np.array([max(float(s.ages[0]) for s in states)])
    state = from_components(np.array([whole.n]), whole.mean[None], whole.covariance[None], ages)
    return state._replace(n_rows=sum(s.n_rows for s in states))


def within(state: MixtureState, max_components: int) -> MixtureState:
    """The state with at most `max_components`, by the cheapest merges."""
    if state.n_components <= max_components:
        return state
    return merged_to(state, max_cost=0.0, max_components=max_components)
