"""The coordinates in which a model works: each column divided by a power of two near its standard deviation.

Division by a power of two is exact, so a model of columns of any size, 1e-150 or 1e150, computes with numbers near
one and rounds as if the data had been given in those units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everlearn.linalg import column_scan as cells
from everlearn.linalg.chunked import sweep
from everlearn.typing import Array


class Frame(NamedTuple):
    """Scale of each column (a power of two), and in units of it the columns' variance and centre."""

    scale: Array
    variance: Array
    centre: Array


def frame_of_rows(X: Array) -> Frame:
    """Estimate the frame from rows, passing over NaN; a column that does not vary takes the largest spread."""
    std, mean = column_spread(X)
    return frame_of_spread(std, mean)


def frame_of_spread(std: Array, mean: Array | None = None) -> Frame:
    """Frame for columns of known standard deviation."""
    # A column that does not vary has no unit: it takes the largest, and 1 where none varies.
    std = np.where(std > 0.0, std, std.max(initial=0.0))
    std = np.where(std > 0.0, std, 1.0)
    scale = nearest_power_of_two(std)
    centre = np.zeros_like(scale) if mean is None else mean / scale
    return Frame(scale, (std / scale) ** 2, centre)


def nearest_power_of_two(values: Array) -> Array:
    """Power of two next to each positive value, in the logarithm."""
    # Within +-1000 the power and its inverse are normal numbers.
    return np.exp2(np.clip(np.round(np.log2(values)), -1000, 1000))


def column_spread(X: Array) -> tuple[Array, Array]:
    """Standard deviation and mean of each column over its observed cells; zero where nothing varies or is seen."""
    counts, sizes = zip(*sweep(lambda rows: cells.column_sizes(X[rows]), X), strict=True)
    n, size = np.maximum(np.sum(counts, axis=0), 1.0), np.max(sizes, axis=0)
    # In units of its largest value no sum of squares overflows.
    unit = nearest_power_of_two(np.where(size > 0.0, size, 1.0))
    mean = np.sum(sweep(lambda rows: cells.column_sums(X[rows], 1.0 / unit), X), axis=0) / n
    # A second pass about the mean: mean of squares less squared mean would cancel for columns far from zero.
    variance = np.sum(sweep(lambda rows: cells.column_squares(X[rows], 1.0 / unit, mean), X), axis=0) / n
    # What is left of a constant column is the rounding of its mean.
    rounding = (1e-14 * np.abs(mean)) ** 2
    std = np.sqrt(np.where(variance > rounding, variance, 0.0))
    return std * unit, mean * unit
