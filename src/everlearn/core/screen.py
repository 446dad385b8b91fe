"""Bounds on the distances of many rows to many components, from one matrix product in single precision.

d^2 = z' Lambda z - 2 (Lambda m)' z + m' Lambda m, with z = x - centre and m = mu - centre, is linear in the products
z_a z_b (a <= b) and in z: D^2 flops a row and component at the speed of float32 products. Since |Lambda_ab| <= r_a r_b
with r the roots of the diagonal, no sum of the terms' sizes exceeds q^2, q = sum r_a (|z_a| + |m_a|), and summing n of
them in any order errs by less than (n + 8) 2^-24 q^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.kernels import screen as kernels

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

# Products in float32 sum so many terms at most; their results are added in float64.
TERMS = 1024
UNIT = 2.0**-24
# Beyond this size of the terms float32 may overflow, and nothing is known.
LARGEST = 1e30


class Screen(NamedTuple):
    """Coefficients of the squared distances to each component, in float32 where they are multiplied."""

    centre: Array
    quadratic: Array32  # (K, D (D + 1)/2)
    linear: Array32  # (K, D)
    constant: Array  # (K,)
    root: Array  # (K, D)
    reach: Array  # (K,)


def empty(centre: Array, capacity: int) -> Screen:
    """A screen that has yet to be told of the components."""
    D = len(centre)
    return Screen(
        centre,
        np.empty((capacity, D * (D + 1) // 2), dtype=np.float32),
        np.empty((capacity, D), dtype=np.float32),
        np.empty(capacity),
        np.empty((capacity, D)),
        np.empty(capacity),
    )


def describe(screen: Screen, means: Array, precisions: Array, which: NDArray[np.intp]) -> None:
    """Bring the coefficients of some components up to date."""
    for j in which:
        screen.constant[j], screen.reach[j] = kernels.describe(
            precisions[j], means[j] - screen.centre, screen.quadratic[j], screen.linear[j], screen.root[j]
        )


def squared_distances(screen: Screen, X: Array, n: int) -> tuple[Array, Array]:
    """Squared distances of rows to the first n components, and bounds on their errors: two arrays (rows, n)."""
    Z = X - screen.centre
    Z32 = Z.astype(np.float32)
    d2 = screen.constant[:n] + Z32 @ screen.linear[:n].T
    features, pair = np.empty((len(X), TERMS), dtype=np.float32), (0, 0)
    total = screen.quadratic.shape[1]
    for f in range(0, total, TERMS):
        part = features[:, : min(TERMS, total - f)]
        pair = kernels.fill_features(Z32, *pair, part)
        d2 += part @ screen.quadratic[:n, f : f + part.shape[1]].T
    size = np.square(np.abs(Z) @ screen.root[:n].T + screen.reach[:n])
    terms = min(TERMS, max(total, Z.shape[1])) + 8
    return d2, np.where(size < LARGEST, terms * UNIT * size, np.inf)


def lower_bounds(screen: Screen, X: Array, n: int) -> Array:
    """Lower bounds on 1 + d^2 of rows to the first n components."""
    d2, error = squared_distances(screen, X, n)
    return 1.0 + np.fmax(d2 - error, 0.0)
