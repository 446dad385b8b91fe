"""Checks that every batch passes, in one sweep over its cells."""

import numpy as np

from everlearn.kernels.jit import kernel


@kernel
def first_invalid(X, allow_nan):
    """Flat index of the first infinite (or, unless allowed, NaN) cell of X, -1 when there is none."""
    n, D = X.shape
    for i in range(n):
        for j in range(D):
            value = X[i, j]
            if np.isinf(value) or (np.isnan(value) and not allow_nan):
                return i * D + j
    return -1
