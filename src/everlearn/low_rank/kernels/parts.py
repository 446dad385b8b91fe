"""Parts of the state that kernels work on, and the settings that they follow; every field with its shape.

K is the number of components, D that of columns, Q the most directions of a component, W the rows that wait for a
component at most, M the size of the reservoir, H that of the room.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.typing import Array

Counts = NDArray[np.int64]


class Frame(NamedTuple):
    """Coordinates in which the model works: z = (x - centre) * inverse, fixed when the warm-up ends."""

    centre: Annotated[Array, "D"]
    inverse: Annotated[Array, "positive D"]  # one over a power of two; the same for all columns unless units differ
    log_scale: Annotated[Array, "D"]  # -log(inverse)


class Components(NamedTuple):
    """Sketches of the components' scatter, as of their last folds.

    Mean, trace and diagonal of the scatter are exact; directions and the scatter along them lose what was cut.
    """

    mass: Annotated[Array, "nonnegative K"]  # rows that the component stands for, by weight: its mixture weight
    n: Annotated[Array, "nonnegative K"]  # rows behind the sketch, by weight
    borrowed: Annotated[Array, "nonnegative K"]  # rows of borrowed shape behind it, of a component opened by novelty
    mean: Annotated[Array, "K D"]
    directions: Annotated[Array, "K Q D"]  # orthonormal rows, the first `used` of them
    scatter: Annotated[Array, "nonnegative K Q"]  # along the directions, descending
    used: Annotated[Counts, "int64 nonnegative K"]
    trace: Annotated[Array, "nonnegative K"]  # of the whole scatter
    diagonal: Annotated[Array, "nonnegative K D"]  # of the whole scatter
    held: Annotated[Array, "nonnegative K Q"]  # energy along the directions of rows that they had not seen
    expected: Annotated[Array, "nonnegative K Q"]  # energy that was expected there
    residual: Annotated[Array, "nonnegative K"]  # energy of those rows off the directions
    held_rows: Annotated[Array, "nonnegative K"]  # weight of those rows


class Waiting(NamedTuple):
    """Rows of each component that are not folded in yet; gaps are filled, and their covariance kept beside."""

    rows: Annotated[Array, "K W D"]
    weights: Annotated[Array, "nonnegative K W"]
    size: Annotated[Counts, "int64 nonnegative K"]
    along: Annotated[Array, "K Q Q"]  # conditional covariance of the gaps, along the directions
    variance: Annotated[Array, "nonnegative K D"]  # conditional variance of the gaps in each column


class Room(NamedTuple):
    """Rows that are too strange to be learned by any component yet, the oldest first."""

    rows: Annotated[Array, "H D"]
    weights: Annotated[Array, "nonnegative H"]
    size: Annotated[Counts, "int64 nonnegative 1"]


class Reservoir(NamedTuple):
    """Priority sample of the rows (Duffield, Lund and Thorup, 2007), in the coordinates of the frame."""

    rows: Annotated[NDArray[np.float32], "float32 gaps M D"]
    log_weights: Annotated[Array, "M"]
    keys: Annotated[Array, "M"]  # logarithms of the priorities
    size: Annotated[Counts, "int64 nonnegative 1"]
    level: Annotated[Array, "any 1"]  # largest log-priority that was turned away; -inf while none was
    offered: Annotated[Counts, "int64 nonnegative 1"]


class Model(NamedTuple):
    """All that rows change."""

    components: Components
    waiting: Waiting
    room: Room
    calibration: Annotated[Array, "nonnegative 3"]  # rows, mean and variance of the cube roots of squared distances
    reservoir: Reservoir


class Readout(NamedTuple):
    """What a component's sketch says, ready for matrix products: made anew after each fold, never saved.

    Its covariance is ``W' W + diag(psi)`` with ``W = sqrt(loading) directions``, W of (rank, D).
    """

    B: Array  # (K, Q + 1, D): mean / psi, then L^-1 W / psi with L L' = I + (W / psi) W'
    offset: Array  # (K, Q + 1): products of the rows of B and the mean
    inverse_psi: Array  # (K, D)
    log_det: Array  # (K,)
    loading: Array  # (K, Q): variance along a direction above the noise
    rank: Counts  # (K,)
    noise: Array  # (K,): mean variance off the directions
    isotropic: bool  # whether psi is the mean noise in all columns


class Rule(NamedTuple):
    """Numbers that stay the same for the whole stream."""

    prior_noise: float  # s0, fixed when the warm-up ends
    quota: int  # most rows that wait for a component
    fading: float  # factor by which what was learned fades with each row
    novelty: float  # standard deviations of the cube root beyond which a row goes to the room
    calibrated: float  # rows of calibration from which on the room takes rows
    seed: int
