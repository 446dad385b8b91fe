"""Log-density of rows under a frozen mixture, gaps included."""

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.dense import cholesky_of_block, solve_lower

LOG_2PI = np.log(2.0 * np.pi)


@inner
def log_sum(values, n):
    """log(sum(exp(values[:n])))."""
    top = -np.inf
    for k in range(n):
        top = max(top, values[k])
    total = 0.0
    for k in range(n):
        total += np.exp(values[k] - top)
    return top + np.log(total)


@inner
def complete_joint(density, k, z, e):
    """Log weight plus log-density of a row without gaps under component k."""
    D = z.shape[0]
    for i in range(D):
        e[i] = z[i] - density.means[k, i]
    total = 0.0
    for i in range(D):
        row, y = density.factors[k, i], 0.0
        for j in range(i + 1):
            y += row[j] * e[j]
        total += y * y
    return density.heights[k] - 0.5 * total


@inner
def partial_joint(density, k, z, seen, scratch):
    """The same for the columns `seen` of a row: the block of the covariance is factorised."""
    m, e = seen.shape[0], scratch.e
    log_det = cholesky_of_block(density.covariances[k], seen, 0, scratch.block)
    for i in range(m):
        e[i] = z[seen[i]] - density.means[k, seen[i]]
    solve_lower(scratch.block, m, e)
    total = 0.0
    for i in range(m):
        total += e[i] * e[i]
    return density.log_weights[k] - 0.5 * (m * LOG_2PI + log_det + total)


@kernel
def surprisal(x, density, scratch):
    """-log density of the observed part of a row, in standard units; a gap counts as much as a usual value does."""
    D, K = x.shape[0], density.heights.shape[0]
    z, index, m, gaps = scratch.z, scratch.places, 0, 0.0
    for j in range(D):
        z[j] = (x[j] - density.centre[j]) / density.scale[j]
        if np.isnan(z[j]):
            gaps += density.entropies[j]
        else:
            index[m] = j
            m += 1
    if K == 0 or m == 0:
        return np.nan
    for k in range(K):
        if m == D:
            scratch.joint[k] = complete_joint(density, k, z, scratch.e)
        else:
            scratch.joint[k] = partial_joint(density, k, z, index[:m], scratch)
    return gaps - log_sum(scratch.joint, K)
