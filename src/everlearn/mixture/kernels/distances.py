"""Squared distances of eight rows at a time to Gaussians: one row in each lane of a SIMD register.

Row by row, a whitened deviation is a sum over few columns, which no register is filled by. Eight rows take about as
long as one does: an E-step of 1,600 rows and 50 components in 16 columns takes a quarter of the time
(benchmarks/mixture_speed.py, 50 groups).
"""

import numpy as np

from everlearn.linalg.compile import inner, loop
from everlearn.linalg.simd import minus, put, spread, take

LANES = 8


@inner
def transpose_eight(Z, start, X):
    """Rows start to start + 7 of Z into the columns of X, (D, 8); the last row stands for those beyond the end."""
    last = Z.shape[0] - 1
    for lane in range(LANES):
        row = Z[min(start + lane, last)]
        for i in range(Z.shape[1]):
            X[i, lane] = row[i]


@loop
def distances_of_eight(X, mean, factor, E, out, at):
    """|factor (x - mean)|^2 of the columns x of X, (D, 8), into the eight numbers of `out` from its number `at` on.

    `factor` is a lower triangle with zeros above; E, (D, 8), is room for the deviations. Four rows of the factor go
    together, so that a sum need not wait for the one before it.
    """
    D = mean.shape[0]
    for i in range(D):
        put(E, i * LANES, minus(take(X, i * LANES), 1.0, spread(mean[i])))
    total = spread(0.0)
    fours = D - D % 4
    for i in range(0, fours, 4):
        a, b, c, d = factor[i], factor[i + 1], factor[i + 2], factor[i + 3]
        p, q, r, s = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for j in range(i + 4):
            e = take(E, j * LANES)
            p, q, r, s = minus(p, a[j], e), minus(q, b[j], e), minus(r, c[j], e), minus(s, d[j], e)
        # `minus` of minus the sum: what is gathered is minus the distance.
        total = minus(minus(minus(minus(total, p, p), q, q), r, r), s, s)
    for i in range(fours, D):
        row, p = factor[i], spread(0.0)
        for j in range(i + 1):
            p = minus(p, row[j], take(E, j * LANES))
        total = minus(total, p, p)
    put(out, at, minus(spread(0.0), 1.0, total))
