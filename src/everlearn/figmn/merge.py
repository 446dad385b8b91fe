"""Mixtures learned apart, joined into one, and mixtures with fewer components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from everlearn.base.scaling import Frame, frame_of_spread
from everlearn.figmn.keep import regrouped
from everlearn.figmn.state import State, mixture_of
from everlearn.gaussian import reduction
from everlearn.gaussian.reduction import Greedy

Array = NDArray[np.float64]


def pooled_frame(frames: Sequence[Frame], n_rows: Array) -> Frame:
    """Frame of all rows together, from the frames of parts of them."""
    # Equal frames are kept bit by bit: no change of coordinates, no rounding.
    if all(np.array_equal(a, b) for frame in frames[1:] for a, b in zip(frames[0], frame, strict=True)):
        return frames[0]
    share = np.asarray(n_rows, dtype=np.float64) / np.sum(n_rows)
    # In the largest unit all ratios of scales are at most one, so that nothing overflows.
    scale = np.max([frame.scale for frame in frames], axis=0)
    centres = np.array([frame.centre * (frame.scale / scale) for frame in frames])
    variances = np.array([frame.variance * (frame.scale / scale) ** 2 for frame in frames])
    # Law of total variance: within the parts, and between their centres.
    centre = share @ centres
    variance = share @ (variances + (centres - centre) ** 2)
    return frame_of_spread(np.sqrt(variance) * scale, centre * scale)


def in_frame(state: State, old: Frame, new: Frame) -> State:
    """The same mixture in the coordinates of another frame (exact: both scales are powers of two)."""
    ratio = old.scale / new.scale
    square = ratio * ratio[:, None] if state.precisions.ndim == 3 else ratio * ratio
    return state._replace(
        means=state.means * ratio,
        precisions=state.precisions / square,
        log_dets=state.log_dets + 2.0 * np.log(ratio).sum(),
    )


def joined(states: Sequence[State], shares: Array) -> State:
    """All components of all states side by side, the counts of state i times shares[i]."""
    weighed = [s._replace(counts=s.counts * share) for s, share in zip(states, shares, strict=True)]
    means, precisions, log_dets, counts, ages = (
        np.concatenate([array[: s.n_components] for s, array in zip(weighed, arrays, strict=True)])
        for arrays in zip(*(s[:5] for s in weighed), strict=True)
    )
    n_rows = sum(s.n_rows for s in states)
    return State(means, precisions, log_dets, counts, ages, len(counts), n_rows)


def reduced(state: State, n_components: int, priors: Array | None = None) -> State:
    """The state with at most `n_components`: merged greedily, and refined where that lowers the squared error."""
    if state.n_components <= n_components:
        return state
    f = mixture_of(state)
    best = reduction.reduce(f, n_components)
    # The reduction works with shares of one; the state needs counts, which say how much the next row changes.
    counts = np.zeros(n_components)
    np.add.at(counts, best.labels, state.counts[: state.n_components])
    return regrouped(state, Greedy(counts, best.mixture.means, best.mixture.covariances, best.labels), priors)
