"""Bounds on the distances of many rows to many components, from one matrix product in single precision.

d^2 = z' Lambda z - 2 (Lambda m)' z + m' Lambda m, with z = x - centre and m = mu - centre, is linear in the products
z_a z_b (a <= b) and in z: D^2 flops a row and component at the speed of float32 products. Since |Lambda_ab| <= r_a r_b
with r the roots of the diagonal, the sizes of the terms sum to no more than q^2, q = sum r_a (|z_a| + |m_a|), and
rounding n of them and their sum, in any order, errs by less than (n + 8) 2^-24 q^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.core import threads
from everlearn.core.device import LARGE
from everlearn.kernels import screen as kernels

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Mask = NDArray[np.bool_]

# With many columns the distances of so many rows, or of twice as many in long blocks, are one piece of work.
PIECE = 128
# Their components are described in so many parts.
PARTS = 8


class Screen(NamedTuple):
    """Coefficients of the squared distances to each component, in float32 where there are many."""

    centre: Array
    quadratic: Array32  # (capacity, D (D + 1)/2)
    linear: Array32  # (capacity, D)
    root: Array  # (capacity, D)
    constant: Array  # (capacity,)
    reach: Array  # (capacity,)


def empty(centre: Array, capacity: int) -> Screen:
    """A screen that has yet to be told of the components."""
    D = len(centre)
    return Screen(
        centre,
        np.empty((capacity, D * (D + 1) // 2), dtype=np.float32),
        np.empty((capacity, D), dtype=np.float32),
        np.empty((capacity, D)),
        np.empty(capacity),
        np.empty(capacity),
    )


def describe(screen: Screen, means: Array, precisions: Array, which: NDArray[np.intp]) -> None:
    """Bring the coefficients of some components up to date; of the precisions the upper triangles are enough."""
    parts = [which] if means.shape[1] < LARGE else np.array_split(which, min(len(which), PARTS) or 1)
    threads.each(lambda part: kernels.describe(precisions, means, part, *screen), parts)


def squared_distances(screen: Screen, X: Array, n: int) -> tuple[Array, Array]:
    """Squared distances of rows to the first n components, and bounds on their errors: two arrays (rows, n)."""
    b, D = X.shape
    d2, error = np.empty((b, n)), np.empty((b, n))

    def measure(start: int) -> None:
        part = slice(start, start + step)
        kernels.squared_distances(X[part], n, *screen, d2[part], error[part])

    step = b if D < LARGE else PIECE if b < 4 * PIECE else 2 * PIECE
    threads.each(measure, range(0, b, max(step, 1)))
    return d2, error


def lower_bounds(screen: Screen, X: Array, n: int) -> Array:
    """Lower bounds on 1 + d^2 of rows to the first n components."""
    d2, error = squared_distances(screen, X, n)
    with np.errstate(invalid="ignore"):
        return 1.0 + np.fmax(d2 - error, 0.0)


def near_pairs(screen: Screen, X: Array, weights: Array, heights: Array, counts: Array) -> tuple[Array, Mask]:
    """Lower bounds as above, and the pairs (row, component) that may matter while a block of rows is learned.

    `heights` are the components' log joint densities at their means.
    """
    d2, error = squared_distances(screen, X, len(counts))
    near = np.empty(d2.shape, dtype=bool)
    kernels.choose_near(d2, error, heights, counts, weights, near)
    return d2, near
