"""Squared Mahalanobis distances of one row to the components of a mixture, whole or with gaps."""

import numpy as np

from everlearn.kernels.jit import inner
from everlearn.kernels.linalg import cholesky_of_block, solve_lower, solve_lower_transposed, symmetric_product

LOG_2PI = np.log(2.0 * np.pi)


@inner
def count_observed(x):
    """Number of columns that are not NaN."""
    observed = 0
    for a in range(x.shape[0]):
        if x[a] == x[a]:
            observed += 1
    return observed


@inner
def observed_first(x, index):
    """Write the observed columns of x, then the missing ones, into index; returns how many are observed."""
    D = x.shape[0]
    observed = 0
    for a in range(D):
        if not np.isnan(x[a]):
            index[observed] = a
            observed += 1
    missing = observed
    for a in range(D):
        if np.isnan(x[a]):
            index[missing] = a
            missing += 1
    return observed


@inner
def complete_distance(x, j, means, precisions, E, G):
    """d^2 of a complete row to component j; fills e = x - mu and g = Lambda e."""
    for a in range(x.shape[0]):
        E[j, a] = x[a] - means[j, a]
    return symmetric_product(precisions[j], E[j], G[j])


@inner
def marginal_distance(x, mean, precision, index, observed, e, g, L, b):
    """d^2 and log|Lambda_mm| of a row with gaps.

    e_o = x_o - mu_o; the gaps take the conditional mean, e_m = -Lambda_mm^-1 Lambda_mo e_o, so that
    g = Lambda e vanishes there and d^2 = e_o' g_o is the distance in the marginal of the observed part.
    """
    D = x.shape[0]
    m = D - observed
    log_det = cholesky_of_block(precision, index, observed, L)
    for i in range(observed):
        e[index[i]] = x[index[i]] - mean[index[i]]
    for i in range(m):
        row = precision[index[observed + i]]
        value = 0.0
        for k in range(observed):
            value -= row[index[k]] * e[index[k]]
        b[i] = value
    solve_lower(L, m, b)
    solve_lower_transposed(L, m, b)
    for i in range(m):
        e[index[observed + i]] = b[i]
    symmetric_product(precision, e, g)
    d2 = 0.0
    for i in range(observed):
        d2 += e[index[i]] * g[index[i]]
    for i in range(observed, D):
        g[index[i]] = 0.0
    return d2, log_det


@inner
def log_height(count, log_det, observed):
    """Log joint density (weights not normalised) at the mean of a component."""
    return np.log(count) - 0.5 * (log_det + observed * LOG_2PI)


@inner
def least(values, n):
    """Smallest of the first n values: infinite when there are none, NaN when one of them is."""
    smallest = np.inf
    for j in range(n):
        if not values[j] >= smallest and smallest == smallest:
            smallest = values[j]
    return smallest


@inner
def measure(x, means, precisions, log_dets, counts, n, E, G, d2, log_joint):
    """Distances and log joint densities of a complete row to every component; returns the smallest distance."""
    for j in range(n):
        d2[j] = complete_distance(x, j, means, precisions, E, G)
        log_joint[j] = log_height(counts[j], log_dets[j], x.shape[0]) - 0.5 * d2[j]
    return least(d2, n)


@inner
def measure_with_gaps(x, index, observed, means, precisions, log_dets, counts, n, E, G, d2, log_joint, L, b):
    """Distances and log joint densities of a row with gaps to every component; returns the smallest distance."""
    for j in range(n):
        d2[j], gap_log_det = marginal_distance(x, means[j], precisions[j], index, observed, E[j], G[j], L, b)
        log_joint[j] = log_height(counts[j], log_dets[j] + gap_log_det, observed) - 0.5 * d2[j]
    return least(d2, n)
