"""A mixture without its rows, and without components of few rows."""

from __future__ import annotations

import numpy as np

from everlearn.gaussian.gaussian import log_det
from everlearn.mixture import learn
from everlearn.mixture.keep import carry
from everlearn.mixture.keep.by_moments import PARTS
from everlearn.mixture.keep.carry import Stock
from everlearn.mixture.keep.reconsider import refreshed
from everlearn.mixture.keep.world import world_of_moments
from everlearn.mixture.kernels.covariance import covariances_of
from everlearn.mixture.merge import change_of_frame
from everlearn.mixture.state import Array, Frame, Model, Settings, State

# Centres of a frame are medians, which are values of single rows: they are rounded to this share of the scale.
GRID = 0.25


def aggregated(state: State, settings: Settings, min_rows: int) -> State:
    """The state without sampled rows, and with components of `min_rows` rows or more, joined by their moments.

    The state must have components, and no pending rows.
    """
    assert state.model is not None
    assert state.frame is not None
    frame = _rounded(state.frame)
    ratio, offset = change_of_frame(state.frame, frame)
    model = refreshed(state.model)
    stock = joined_small(carry.stock_of_components(model.components), model, min_rows)
    stock = Stock(stock.mass, stock.counts, stock.means * ratio + offset, stock.scatter * ratio * ratio[:, None])
    world = model.world
    square = ratio * ratio[:, None]
    world = world_of_moments(
        world.background.centre * ratio + offset, world.covariance * square, world.typical * square,
        world.variance * ratio**2, world.smooth, model.fine,
    )  # fmt: skip
    shape = model.shape._replace(matrix=model.shape.matrix * square, ridge=model.shape.ridge * ratio**2)
    K, total = len(stock.mass), float(model.components.total[0])
    components = carry.components_of(stock, total, shape, carry.room_for(K, settings), PARTS)
    empty = learn.empty_reservoir(0, len(frame.centre))
    return state._replace(
        frame=frame, reservoir=empty, searched=state.n, model=Model(components, shape, world, model.fine, K)
    )


def _rounded(frame: Frame) -> Frame:
    step = GRID / frame.inverse
    return frame._replace(centre=np.round(frame.centre / step) * step)


def joined_small(stock: Stock, model: Model, min_rows: int) -> Stock:
    """Components below `min_rows` rows joined, the smallest first, each with the one where that costs least.

    The cost is Runnalls' bound on the divergence: ((w_i + w_j) log|S_ij| - w_i log|S_i| - w_j log|S_j|) / 2.
    """
    parts = [Stock(*(values[k : k + 1] for values in stock)) for k in range(len(stock.mass))]
    while len(parts) > 1:
        covariances = [_covariance(part, model) for part in parts]
        k = int(np.argmin([part.counts[0] for part in parts]))
        if parts[k].counts[0] >= min_rows:
            break
        others = [j for j in range(len(parts)) if j != k]
        unions = [carry.sum_of(_pair(parts[k], parts[j])) for j in others]
        costs = [
            float(union.mass[0]) * log_det(_covariance(union, model))
            - float(parts[k].mass[0]) * log_det(covariances[k])
            - float(parts[j].mass[0]) * log_det(covariances[j])
            for j, union in zip(others, unions, strict=True)
        ]
        best = int(np.argmin(costs))
        parts = [part for j, part in enumerate(parts) if j not in (k, others[best])] + [unions[best]]
    return Stock(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _pair(a: Stock, b: Stock) -> Stock:
    return Stock(*(np.concatenate(values) for values in zip(a, b, strict=True)))


def _covariance(part: Stock, model: Model) -> Array:
    components = carry.components_of(part, float(part.mass.sum()), model.shape, 1)
    return np.asarray(covariances_of(components, model.shape)[0])
