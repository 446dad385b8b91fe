"""Squared distances of eight rows at a time to Gaussians: one row in each lane of a SIMD register.

Row by row, a whitened deviation is a sum over few columns, which no register is filled by. Eight rows take about as
long as one does: an E-step of 1,600 rows and 50 components in 16 columns takes a quarter of the time
(benchmarks/mixture_speed.py, 50 groups).
"""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.arrays import empty_matrix, empty_vector
from everlearn.linalg.compile import inlined, kernel
from everlearn.linalg.simd import larger, minus, put, spread, take

LANES = 8
# A component this many nats below the best of a row has a responsibility that is left out: its distance need not be
# known further.
NEGLIGIBLE = 14.0
# From so many components and columns on, most components are left after a third of the columns.
MANY, WIDE = 8, 24


class Room(NamedTuple):
    """Room for eight rows at a time."""

    X: np.ndarray  # (D, 8), the rows
    E: np.ndarray  # (D, 8), their deviations from a mean
    joints: np.ndarray  # (K, 8), log joints
    top: np.ndarray  # (8,), the largest of them so far
    above: np.ndarray  # (8,)
    main: np.ndarray  # (K,), whether a component had most of a row


@inlined
def transpose_eight(Z, start, X):
    """Rows start to start + 7 of Z into the columns of X, (D, 8); the last row stands for those beyond the end."""
    last = Z.shape[0] - 1
    for lane in range(LANES):
        row = Z[min(start + lane, last)]
        for i in range(Z.shape[1]):
            X[i, lane] = row[i]


@inlined
def distances_of_eight(means, factors, k, block):
    """Squared distances of the eight rows of a block to component k, into `block.distances`.

    A factor is a lower triangle with zeros above. Four of its rows go together, so that a sum need not wait for the one
    before it. What a lane holds does not depend on the others: rows are the same in any batch, to the last bit.
    """
    X, E, distances = block.X, block.E, block.distances
    D, last = means.shape[1], means.shape[1] // 4 * 4
    mean, factor = means[k], factors[k]
    for i in range(D):
        put(E, i * LANES, minus(take(X, i * LANES), 1.0, spread(mean[i])))
    total = spread(0.0)  # minus the distances
    for i in range(0, last, 4):
        a, b, c, d = factor[i], factor[i + 1], factor[i + 2], factor[i + 3]
        p, q, r, s = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for j in range(i + 4):
            e = take(E, j * LANES)
            p, q, r, s = minus(p, a[j], e), minus(q, b[j], e), minus(r, c[j], e), minus(s, d[j], e)
        total = minus(minus(minus(minus(total, p, p), q, q), r, r), s, s)
    for i in range(last, D):
        a, p = factor[i], spread(0.0)
        for j in range(i + 1):
            p = minus(p, a[j], take(E, j * LANES))
        total = minus(total, p, p)
    put(distances, k * LANES, minus(spread(0.0), 1.0, total))


@inlined
def joints_of_eight(rows, gaussians, R, first, far, room):
    """Log joints of eight rows with each component into `room.joints`; the best one in `top`.

    Those that are more than `far` nats below the best may be left as -inf.

    Where components are many, nearly all of them are far from all eight rows, and the first third of the columns shows
    it for a ninth of the price: those that had most of a row in R come first and say what the others are to reach.
    """
    K, D = gaussians.means.shape
    transpose_eight(rows.Z, first, room.X)
    put(room.top, 0, spread(-np.inf))
    screened = K >= MANY and D >= WIDE
    if screened:
        main_components(R, first, room.main)
    else:
        room.main[:] = True
    for turn in range(2 if screened else 1):
        add_joints(gaussians, turn == 0, far, room)


@inlined
def add_joints(gaussians, main, far, room):
    """Log joints of the eight rows of `room` with its main components, or with the others if they come near.

    A factor is a lower triangle with zeros above. Four of its rows go together, so that a sum need not wait for the one
    before it.
    """
    means, factors, heights, _ = gaussians
    X, E, joints, top, above, marked = room
    D, last = means.shape[1], means.shape[1] // 4 * 4
    check = -1 if main else D // 12 * 4 - 4
    for k in range(means.shape[0]):
        if marked[k] != main:
            continue
        mean, factor, near = means[k], factors[k], True
        for i in range(D):
            put(E, i * LANES, minus(take(X, i * LANES), 1.0, spread(mean[i])))
        total = spread(0.0)  # minus the distances
        for i in range(0, last, 4):
            a, b, c, d = factor[i], factor[i + 1], factor[i + 2], factor[i + 3]
            p, q, r, s = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
            for j in range(i + 4):
                e = take(E, j * LANES)
                p, q, r, s = minus(p, a[j], e), minus(q, b[j], e), minus(r, c[j], e), minus(s, d[j], e)
            total = minus(minus(minus(minus(total, p, p), q, q), r, r), s, s)
            if i == check:
                put(above, 0, minus(minus(spread(heights[k] + far), -0.5, total), 1.0, take(top, 0)))
                near = any_positive(above)
                if not near:
                    break
        if not near:
            put(joints, k * LANES, spread(-np.inf))
            continue
        for i in range(last, D):
            a, p = factor[i], spread(0.0)
            for j in range(i + 1):
                p = minus(p, a[j], take(E, j * LANES))
            total = minus(total, p, p)
        joint = minus(spread(heights[k]), -0.5, total)
        put(joints, k * LANES, joint)
        put(top, 0, larger(joint, take(top, 0)))


@inlined
def any_positive(eight):
    """Whether one of eight numbers is above zero."""
    n = 0
    for lane in range(LANES):
        n += eight[lane] > 0.0
    return n > 0


@inlined
def main_components(R, first, main):
    """Mark the components that have most of one of eight rows."""
    for k in range(R.shape[1]):
        main[k] = False
    for t in range(first, min(first + LANES, R.shape[0])):
        best = 0
        for k in range(1, R.shape[1]):
            if R[t, k] > R[t, best]:
                best = k
        main[best] = True


@kernel
def room_for(K, D):
    """Room for the joints of eight rows."""
    return Room(
        empty_matrix(D, LANES), empty_matrix(D, LANES), empty_matrix(K, LANES), empty_vector(LANES),
        empty_vector(LANES), np.empty(K, np.bool_),
    )  # fmt: skip
