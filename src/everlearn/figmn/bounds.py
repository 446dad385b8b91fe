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

from everlearn.figmn.kernels import bounds as kernels
from everlearn.figmn.kernels.bounds import Coefficients
from everlearn.linalg import parallel as threads
from everlearn.linalg.backend import LARGE
from everlearn.typing import Array

Array32 = NDArray[np.float32]
Mask = NDArray[np.bool_]


class Bounds(NamedTuple):
    """The components of which distances are bounded: where they are, and how, unless there are too many columns."""

    centre: Array
    means: Array
    precisions: Array  # the upper triangles
    coefficients: Coefficients | None


def bounds_of(centre: Array, means: Array, precisions: Array, n: int) -> Bounds:
    """Bounds for the first n components in these arrays. They have to be told when these change; see `renew`."""
    capacity, D = means.shape
    if D >= LARGE:
        return Bounds(centre, means, precisions, None)
    coefficients = Coefficients(
        np.empty((capacity, D * (D + 1) // 2), dtype=np.float32),
        np.empty((capacity, D), dtype=np.float32),
        np.empty((capacity, D)),
        np.empty(capacity),
        np.empty(capacity),
    )
    bounds = Bounds(centre, means, precisions, coefficients)
    renew(bounds, np.arange(n))
    return bounds


def renew(bounds: Bounds, which: NDArray[np.intp]) -> None:
    """Bring the coefficients of some components up to date."""
    if bounds.coefficients is not None:
        kernels.describe(bounds.precisions, bounds.means, which, bounds.centre, bounds.coefficients)


def squared_distances(bounds: Bounds, X: Array, n: int) -> tuple[Array, Array]:
    """Squared distances of rows to the first n components, and bounds on their errors: two arrays (rows, n)."""
    if bounds.coefficients is None:
        return _one_by_one(bounds, X, n)
    d2, error = np.empty((len(X), n)), np.empty((len(X), n))
    kernels.squared_distances(X, n, bounds.centre, bounds.coefficients, d2, error)
    return d2, error


def _one_by_one(bounds: Bounds, X: Array, n: int) -> tuple[Array, Array]:
    """The same from D x D matrices: those of one component, in float32, are made when they are needed."""
    b = len(X)
    # Infinities of float32 are wanted: they give an infinite error bound, and their pairs are evaluated exactly.
    with np.errstate(over="ignore"):
        Z = (X - bounds.centre).astype(np.float32)
    d2, error = np.empty((n, b)), np.empty((n, b))

    def measure(j: int) -> None:
        kernels.squared_distances_of_one(Z, bounds.means[j], bounds.precisions[j], bounds.centre, d2[j], error[j])

    threads.each(measure, range(n))
    return d2.T.copy(), error.T.copy()


def lower_bounds(bounds: Bounds, X: Array, n: int) -> Array:
    """Lower bounds on 1 + d^2 of rows to the first n components."""
    d2, error = squared_distances(bounds, X, n)
    # Infinity less infinity is NaN; fmax turns it into 0, the bound that always holds.
    with np.errstate(invalid="ignore"):
        return 1.0 + np.fmax(d2 - error, 0.0)


def near_pairs(bounds: Bounds, X: Array, weights: Array, heights: Array, counts: Array) -> tuple[Array, Mask]:
    """Lower bounds as above, and the pairs (row, component) that may matter while a block of rows is learned.

    `heights` are the components' log joint densities at their means.
    """
    d2, error = squared_distances(bounds, X, len(counts))
    near = np.empty(d2.shape, dtype=bool)
    kernels.choose_near(d2, error, heights, counts, weights, near)
    return d2, near
