"""Passes over all cells of a batch: is it valid, how wide are its columns, the same in other units."""

import numpy as np

from everlearn.linalg.compile import inner, kernel


@inner
def count_observed(x):
    """Number of columns that are not NaN."""
    observed = 0
    for a in range(x.shape[0]):
        if x[a] == x[a]:
            observed += 1
    return observed


@kernel
def first_invalid(X, allow_nan):
    """Flat index of the first infinite (or, unless allowed, NaN) cell of X, -1 when there is none."""
    n, D = X.shape
    for i in range(n):
        invalid = 0
        # Counted without a branch, so that the loop vectorises; only a row in which something is found is searched.
        for j in range(D):
            invalid += np.isinf(X[i, j]) | (np.isnan(X[i, j]) & (not allow_nan))
        if invalid > 0:
            for j in range(D):
                if np.isinf(X[i, j]) or (np.isnan(X[i, j]) and not allow_nan):
                    return i * D + j
    return -1


@kernel
def has_gaps(X):
    """Whether some cell is NaN."""
    for t in range(X.shape[0]):
        if count_observed(X[t]) < X.shape[1]:
            return True
    return False


@kernel
def rescale(X, inverse_scale, limit, out):
    """X times the inverse scale of each column, kept within +-limit; returns whether some cell is NaN."""
    gaps = 0
    for t in range(X.shape[0]):
        x, row = X[t], out[t]
        for a in range(x.shape[0]):
            value = x[a] * inverse_scale[a]
            # Comparisons with NaN are false: it passes through both.
            value = limit if value > limit else value
            row[a] = -limit if value < -limit else value
            gaps += np.isnan(value)
    return gaps > 0


@kernel
def column_sizes(X):
    """Number of observed cells in each column, and the largest of their absolute values."""
    D = X.shape[1]
    counts, sizes = np.zeros(D), np.zeros(D)
    for t in range(X.shape[0]):
        x = X[t]
        for a in range(D):
            counts[a] += 0.0 if np.isnan(x[a]) else 1.0
            sizes[a] = abs(x[a]) if abs(x[a]) > sizes[a] else sizes[a]
    return counts, sizes


@kernel
def column_sums(X, inverse_unit):
    """Sum of each column, in units of its own."""
    D = X.shape[1]
    sums = np.zeros(D)
    for t in range(X.shape[0]):
        x = X[t]
        for a in range(D):
            sums[a] += 0.0 if np.isnan(x[a]) else x[a] * inverse_unit[a]
    return sums


@kernel
def column_squares(X, inverse_unit, centre):
    """Sum of the squared deviations of each column from a centre, in units of its own."""
    D = X.shape[1]
    squares = np.zeros(D)
    for t in range(X.shape[0]):
        x = X[t]
        for a in range(D):
            # About a mean that is known already: the sum of squares less the squared
            # sum would cancel for columns far from zero.
            deviation = x[a] * inverse_unit[a] - centre[a]
            squares[a] += 0.0 if np.isnan(deviation) else deviation * deviation
    return squares


@kernel
def subtract_observed(X, values, gaps, out):
    """out_t -= sum of the values of the columns that row t observes; `gaps` is whether cells may be NaN.

    A density in scaled columns becomes one in the units of the data by subtracting their log-scales.
    """
    whole = 0.0
    for a in range(X.shape[1]):
        whole += values[a]
    for t in range(X.shape[0]):
        share = whole
        if gaps:
            share = 0.0
            for a in range(X.shape[1]):
                share += 0.0 if np.isnan(X[t, a]) else values[a]
        out[t] -= share
