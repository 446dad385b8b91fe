"""State, settings and information of the incremental mixture; every field with its shape.

K is the number of components, D that of columns, M the size of the reservoir, P that of the pending rows.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.mixture.kernels.parts import Background as Background
from everlearn.mixture.kernels.parts import Components as Components
from everlearn.mixture.kernels.parts import Fading as Fading
from everlearn.mixture.kernels.parts import Frame as Frame
from everlearn.mixture.kernels.parts import Reservoir as Reservoir
from everlearn.mixture.kernels.parts import Settings as Settings
from everlearn.mixture.kernels.parts import Shape as Shape
from everlearn.typing import Array as Array


class World(NamedTuple):
    """All rows together."""

    background: Background
    covariance: Annotated[Array, "D D"]  # of all rows
    typical: Annotated[Array, "D D"]  # covariance without gross outliers
    variance: Annotated[Array, "positive D"]  # trimmed variance of each column
    smooth: Annotated[NDArray[np.bool_], "bool D"]  # columns in which hardly a value occurs twice


class Pending(NamedTuple):
    """Rows that came since a search was due, in the units of the data."""

    rows: Annotated[Array, "gaps P D"]
    weights: Annotated[Array, "P"]
    size: int


class Model(NamedTuple):
    """Components and what they share: what a search finds, and rows then change."""

    components: Components
    shape: Shape
    world: World
    fine: float  # factor of the ridge on smooth columns
    known: int  # components that the last search found; those after them were created since


class State(NamedTuple):
    """The model at the row where the last search was due, or now if none is, and the rows since then.

    While a search is due, `model` and `reservoir` stay as they were when it became due: they are its input, and so the
    result is the same however its work is spread over the rows of the lag.
    """

    n: int  # rows behind model and reservoir
    frame: Frame | None  # None during warm-up, unless it was given
    model: Model | None  # None during warm-up
    searched: int  # row at which the last adopted search was due
    reservoir: Reservoir
    pending: Pending
