"""Parts of the state that kernels work on, and the settings that they follow; every field with its shape.

C is the number of components that there is room for, D that of columns, M the size of the reservoir, Q the number
of Gaussians along the axis of a component: none where rows are kept.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.typing import Array


class Frame(NamedTuple):
    """Coordinates in which the model works: z = (x - centre) * inverse, fixed when the warm-up ends."""

    centre: Annotated[Array, "D"]  # the median of each column
    inverse: Annotated[Array, "positive D"]  # one over a power of two near the trimmed standard deviation
    log_scale: Annotated[Array, "D"]  # -log(inverse)


class Components(NamedTuple):
    """Moments and frozen factors of the components; arrays have room for some that are created between searches.

    ``means`` and ``scatter`` are those of the last refresh plus, in ``scatter``, what came since about the same mean;
    `kernels.rows.refresh` takes ``shift`` into the mean.
    """

    size: Annotated[NDArray[np.int64], "int64 1"]  # K
    total: Annotated[Array, "1"]  # weight of all rows learned, those of the background included
    rows: Annotated[NDArray[np.int64], "int64 1"]  # rows learned since the search: they fade in steps
    mass: Annotated[Array, "C"]  # share of all rows, by weight
    counts: Annotated[Array, "C"]  # rows behind the moments, at most the mass
    fresh: Annotated[Array, "C"]  # rows since the last refresh
    means: Annotated[Array, "C D"]
    shift: Annotated[Array, "C D"]  # sum of deviations from the mean since the last refresh
    scatter: Annotated[Array, "C D D"]  # lower triangle
    factors: Annotated[Array, "C D D"]  # inverse Cholesky factor of the covariance: lower triangle
    heights: Annotated[Array, "C"]  # log(mass) - log|2 pi Sigma| / 2
    axes: Annotated[Array, "C A"]  # an axis of each component, in its whitened coordinates; A is D or 0
    along: Annotated[Array, "C Q 3"]  # count, mean and squares of Gaussians along the axis
    progress: Annotated[Array, "C 3"]  # evidence for more than one Gaussian, rows along this axis, axes left


class Shape(NamedTuple):
    """What all components share: the inverse-Wishart prior of their covariances."""

    matrix: Annotated[Array, "D D"]  # the common shape C
    ridge: Annotated[Array, "nonnegative D"]  # variance added to every covariance
    tau: float  # rows that the common shape counts for
    diagonal: bool = False  # whether covariances have no elements off their diagonal


class Background(NamedTuple):
    """The Gaussian of all rows together; made broad, it stands behind the components."""

    centre: Annotated[Array, "D"]
    factor: Annotated[Array, "D D"]  # inverse Cholesky factor of the covariance, with the ridge
    height: float  # -log|2 pi covariance| / 2
    rows: float = 0.5  # that it counts for; none where the components came with all that there is


class Reservoir(NamedTuple):
    """Priority sample of the rows (Duffield, Lund and Thorup, 2007), in the coordinates of the frame.

    A row of weight w has the priority w / u, with u uniform from its number; the rows of highest priority are kept, and
    stand for max(w, level) rows each. Without weights that is a uniform sample without replacement.
    """

    rows: Annotated[NDArray[np.float32], "float32 gaps M D"]
    log_weights: Annotated[Array, "M"]
    keys: Annotated[Array, "M"]  # logarithms of the priorities
    size: Annotated[NDArray[np.int64], "int64 1"]  # slots in use
    level: Annotated[Array, "any 1"]  # largest log-priority that was turned away; -inf while none was
    offered: Annotated[NDArray[np.int64], "int64 1"]  # rows that were offered


class Fading(NamedTuple):
    """What a forgetting factor means for rows, components and searches."""

    rate: float  # log-weight that each row has more than the one before it; 0: nothing is forgotten
    every: int  # components fade every so many rows,
    factor: float  # by this factor
    interval: int  # rows between two searches, at most


class Settings(NamedTuple):
    """Numbers that stay the same for the whole stream."""

    thresholds: Array  # (D + 1,), squared distance beyond which a row opens a component, by observed columns
    growth: float  # a factor is renewed when its component has grown by this share
    seed: int
    fixed: int  # number of components asked for; 0: found
    most: int  # most components
    warmup: int  # rows of the first search
    diagonal: bool  # whether covariances have no elements off their diagonal
    fading: Fading
    parts: int = 0  # Gaussians along the axis of each component; 0 where rows are kept
    stops: bool = False  # whether learning stops when there is no more room for components
