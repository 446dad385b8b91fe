"""Kernels of Sarsa(lambda) with tile coding: values of the actions in a state, and a step of learning with traces.

A step in NumPy took 350 to 500 us, nearly all of it the overhead of some thirty calls on arrays of ten to 400 numbers.
"""

from typing import Any, NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel

MIN_TRACE = 0.01  # traces that are smaller no longer count


class Grids(NamedTuple):
    """Tile coding: n_tilings grids over d observations, each with `side` tiles along every axis."""

    low: Any  # (d,)
    width: Any  # (d,), of a tile
    shift: Any  # (n_tilings, d), in tiles
    side: Any  # tiles along an axis


class Trail(NamedTuple):
    """Tiles that were active lately, each once, with the action and the trace that is left."""

    actions: Any
    tiles: Any
    traces: Any


class Error(NamedTuple):
    """What a step of learning is told: the action in the tiles `active`, and the error of its value."""

    active: Any
    action: Any
    step: Any  # error times step size
    decay: Any  # of the traces


@inner
def active_tile(x, i, grids):
    """Number of the tile of grid i that a state lies in."""
    tile, place = 0, 1
    for a in range(x.shape[0]):
        along = np.floor((x[a] - grids.low[a]) / grids.width[a] + grids.shift[i, a])
        # Clipped before it becomes an integer: an observation without bounds may be larger than any.
        tile += int(min(max(along, 0.0), grids.side - 1.0)) * place
        place *= grids.side
    return i * place + tile


@kernel
def fill_active(x, grids, active):
    """Fill the numbers of the active tiles, one of each grid."""
    for i in range(active.shape[0]):
        active[i] = active_tile(x, i, grids)


@kernel
def fill_values(x, grids, weights, active, values):
    """Fill the active tiles of a state, and the value of every action there: the sum of the tiles' weights."""
    fill_active(x, grids, active)
    for action in range(values.shape[0]):
        values[action] = 0.0
        for tile in active:
            values[action] += weights[action, tile]


@kernel
def learn_step(error, trail, n, weights):
    """Learn an error with replacing traces; the trail holds n entries before. Returns how many it holds now."""
    cells = weights.shape[1] // error.active.shape[0]
    kept = 0
    for k in range(n):
        trace = trail.traces[k] * error.decay
        tile = trail.tiles[k]
        # Replacing traces: a tile that is active again gets a new trace, and those of other actions in it are dropped.
        if trace > MIN_TRACE and error.active[tile // cells] != tile:
            action = trail.actions[k]
            weights[action, tile] += error.step * trace
            trail.traces[kept], trail.tiles[kept], trail.actions[kept] = trace, tile, action
            kept += 1
    for i in range(error.active.shape[0]):
        tile = error.active[i]
        weights[error.action, tile] += error.step
        trail.traces[kept], trail.tiles[kept], trail.actions[kept] = 1.0, tile, error.action
        kept += 1
    return kept
