"""The mixture at matrix-product speed: blocks of rows, with the answers of one row at a time.

The exact rule is recursive least squares in homogeneous coordinates, so that what a block of rows does to a component
depends on the rows only through P = 1 + E Lambda E', E = X - mu (see `figmn.kernels.blocks`). A block costs two
matrix products, a small recursion that takes every decision in order, a triangular solve and a rank-b update: about
3 D^2 flops a row and component, nearly all of them in matrix products. A screen leaves out the components that cannot
matter to a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn import bounds
from everlearn.figmn.bounds import Bounds, Mask
from everlearn.figmn.kernels import blocks as kernels
from everlearn.figmn.kernels.blocks import BlockComponents, Limits, RowAssignment
from everlearn.figmn.state import Rows, Settings, State
from everlearn.gaussian.gaussian import LOG_2PI
from everlearn.linalg.backend import LARGE, Backend, each
from everlearn.typing import Array

Indices = NDArray[np.int64]

# Components that one block may create: each costs b^2 D/2 flops for a Gram matrix of its own.
MAX_CREATED = 8
# Numbers that the Gram matrices of a screened block may have (256 MiB); it is cut short when they would have more.
MOST_ASSIGNED = 2**25


class Block(NamedTuple):
    """A block of rows on its way into a state."""

    X: Array
    rows: Any  # X where the backend keeps it
    state: State
    backend: Backend
    matrices: Any
    assigned: RowAssignment
    components: BlockComponents


class Stack(NamedTuple):
    """Components that are worked on together: their numbers in the block, E and Y = E Lambda of their rows."""

    which: slice
    E: Any
    Y: Any


class Progress(NamedTuple):
    """How far a block came: rows learned, components that were changed, share of pairs that were evaluated."""

    rows: int
    changed: Mask
    share: float


def learn_block(
    state: State, backend: Backend, matrices: Any, rows: Rows, sent: Any, settings: Settings, screen: Bounds | None
) -> tuple[State, Progress]:
    """Learn rows, which the backend has as `sent`, as one block. A row that needs more room or care ends it early.

    `state` is consumed: its arrays are updated in place; use the returned state.
    """
    K, capacity = state.n_components, len(state.counts)
    room = min(MAX_CREATED, capacity - K)
    if screen is None:
        near, lower = np.ones((len(rows.X), K), dtype=bool), np.empty((0, 0))
    else:
        lower, near = _near_pairs(state, rows, screen)
        rows, sent = rows.part(0, len(near)), sent[: len(near)]
    assigned = _assign(near, lower, room)
    # Lambda_aa, in units of a new component's precision. In the block Lambda = (Lambda_0 - Z'Z)/a, so
    # that no Lambda_aa exceeds this one over a.
    thinness = (matrices.diagonals(K) * settings.initial_variance).max(axis=1, initial=0.0)
    block = Block(rows.X, sent, state, backend, matrices, assigned, _components(state, thinness, room))
    stacks = _each(block, lambda which: _project(block, which), _stacks(block, screened=screen is not None))
    # The recursion subtracts from the diagonal; how much has cancelled is judged against where it started.
    assigned.origin[:] = assigned.diagonal
    limits = Limits(capacity, backend.root_unit)
    done, n = kernels.learn_block(rows, K, settings, limits, assigned, block.components)
    # Every decision is taken; what is left is matrix work, independent by component.
    if done > 0:
        _each(block, lambda stack: _commit(block, stack, stack.which), stacks)
        state = _surviving_components(block, n, rows.weights[:, None] / settings.initial_variance)
    share = float(assigned.size[:K].sum()) / max(K * len(rows.X), 1)
    return state._replace(n_rows=state.n_rows + done), Progress(done, _changed(block, n), share)


def _near_pairs(state: State, rows: Rows, screen: Bounds) -> tuple[Array, Mask]:
    K = state.n_components
    heights = np.log(state.counts[:K]) - 0.5 * (state.log_dets[:K] + rows.X.shape[1] * LOG_2PI)
    lower, near = bounds.near_pairs(screen, rows.X, rows.weights, heights, state.counts[:K])
    # P of a component has the square of its near rows.
    while len(near) > 1 and (near.sum(axis=0) ** 2).sum() > MOST_ASSIGNED:
        near = near[: len(near) // 2]
    return lower, near


def _assign(near: Mask, lower: Array, room: int) -> RowAssignment:
    """Assign near rows to the components, and every row to those that may be created."""
    b = len(near)
    # A created component takes the rows after its own, fewer than b; b is all that it can need.
    size = np.concatenate([near.sum(axis=0), np.full(room, b)])
    n, chosen = int(size.sum()), np.nonzero(near.T)[1]
    return RowAssignment(
        first=_starts(size),
        size=size,
        at=_starts(size**2),
        rows=np.concatenate([chosen, np.empty(room * b, dtype=np.int64)]),
        diagonal=np.empty(n),
        origin=np.empty(n),
        gains=np.zeros(n),
        learned=np.empty(n, dtype=np.int64),
        n_learned=np.zeros(len(size), dtype=np.int64),
        P=np.empty(int((size**2).sum())),
        lower=lower,
    )


def _starts(sizes: Indices) -> Indices:
    """Where pieces of these sizes begin when they lie one after the other."""
    starts = np.zeros(len(sizes), dtype=np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    return starts


def _components(state: State, thinness: Array, room: int) -> BlockComponents:
    K = state.n_components
    more = np.zeros(room)
    return BlockComponents(
        counts=np.concatenate([state.counts[:K], more]),
        ages=np.concatenate([state.ages[:K], more]),
        log_dets=np.concatenate([state.log_dets[:K], more]),
        thinness=np.concatenate([thinness, more]),
        share=np.ones(K + room),
        alive=np.arange(K + room) < K,
        created_at=np.full(K + room, -1),
        height=np.empty(K + room),
        shrink=np.ones(K + room),
    )


def _stacks(block: Block, *, screened: bool) -> list[slice]:
    """Components to be worked on together: one by one where they take different rows."""
    K = block.state.n_components
    if screened:
        return [slice(j, j + 1) for j in np.flatnonzero(block.assigned.size[:K]).tolist()]
    return stacks(block.backend, K, *block.X.shape)


def stacks(backend: Backend, K: int, b: int, D: int) -> list[slice]:
    """How K components are taken together for b rows: one by one where a matrix alone keeps the BLAS busy."""
    alone = D >= LARGE and not backend.batched
    step = 1 if alone else max(1, backend.stack_numbers // (b * D))
    return [slice(j, min(j + step, K)) for j in range(0, K, step)]


def _each(block: Block, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Independent work on stacks: one after the other where each of them can fill the device."""
    return [work(item) for item in items] if block.backend.batched else each(work, items, block.X.shape[1])


def _rows_of(block: Block, which: slice) -> Any:
    """The rows assigned to some components, the same for all of them; where the backend keeps them."""
    first, m = block.assigned.first[which.start], block.assigned.size[which.start]
    return block.rows if m == len(block.X) else block.rows[block.assigned.rows[first : first + m]]


def _matrices(assigned: RowAssignment, which: slice) -> tuple[Array, Array]:
    """P and gains of some components that take the same rows."""
    j, k, m = which.start, which.stop - which.start, int(assigned.size[which.start])
    P = assigned.P[assigned.at[j] :][: k * m * m].reshape(k, m, m)
    return P, assigned.gains[assigned.first[j] :][: k * m].reshape(k, m)


def _project(block: Block, which: slice) -> Stack:
    """P of some components, and its diagonal, into the assignment."""
    assigned, backend = block.assigned, block.backend
    P, _ = _matrices(assigned, which)
    E, Y = backend.project(_rows_of(block, which), block.state.means[which], block.matrices, which)
    backend.gram(E, Y, P)
    diagonal = np.einsum("jii->ji", P).ravel()
    assigned.diagonal[assigned.first[which.start] :][: len(diagonal)] = diagonal
    return Stack(which, E, Y)


def _commit(block: Block, stack: Stack, slots: slice) -> None:
    """Bring means and precisions, at their slots in the state, to the end of the block.

    Each component takes the rows that it learned; those with fewer than the busiest fill up with rows of no effect.
    """
    which, backend, means = stack.which, block.backend, block.state.means
    R, gains = _matrices(block.assigned, which)
    learned, busiest = gains > 0.0, int(block.assigned.n_learned[which].max())
    if busiest == 0 or not block.components.alive[which].any():
        return
    E, Y, share = stack.E, stack.Y, block.components.share[which]
    # Learned rows come first in their own order (a stable sort): R is triangular only in the order of learning.
    if busiest < R.shape[1]:
        rows = np.argsort(~learned, axis=1, kind="stable")[:, :busiest]
        each_one = np.arange(len(R))[:, None]
        R = R[each_one[:, :, None], rows[:, :, None], rows[:, None, :]]
        learned, gains = np.take_along_axis(learned, rows, axis=1), np.take_along_axis(gains, rows, axis=1)
        E, Y = E[each_one, rows], Y[each_one, rows]
    kernels.mask_rows(R, learned)
    # mu_b = mu_0 + sum_t w_t (a_b/a_t) (x_t - mu_0): the weight of a row fades with every row after it.
    # The gains hold w_t/a_t, the share is a_b.
    means[slots] += backend.combine(share[:, None] * gains, E)
    # Lambda_b = (Lambda_0 - Z'Z)/a_b with R'Z = Y.
    backend.rank_update(block.matrices, slots, backend.solve(R, Y, learned), share)


def _surviving_components(block: Block, n: int, initial_precisions: Array) -> State:
    """The components that are alive at the end of the block, in order: the old ones, then those it created.

    `initial_precisions` are those of a component that the row of that place creates, (rows, D).
    """
    state, components = block.state, block.components
    alive = np.flatnonzero(components.alive[:n])
    # j >= slot all along: no component is overwritten before it has moved.
    for slot, j in enumerate(alive.tolist()):
        if j >= state.n_components:
            _place_new_component(block, j, slot, initial_precisions[components.created_at[j]])
        elif j != slot:
            state.means[slot] = state.means[j]
            block.matrices.move(j, slot)
    for array, values in zip(state[2:5], (components.log_dets, components.counts, components.ages), strict=True):
        array[: len(alive)] = values[alive]
    return state._replace(n_components=len(alive))


def _place_new_component(block: Block, j: int, slot: int, precision: Array) -> None:
    """Put component j, which the block has created, at its place in the state."""
    means = block.state.means
    which, slots = slice(j, j + 1), slice(slot, slot + 1)
    means[slot] = block.X[block.components.created_at[j]]
    block.matrices.place(slot, precision)
    if block.assigned.n_learned[j] > 0:
        E, Y = block.backend.project(_rows_of(block, which), means[slots], block.matrices, slots)
        _commit(block, Stack(which, E, Y), slots)


def _changed(block: Block, n: int) -> Mask:
    """Which components of the new state are not what they were at the same place before."""
    alive = np.flatnonzero(block.components.alive[:n])
    moved = alive != np.arange(len(alive))
    changed: Mask = moved | (block.assigned.n_learned[alive] > 0) | (alive >= block.state.n_components)
    return changed
