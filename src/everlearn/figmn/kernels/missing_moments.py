"""Expected moments of rows with gaps under a Gaussian: conditional means in the gaps, and their covariance."""

from typing import Any, NamedTuple

import numpy as np

from everlearn.figmn.kernels.missing import deviate, fill_missing, observed_first
from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import solve_lower, solve_lower_transposed


class Scratch(NamedTuple):
    """Room for the work on one row."""

    index: Any
    L: Any
    b: Any


@inner
def add_gap_covariance(index, observed, r, L, b, square):
    """Add r Lambda_mm^-1 to the block of the gaps, given the factor L of Lambda_mm."""
    m = index.shape[0] - observed
    for i in range(m):
        for k in range(m):
            b[k] = 0.0
        b[i] = r
        solve_lower(L, m, b)
        solve_lower_transposed(L, m, b)
        for k in range(m):
            square[index[observed + i], index[observed + k]] += b[k]


@kernel
def add_expected_moments(X, R, means, precisions, sums, squares):
    """Add r E[e] and r E[e e'] for each row, e its deviation from each mean, r its weights there, at least 1e-12."""
    n, D = X.shape
    index = np.empty(D, np.uintp)
    e, g, b = np.empty(D), np.empty(D), np.empty(D)
    L = np.empty((D, D))
    scratch = Scratch(index, L, b)
    for t in range(n):
        observed = observed_first(X[t], index)
        for j in range(R.shape[1]):
            r = R[t, j]
            if r < 1e-12:
                continue
            deviate(X[t], means[j], precisions[j], index, observed, e, g)
            fill_missing(precisions[j], observed, e, g, scratch)
            for a in range(D):
                sums[j, a] += r * e[a]
                for c in range(D):
                    squares[j, a, c] += r * e[a] * e[c]
            add_gap_covariance(index, observed, r, L, b, squares[j])
