"""The incremental mixture at matrix-product speed: blocks of rows, with the answers of one row at a time.

The exact rule is recursive least squares in homogeneous coordinates, so that what a block of rows does to a component
depends on the rows only through P = 1 + E Lambda E', E = X - mu (see `figmn.kernels.blocks`). A block costs two
matrix products, a small recursion that takes every decision in order, a triangular solve and a rank-b update: about
3 D^2 flops a row and component, nearly all of them in matrix products. A screen leaves out the components that cannot
matter to a row. For a component that is alone the recursion is a Cholesky factorisation, which the device does itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn import bounds as screens
from everlearn.figmn.bounds import Mask, Screen
from everlearn.figmn.kernels import blocks as kernels
from everlearn.figmn.kernels import single_component as alone
from everlearn.figmn.kernels.blocks import Meetings, Members
from everlearn.figmn.kernels.rows import NEGLIGIBLE
from everlearn.gaussian.gaussian import LOG_2PI
from everlearn.linalg.backend import Device

if TYPE_CHECKING:
    from everlearn.figmn.learn import MixtureState, Settings

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Components that one block may create: each costs b^2 D/2 flops for a Gram matrix of its own.
MAX_BIRTHS = 8
# Numbers that the Gram matrices of a block with a screen may have (256 MiB); it is cut short when they would have more.
MOST_MEETINGS = 2**25


class Rows(NamedTuple):
    """Rows without gaps to be learned, their weights, and where to put what they were to the mixture."""

    X: Array
    weights: Array
    log_density: Array
    distance: Array

    def part(self, start: int, stop: int) -> Rows:
        """Some of the rows."""
        return Rows(*(array[start:stop] for array in self))


class Block(NamedTuple):
    """A block of rows on its way into a state."""

    X: Array
    rows: Any  # X on the device
    state: MixtureState
    device: Device
    matrices: Any
    meetings: Meetings
    members: Members


class Stack(NamedTuple):
    """Components that are worked on together: their numbers in the block, E and Y = E Lambda of the rows they meet."""

    which: slice
    E: Any
    Y: Any


class Progress(NamedTuple):
    """How far a block came: the rows learned, the components that were changed, and the share of pairs that met."""

    rows: int
    changed: Mask
    met: float


def learn_block(
    state: MixtureState, device: Device, matrices: Any, rows: Rows, on_device: Any, settings: Settings,
    threshold: float, screen: Screen | None = None,
) -> tuple[MixtureState, Progress]:  # fmt: skip
    """Learn rows, which are `on_device`, as one block. A row that needs more room or care than it has ends it early.

    The arrays of `state` are used up: go on with those of the result.
    """
    K, capacity, D = state.n_components, len(state.counts), rows.X.shape[1]
    if K == 1 and rows.weights.min() >= NEGLIGIBLE:
        return _learn_alone(state, device, matrices, rows, on_device, settings, threshold)
    births = min(MAX_BIRTHS, capacity - K)
    lower, near = _near(state, rows, screen)
    if screen:
        rows, on_device = rows.part(0, len(near)), on_device[: len(near)]
    b = len(rows.X)
    meetings = _meetings(near, births) if screen else _all_meet(K, b, births)
    thinness = _thinness(device, matrices, K, settings)
    block = Block(rows.X, on_device, state, device, matrices, meetings, _members(state, thinness, births))
    stacks = device.each(lambda which: _project(block, which), _stacks(block, together=screen is None), D)
    meetings.origin[:] = meetings.diagonal
    done, n = kernels.learn_block(
        rows.X, rows.weights, K, capacity, settings.initial_variance, threshold, settings.forgetting,
        settings.min_age, settings.min_count, device.root_unit, lower, meetings, block.members,
        rows.log_density, rows.distance,
    )  # fmt: skip
    if done > 0:
        device.each(lambda stack: _commit(block, stack, stack.which), stacks, D)
        state = _succeed(block, n, 1.0 / settings.initial_variance)
    met = float(meetings.size[:K].sum()) / max(K * b, 1)
    return state._replace(n_rows=state.n_rows + done), Progress(done, _changed(block, n), met)


def _learn_alone(
    state: MixtureState, device: Device, matrices: Any, rows: Rows, on_device: Any, settings: Settings, threshold: float
) -> tuple[MixtureState, Progress]:
    """Learn rows that belong to the only component, up to the first that is novel or needs more care."""
    counts, gains, shares = alone.foresee(rows.weights, state.counts[0], settings.forgetting, device.root_unit)
    if len(counts) == 0:
        return state, Progress(0, np.zeros(1, dtype=bool), 1.0)
    which = slice(0, 1)
    E = device.deviations(on_device[: len(counts)], state.means[which])
    Y = device.project(matrices, which, E)
    R, origin, rest = device.factor(E, Y, shares / gains)
    done, log_det = alone.judge(
        origin, rest, gains, shares, rows.X.shape[1], threshold, _thinness(device, matrices, 1, settings)[0],
        device.root_unit, state.log_dets[0], rows.log_density, rows.distance,
    )  # fmt: skip
    if done > 0:
        share, learned = shares[done - 1 : done], np.ones((1, done), dtype=bool)
        state.means[which] += device.combine(share * (gains / shares)[None, :done], E[:, :done])
        device.downdate(matrices, which, device.solve(R[:, :done, :done], Y[:, :done], learned), share)
        state.counts[0], state.log_dets[0], state.ages[0] = counts[done - 1], log_det, state.ages[0] + done
    return state._replace(n_rows=state.n_rows + done), Progress(done, np.full(1, done > 0), 1.0)


def _thinness(device: Device, matrices: Any, n: int, settings: Settings) -> Array:
    """The largest precision of a column in each component, in units of a new component's."""
    thinness: Array = (device.diagonals(matrices, n) * settings.initial_variance).max(axis=1, initial=0.0)
    return thinness


def _near(state: MixtureState, rows: Rows, screen: Screen | None) -> tuple[Array, Mask]:
    K = state.n_components
    if screen is None:
        return np.empty((0, 0)), np.empty((0, 0), dtype=bool)
    heights = np.log(state.counts[:K]) - 0.5 * (state.log_dets[:K] + rows.X.shape[1] * LOG_2PI)
    lower, near = screens.near_pairs(screen, rows.X, rows.weights, heights, state.counts[:K])
    while len(near) > 1 and (near.sum(axis=0) ** 2).sum() > MOST_MEETINGS:
        near = near[: len(near) // 2]
    return lower, near


def _all_meet(K: int, b: int, births: int) -> Meetings:
    """Every component meets every row."""
    return _meetings(np.ones((b, K), dtype=bool), births)


def _meetings(near: Mask, births: int) -> Meetings:
    """The components meet the rows that are near; those to be born may meet every row."""
    b = len(near)
    size = np.concatenate([near.sum(axis=0), np.full(births, b)])
    n, met = int(size.sum()), np.nonzero(near.T)[1]
    return Meetings(
        first=_starts(size),
        size=size,
        at=_starts(size**2),
        rows=np.concatenate([met, np.empty(births * b, dtype=np.int64)]),
        diagonal=np.empty(n),
        origin=np.empty(n),
        gains=np.zeros(n),
        learned=np.empty(n, dtype=np.int64),
        n_learned=np.zeros(len(size), dtype=np.int64),
        P=np.empty(int((size**2).sum())),
    )


def _starts(sizes: Indices) -> Indices:
    """Where pieces of these sizes begin when they lie one after the other."""
    starts = np.zeros(len(sizes), dtype=np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    return starts


def _members(state: MixtureState, thinness: Array, births: int) -> Members:
    K = state.n_components
    more = np.zeros(births)
    return Members(
        counts=np.concatenate([state.counts[:K], more]),
        ages=np.concatenate([state.ages[:K], more]),
        log_dets=np.concatenate([state.log_dets[:K], more]),
        thinness=np.concatenate([thinness, more]),
        share=np.ones(K + births),
        alive=np.arange(K + births) < K,
        birth=np.full(K + births, -1),
        height=np.empty(K + births),
        shrink=np.ones(K + births),
    )


def _stacks(block: Block, *, together: bool) -> list[slice]:
    """Components to be worked on together: one by one where they meet different rows."""
    K = block.state.n_components
    if together:
        return block.device.stacks(K, *block.X.shape)
    return [slice(j, j + 1) for j in np.flatnonzero(block.meetings.size[:K]).tolist()]


def _met(block: Block, which: slice) -> Any:
    """The rows that some components meet, the same for all of them; on the device."""
    first, m = block.meetings.first[which.start], block.meetings.size[which.start]
    return block.rows if m == len(block.X) else block.device.take(block.rows, block.meetings.rows[first : first + m])


def _matrices(meetings: Meetings, which: slice) -> tuple[Array, Array]:
    """P and gains of some components that meet the same rows."""
    j, k, m = which.start, which.stop - which.start, int(meetings.size[which.start])
    P = meetings.P[meetings.at[j] :][: k * m * m].reshape(k, m, m)
    return P, meetings.gains[meetings.first[j] :][: k * m].reshape(k, m)


def _project(block: Block, which: slice) -> Stack:
    """P of some components, and its diagonal, into the meetings."""
    meetings, device = block.meetings, block.device
    P, _ = _matrices(meetings, which)
    E = device.deviations(_met(block, which), block.state.means[which])
    Y = device.project(block.matrices, which, E)
    device.gram(E, Y, P)
    diagonal = np.einsum("jii->ji", P).ravel()
    meetings.diagonal[meetings.first[which.start] :][: len(diagonal)] = diagonal
    return Stack(which, E, Y)


def _commit(block: Block, stack: Stack, slots: slice) -> None:
    """Bring means and precisions, at their slots in the state, to the end of the block.

    Each component takes the rows that it learned; those with fewer than the busiest fill up with rows of no effect.
    """
    which, device, means = stack.which, block.device, block.state.means
    R, gains = _matrices(block.meetings, which)
    learned, busiest = gains > 0.0, int(block.meetings.n_learned[which].max())
    if busiest == 0 or not block.members.alive[which].any():
        return
    E, Y, share = stack.E, stack.Y, block.members.share[which]
    if busiest < R.shape[1]:
        rows = np.argsort(~learned, axis=1, kind="stable")[:, :busiest]
        R = R[np.arange(len(R))[:, None, None], rows[:, :, None], rows[:, None, :]]
        learned, gains = np.take_along_axis(learned, rows, axis=1), np.take_along_axis(gains, rows, axis=1)
        E, Y = device.pick(E, rows), device.pick(Y, rows)
    kernels.isolate(R, learned)
    means[slots] += device.combine(share[:, None] * gains, E)
    device.downdate(block.matrices, slots, device.solve(R, Y, learned), share)


def _succeed(block: Block, n: int, initial_precision: Array) -> MixtureState:
    """The components that are alive at the end of the block, in order: the old ones, then those it created."""
    state, members = block.state, block.members
    alive = np.flatnonzero(members.alive[:n])
    for slot, j in enumerate(alive.tolist()):
        if j >= state.n_components:
            _give_birth(block, j, slot, initial_precision)
        elif j != slot:
            state.means[slot] = state.means[j]
            block.device.move(block.matrices, j, slot)
    for array, values in zip(state[2:5], (members.log_dets, members.counts, members.ages), strict=True):
        array[: len(alive)] = values[alive]
    return state._replace(n_components=len(alive))


def _give_birth(block: Block, j: int, slot: int, precision: Array) -> None:
    """Put component j, which the block has created, at its place in the state."""
    device, means = block.device, block.state.means
    which, slots = slice(j, j + 1), slice(slot, slot + 1)
    means[slot] = block.X[block.members.birth[j]]
    device.place(block.matrices, slot, precision)
    if block.meetings.n_learned[j] > 0:
        E = device.deviations(_met(block, which), means[slots])
        _commit(block, Stack(which, E, device.project(block.matrices, slots, E)), slots)


def _changed(block: Block, n: int) -> Mask:
    """Which components of the new state are not what they were at the same place before."""
    alive = np.flatnonzero(block.members.alive[:n])
    moved = alive != np.arange(len(alive))
    changed: Mask = moved | (block.meetings.n_learned[alive] > 0) | (alive >= block.state.n_components)
    return changed
