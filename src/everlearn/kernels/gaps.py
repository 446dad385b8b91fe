"""The incremental mixture on rows with gaps: the marginal of what is observed, and the EM answer to what is not."""

import numpy as np

from everlearn.kernels.distance import least, log_height
from everlearn.kernels.jit import inner
from everlearn.kernels.linalg import cholesky_of_block, solve_lower, solve_lower_transposed, symmetric_product


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
def measure_with_gaps(x, index, observed, means, precisions, log_dets, counts, n, E, G, d2, log_joint, L, b):
    """Distances and log joint densities of a row with gaps to every component; returns the smallest distance."""
    for j in range(n):
        d2[j], gap_log_det = marginal_distance(x, means[j], precisions[j], index, observed, E[j], G[j], L, b)
        log_joint[j] = log_height(counts[j], log_dets[j] + gap_log_det, observed) - 0.5 * d2[j]
    return least(d2, n)


@inner
def update_component_with_gaps(mean, precision, index, observed, e, g, d2, w, c, L, C, b):
    """The EM update from the observed part of a row.

    With Sigma_mm += w Lambda_mm^-1 for the gaps, only the observed block of the precision changes:
    Lambda_oo = (Lambda_oo - w C C' - k g g')/(1-w), with C = Lambda_om L^-T and k = c/(1 + c d^2), c as for a complete
    row. The marginal of the observed columns is updated as by a complete row, and the regression of the gaps on them
    stays as it is.
    """
    D = e.shape[0]
    m = D - observed
    stretch = 1.0 + c * d2
    if stretch <= 0.0:
        return np.nan
    cholesky_of_block(precision, index, observed, L)
    for i in range(observed):
        for k in range(m):
            b[k] = precision[index[i], index[observed + k]]
        solve_lower(L, m, b)
        for k in range(m):
            C[i, k] = b[k]
    for i in range(observed):
        for k in range(i + 1):
            value = c / stretch * (g[index[i]] * g[index[k]])
            for q in range(m):
                value += w * C[i, q] * C[k, q]
            value = (precision[index[i], index[k]] - value) / (1.0 - w)
            precision[index[i], index[k]] = value
            precision[index[k], index[i]] = value
    for a in range(D):
        mean[a] += w * e[a]
    return observed * np.log(1.0 - w) + np.log(stretch)
