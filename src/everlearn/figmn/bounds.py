"""Bounds on the distances of many rows to many components, from matrix products in single precision.

d^2 = z' Lambda z - 2 (Lambda m)' z + m' Lambda m, with z = x - centre and m = mu - centre, is linear in the products
z_a z_b (a <= b) and in z: D^2 flops a row and component at the speed of float32 products. With few columns all
components are done in one product with these; with many, each by a product of the rows with its triangle V, in which
z' V z = z' Lambda z. Since |Lambda_ab| <= r_a r_b with r the roots of the diagonal, the sizes of the terms sum to no
more than q^2, q = sum r_a (|z_a| + |m_a|), and rounding n of them and their sum, in any order, errs by less than
(n + 8) 2^-24 q^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.figmn.cost_model import LARGE
from everlearn.figmn.kernels import bounds as kernels
from everlearn.linalg import parallel as threads

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Mask = NDArray[np.bool_]


class Coefficients(NamedTuple):
    """Of the squared distances to each component, in float32 where there are many."""

    quadratic: Array32  # (capacity, D (D + 1)/2)
    linear: Array32  # (capacity, D)
    root: Array  # (capacity, D)
    constant: Array  # (capacity,)
    reach: Array  # (capacity,)


class Screen(NamedTuple):
    """The components of which distances are bounded: where they are, and how, unless there are too many columns."""

    centre: Array
    means: Array
    precisions: Array  # the upper triangles
    coefficients: Coefficients | None


def screen_of(centre: Array, means: Array, precisions: Array, n: int) -> Screen:
    """A screen for the first n components in these arrays. It has to be told when they change; see `renew`."""
    capacity, D = means.shape
    if D >= LARGE:
        return Screen(centre, means, precisions, None)
    coefficients = Coefficients(
        np.empty((capacity, D * (D + 1) // 2), dtype=np.float32),
        np.empty((capacity, D), dtype=np.float32),
        np.empty((capacity, D)),
        np.empty(capacity),
        np.empty(capacity),
    )
    screen = Screen(centre, means, precisions, coefficients)
    renew(screen, np.arange(n))
    return screen


def renew(screen: Screen, which: NDArray[np.intp]) -> None:
    """Bring the coefficients of some components up to date."""
    if screen.coefficients is not None:
        kernels.describe(screen.precisions, screen.means, which, screen.centre, *screen.coefficients)


def squared_distances(screen: Screen, X: Array, n: int) -> tuple[Array, Array]:
    """Squared distances of rows to the first n components, and bounds on their errors: two arrays (rows, n)."""
    if screen.coefficients is None:
        return _one_by_one(screen, X, n)
    d2, error = np.empty((len(X), n)), np.empty((len(X), n))
    kernels.squared_distances(X, n, screen.centre, *screen.coefficients, d2, error)
    return d2, error


def _one_by_one(screen: Screen, X: Array, n: int) -> tuple[Array, Array]:
    """The same from D x D matrices: those of one component, in float32, are made when they are needed."""
    b = len(X)
    with np.errstate(over="ignore"):
        Z = (X - screen.centre).astype(np.float32)
    d2, error = np.empty((n, b)), np.empty((n, b))

    def measure(j: int) -> None:
        kernels.squared_distances_of_one(Z, screen.means[j], screen.precisions[j], screen.centre, d2[j], error[j])

    threads.each(measure, range(n))
    return d2.T.copy(), error.T.copy()


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
