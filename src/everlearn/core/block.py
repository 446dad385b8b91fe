"""The incremental mixture at matrix-product speed: blocks of rows, with the answers of one row at a time.

The exact rule is recursive least squares in homogeneous coordinates, so that what a block of rows does to a component
depends on the rows only through P = 1 + E Lambda E', E = X - mu (see `everlearn.kernels.block`). A block costs two
matrix products, a small recursion that takes every decision in order, a triangular solve and a rank-b update: about
3 D^2 flops a row and component, nearly all of them in matrix products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.core.device import Device
from everlearn.kernels import block as kernels
from everlearn.kernels.block import Meetings, Members

if TYPE_CHECKING:
    from everlearn.core.incremental import MixtureState, Settings

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# Components that one block may create: each costs b^2 D/2 flops for a Gram matrix of its own.
MAX_BIRTHS = 8


class Block(NamedTuple):
    """A block of rows on its way into a state."""

    X: Array
    state: MixtureState
    device: Device
    matrices: Any
    meetings: Meetings
    members: Members


class Stack(NamedTuple):
    """Components that are worked on together: their numbers in the block, and Y = E Lambda of the rows they meet."""

    which: slice
    Y: Any


def learn_block(
    state: MixtureState, device: Device, matrices: Any, X: Array, weights: Array, settings: Settings, threshold: float,
    log_density: Array, distance: Array,
) -> tuple[MixtureState, int]:  # fmt: skip
    """Learn the rows of X, none of them with gaps, as one block; returns the state and how many rows were learned.

    A row that would need more room or care than the block has ends it early. The arrays of `state` are used up.
    """
    K, capacity = state.n_components, len(state.counts)
    births = min(MAX_BIRTHS, capacity - K)
    thinness = (device.diagonals(matrices, K) * settings.initial_variance).max(axis=1)
    block = Block(X, state, device, matrices, _all_meet(K, len(X), births), _members(state, thinness, births))
    stacks = [_project(block, which) for which in device.stacks(K, X.shape[1])]
    block.meetings.origin[:] = block.meetings.diagonal
    done, n = kernels.learn_block(
        X, weights, K, capacity, settings.initial_variance, threshold, settings.forgetting,
        settings.min_age, settings.min_count, block.meetings, block.members, log_density, distance,
    )  # fmt: skip
    if done > 0:
        for stack in stacks:
            _commit(block, stack, stack.which)
        state = _succeed(block, n, 1.0 / settings.initial_variance)
    return state._replace(n_rows=state.n_rows + done), done


def _all_meet(K: int, b: int, births: int) -> Meetings:
    """Every component meets every row."""
    room = K + births
    n, first = room * b, np.arange(room, dtype=np.int64) * b
    return Meetings(
        first=first,
        size=np.full(room, b, dtype=np.int64),
        at=first * b,
        rows=np.tile(np.arange(b, dtype=np.int64), room),
        diagonal=np.empty(n),
        origin=np.empty(n),
        gains=np.zeros(n),
        learned=np.empty(n, dtype=np.int64),
        n_learned=np.zeros(room, dtype=np.int64),
        P=np.empty(n * b),
    )


def _members(state: MixtureState, thinness: Array, births: int) -> Members:
    K = state.n_components
    more = np.zeros(births)
    return Members(
        *(np.concatenate([array[:K], more]) for array in (state.counts, state.ages, state.log_dets, thinness)),
        share=np.ones(K + births),
        alive=np.arange(K + births) < K,
        birth=np.full(K + births, -1, dtype=np.int64),
    )


def _rows(meetings: Meetings, which: slice) -> Rows:
    """The rows that some components meet, the same for all of them."""
    first = meetings.first[which.start]
    rows: Rows = meetings.rows[first : first + meetings.size[which.start]]
    return rows


def _matrices(meetings: Meetings, which: slice) -> tuple[Array, Array]:
    """P and gains of some components that meet the same rows."""
    j, k, m = which.start, which.stop - which.start, int(meetings.size[which.start])
    P = meetings.P[meetings.at[j] :][: k * m * m].reshape(k, m, m)
    return P, meetings.gains[meetings.first[j] :][: k * m].reshape(k, m)


def _project(block: Block, which: slice) -> Stack:
    """P of some components, and its diagonal, into the meetings."""
    meetings, device = block.meetings, block.device
    P, _ = _matrices(meetings, which)
    E = device.deviations(block.X[_rows(meetings, which)], block.state.means[which])
    Y = device.project(block.matrices, which, E)
    device.gram(E, Y, P)
    diagonal = np.einsum("jii->ji", P).ravel()
    meetings.diagonal[meetings.first[which.start] :][: len(diagonal)] = diagonal
    return Stack(which, Y)


def _commit(block: Block, stack: Stack, slots: slice) -> None:
    """Bring means and precisions, at their slots in the state, to the end of the block."""
    which, device, means = stack.which, block.device, block.state.means
    R, gains = _matrices(block.meetings, which)
    used = np.flatnonzero(gains.any(axis=0))
    if len(used) == 0 or not block.members.alive[which].any():
        return
    Y, gains = stack.Y, gains[:, used]
    if len(used) < R.shape[1]:
        R, Y = np.ascontiguousarray(R[:, used[:, None], used]), Y[:, used]
    kernels.isolate(R, gains)
    share = block.members.share[which]
    E = device.deviations(block.X[_rows(block.meetings, which)[used]], means[slots])
    means[slots] += device.combine(share[:, None] * gains, E)
    device.downdate(block.matrices, slots, device.solve(R, Y, gains > 0.0), share)


def _succeed(block: Block, n: int, initial_precision: Array) -> MixtureState:
    """The components that are alive at the end of the block, in order: the old ones, then those it created."""
    state, members = block.state, block.members
    alive = np.flatnonzero(members.alive[:n])
    for slot, j in enumerate(alive):
        if j >= state.n_components:
            _give_birth(block, int(j), slot, initial_precision)
        elif j != slot:
            state.means[slot] = state.means[j]
            block.device.move(block.matrices, int(j), slot)
    for array, values in zip(state[2:5], (members.log_dets, members.counts, members.ages), strict=True):
        array[: len(alive)] = values[alive]
    return state._replace(n_components=len(alive))


def _give_birth(block: Block, j: int, slot: int, precision: Array) -> None:
    """Put component j, which the block has created, at its place in the state."""
    device, means = block.device, block.state.means
    which, slots = slice(j, j + 1), slice(slot, slot + 1)
    means[slot] = block.X[block.members.birth[j]]
    device.place(block.matrices, slot, precision)
    if block.meetings.n_learned[j] == 0:
        return
    E = device.deviations(block.X[_rows(block.meetings, which)], means[slots])
    _commit(block, Stack(which, device.project(block.matrices, slots, E)), slots)
