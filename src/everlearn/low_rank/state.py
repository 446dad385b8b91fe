"""State, settings and information of the low-rank mixture; every field with its shape.

K is the number of components, D that of columns, P the rows of the warm-up.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg.backend import each
from everlearn.low_rank.kernels import rows as kernels
from everlearn.low_rank.kernels.parts import Components as Components
from everlearn.low_rank.kernels.parts import Frame as Frame
from everlearn.low_rank.kernels.parts import Model as Model
from everlearn.low_rank.kernels.parts import Readout as Readout
from everlearn.low_rank.kernels.parts import Reservoir as Reservoir
from everlearn.low_rank.kernels.parts import Room as Room
from everlearn.low_rank.kernels.parts import Rule as Rule
from everlearn.low_rank.kernels.parts import Waiting as Waiting
from everlearn.low_rank.kernels.shape import refresh
from everlearn.typing import Array as Array


class Pending(NamedTuple):
    """Rows of the warm-up, in the units of the data."""

    rows: Annotated[Array, "gaps P D"]
    weights: Annotated[Array, "P"]
    size: int


class State(NamedTuple):
    """All that a low-rank mixture has learned."""

    n: int  # rows learned, those of the warm-up included
    searched: int  # row at which the structure was last reconsidered
    prior_noise: float  # variance of a column, from the rows of the warm-up; 0 before
    frame: Frame | None  # None during warm-up, unless it was given
    model: Model | None  # None during warm-up
    pending: Pending


class Settings(NamedTuple):
    """Numbers that stay the same for the whole stream."""

    rank: int  # most directions of a component
    quota: int  # most rows that wait for a component
    warmup: int  # rows of the first search
    reservoir: int  # rows that searches work on; 0: none are kept
    room: int  # strange rows that are kept apart, at most
    fixed: int  # number of components asked for; 0: found
    most: int  # most components
    fading: float  # factor by which what was learned fades with each row
    interval: int  # rows between two searches, at most
    seed: int
    isotropic: bool = False  # whether the noise of a component is the same in all columns
    asks_whole: bool = False  # whether a search precedes a question only while no row that counts was turned away


class Info(NamedTuple):
    """What was seen while learning: of each row, before it was learned."""

    log_density: Array  # (n,), in the coordinates of the frame; NaN during warm-up
    z: Array  # (n,), how strange the row is: standard deviations of the cube root of its squared distance


# Standard deviations of the cube root beyond which a row goes to the room: one ordinary row in a thousand.
NOVELTY = 3.090232306167813
# Rows of calibration from which on the room takes rows.
CALIBRATED = 100.0


def rule_of(state: State, settings: Settings) -> Rule:
    """What the row kernels follow."""
    return Rule(state.prior_noise, settings.quota, settings.fading, NOVELTY, CALIBRATED, settings.seed)


def no_components(K: int, D: int, Q: int) -> Components:
    """K components that have learned nothing."""
    one, many = np.zeros(K), np.zeros((K, Q))
    return Components(
        one, one.copy(), one.copy(), np.zeros((K, D)), np.zeros((K, Q, D)), many, np.zeros(K, np.int64), one.copy(),
        np.zeros((K, D)), many.copy(), many.copy(), one.copy(), one.copy(),
    )  # fmt: skip


def nothing_waiting(K: int, D: int, settings: Settings) -> Waiting:
    """Empty waiting lists of K components."""
    Q, W = settings.rank, settings.quota
    return Waiting(np.zeros((K, W, D)), np.zeros((K, W)), np.zeros(K, np.int64), np.zeros((K, Q, Q)), np.zeros((K, D)))


def empty_reservoir(M: int, D: int) -> Reservoir:
    """A reservoir to which nothing was offered."""
    none = np.zeros(1, np.int64)
    return Reservoir(np.zeros((M, D), np.float32), np.zeros(M), np.zeros(M), none, np.array([-np.inf]), none.copy())


def empty_room(H: int, D: int) -> Room:
    """A room without rows."""
    return Room(np.zeros((H, D)), np.zeros(H), np.zeros(1, np.int64))


def model_of(components: Components, settings: Settings, reservoir: Reservoir) -> Model:
    """A model with nothing in its waiting lists and room, and no calibration yet."""
    K, D = components.mean.shape
    room = empty_room(settings.room, D)
    return Model(components, nothing_waiting(K, D, settings), room, np.zeros(3), reservoir)


def readout_of(components: Components, prior_noise: float, isotropic: bool = False) -> Readout:
    """What the sketches say, ready for matrix products; with `isotropic` noise or with that of each column."""
    K, Q, D = components.directions.shape
    out = Readout(
        np.zeros((K, Q + 1, D)), np.zeros((K, Q + 1)), np.zeros((K, D)), np.zeros(K), np.zeros((K, Q)),
        np.zeros(K, np.int64), np.zeros(K), isotropic,
    )  # fmt: skip
    each(lambda j: refresh(components, j, prior_noise, out), range(K), D)
    return out


def take(values: Components, which: NDArray[np.intp]) -> Components:
    """Some of the components, in arrays of their own."""
    return Components._make(np.ascontiguousarray(array[which]) for array in values)


def joined(parts: list[Components]) -> Components:
    """Components of several models side by side."""
    return Components._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def counted(c: Components, share: float) -> Components:
    """Components each of whose rows counts `share` times."""
    if share == 1.0:
        return c
    scaled = ("mass", "n", "borrowed", "scatter", "trace", "diagonal", "held", "expected", "residual", "held_rows")
    return c._replace(**{name: getattr(c, name) * share for name in scaled})


def squared_distances(Z: Array, readout: Readout, which: slice = slice(None)) -> Array:
    """Squared distances of rows without gaps to components, (n, K): two matrix products."""
    K = len(readout.log_det)
    start, stop, _ = which.indices(K)
    out = np.empty((len(Z), K))
    kernels.squared_distances(np.ascontiguousarray(Z), readout, start, stop, out)
    return out[:, start:stop]
