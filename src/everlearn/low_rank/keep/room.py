"""The room: strange rows are kept apart until enough of them are alike to open a component."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everlearn.low_rank.kernels.fold import fold, top_directions
from everlearn.low_rank.kernels.rows import quota
from everlearn.low_rank.kernels.shape import refresh
from everlearn.low_rank.state import (
    Components,
    Model,
    Readout,
    Rule,
    Settings,
    joined,
    no_components,
    nothing_waiting,
    squared_distances,
)
from everlearn.typing import Array

LOG_2PI = float(np.log(2.0 * np.pi))


def empty_some(model: Model, readout: Readout, rule: Rule, settings: Settings) -> tuple[Model, bool]:
    """Make place in a full room: its tightest half opens a component, or its older half is learned.

    The half must be predicted better, each row left out of the mean, by a component at its own place with the shape of
    the component that it fits best, than by the components that there are. Returns whether a component was opened.
    """
    room, K = model.room, len(model.components.n)
    Y, H = room.rows, len(room.weights)
    half = H // 2
    if K < (settings.fixed or settings.most):
        group = tightest(Y, half)
        Z = Y[group]
        mean = Z.mean(axis=0)
        height = -0.5 * (squared_distances(Z, readout) + readout.log_det)
        j = int(np.argmax(height.sum(axis=0)))
        # Left out of its group of m rows, a row lies m/(m - 1) times as far from the mean of the others, and the
        # predictive covariance is 1 + 1/(m - 1) = m/(m - 1) times as large: the distance grows by the square of the one
        # over the other, and the log-determinant by D ln(m/(m - 1)).
        more = half / (half - 1.0)
        d2 = squared_distances(Z - mean + model.components.mean[j], readout, slice(j, j + 1))[:, 0]
        alone = -0.5 * (more * d2 + readout.log_det[j] + Y.shape[1] * np.log(more))
        # Each row against the best of all components: opening has to beat leaving the rows where they fit best.
        if (alone - height.max(axis=1)).sum() > 0.0:
            new = opened(model.components, j, Z, room.weights[group])
            keep_in_room(model, np.setdiff1d(np.arange(H), group))
            return with_component(model, new, settings), True
    learn_by_best(model, room.rows[:half], room.weights[:half], readout, rule)
    keep_in_room(model, np.arange(half, H))
    return model, False


def tightest(Y: Array, size: int) -> NDArray[np.intp]:
    """Numbers of the rows that lie nearest to one of them, which is chosen so that they lie as near as can be."""
    # About the mean, so that the differences of squares below do not cancel.
    E = Y - Y.mean(axis=0)
    G = E @ E.T
    d2 = np.diagonal(G)[:, None] + np.diagonal(G) - 2.0 * G
    near = np.argsort(d2, axis=1, kind="stable")[:, :size]
    return near[np.argmin(np.take_along_axis(d2, near, axis=1).sum(axis=1))]


def opened(c: Components, j: int, Z: Array, weights: Array) -> Components:
    """A component of few rows, with as many rows of the shape of component j borrowed."""
    Q, D = c.directions.shape[1:]
    new = no_components(1, D, Q)
    R = weights.sum()
    # As many rows of borrowed shape as there are own ones: a few rows in many columns have no shape by themselves.
    share = R / max(c.n[j] + c.borrowed[j], 1e-300)
    used = int(c.used[j])
    new.mass[0] = new.n[0] = new.borrowed[0] = R
    new.mean[0] = weights @ Z / R
    E = np.sqrt(weights)[:, None] * (Z - new.mean[0])
    S = np.concatenate([np.sqrt(c.scatter[j, :used] * share)[:, None] * c.directions[j, :used], E])
    new.used[0] = top_directions(S, min(Q, D - 1), new.directions[0], new.scatter[0])
    new.diagonal[0] = c.diagonal[j] * share + (E * E).sum(axis=0)
    new.trace[0] = c.trace[j] * share + (E * E).sum()
    return new


def with_component(model: Model, new: Components, settings: Settings) -> Model:
    """The model with one component more; what waits stays where it is."""
    components = joined([model.components, new])
    K, D = components.mean.shape
    waiting = nothing_waiting(K, D, settings)
    for values, before in zip(waiting, model.waiting, strict=True):
        values[: K - 1] = before
    return model._replace(components=components, waiting=waiting)


def keep_in_room(model: Model, rows: NDArray[np.intp]) -> None:
    """Let only some rows stay in the room."""
    room = model.room
    room.rows[: len(rows)] = room.rows[rows]
    room.weights[: len(rows)] = room.weights[rows]
    room.size[0] = len(rows)


def learn_by_best(model: Model, rows: Array, weights: Array, readout: Readout, rule: Rule) -> None:
    """Let the component that a row fits best learn it, row by row, in place."""
    c, waiting = model.components, model.waiting
    # One product for all rows: for one it takes nearly as long, most of it to read the directions.
    d2 = squared_distances(rows, readout)
    for i, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        j = int(np.argmax(np.log(np.maximum(c.mass, 1e-300)) - 0.5 * (d2[i] + readout.log_det)))
        c.mass[j] += weight
        slot = waiting.size[j]
        waiting.rows[j, slot], waiting.weights[j, slot] = row, weight
        waiting.size[j] += 1
        if waiting.size[j] >= quota(c.n[j], rule.quota):
            fold(c, waiting, j, rule.fading)
            refresh(c, j, rule.prior_noise, readout)
            d2[i + 1 :, j] = squared_distances(rows[i + 1 :], readout, slice(j, j + 1))[:, 0]
