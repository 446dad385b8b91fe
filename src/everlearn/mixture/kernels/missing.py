"""Rows with gaps: marginal densities, conditional moments, draws, and expectation-maximisation."""

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import cholesky_of_block, solve_lower
from everlearn.mixture.kernels.covariance import LOG_2PI, covariance_factor, posterior_scatter


@kernel
def condition(x, mean, covariance, filled, rest):
    """Log-density of the observed part of x under a Gaussian, and its squared distance.

    `filled` becomes x with the conditional mean in its gaps, `rest` the conditional covariance of the gaps (zero
    elsewhere). With o the observed and u the other columns, ``E[u | o] = mu_u + Sigma_uo Sigma_oo^-1 (x_o - mu_o)``.
    """
    seen, gaps = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    g, h = len(seen), len(gaps)
    L, y = np.empty((g, g)), np.empty(g)
    log_det = cholesky_of_block(covariance, seen, 0, L)
    for i in range(g):
        y[i] = x[seen[i]] - mean[seen[i]]
        filled[seen[i]] = x[seen[i]]
    solve_lower(L, g, y)
    d2 = np.sum(y * y)
    T = np.empty((h, g))
    for a in range(h):
        for i in range(g):
            T[a, i] = covariance[gaps[a], seen[i]]
        solve_lower(L, g, T[a])
        filled[gaps[a]] = mean[gaps[a]] + np.sum(T[a] * y)
    rest[:] = 0.0
    for a in range(h):
        for b in range(h):
            rest[gaps[a], gaps[b]] = covariance[gaps[a], gaps[b]] - np.sum(T[a] * T[b])
    return -0.5 * (g * LOG_2PI + log_det + d2), d2


@kernel
def fill_row(x, k, components, shape, filled, rest):
    """Log joint and squared distance of the observed part of x in component k, and its conditional moments.

    The component must have been refreshed.
    """
    D = x.shape[0]
    covariance = np.empty((D, D))
    count = components.counts[k]
    posterior_scatter(count, components.scatter[k], shape, covariance)
    covariance *= covariance_factor(count, shape.tau)
    log_density, d2 = condition(x, components.means[k], covariance, filled, rest)
    return np.log(components.mass[k]) + log_density, d2


@kernel
def fill_sample(X, mixture, uniforms, normals):
    """Fill the gaps of X by a draw from a mixture given the rest of each row, in place."""
    D, K = X.shape[1], len(mixture.weights)
    filled, rest, joint = np.empty((K, D)), np.empty((K, D, D)), np.empty(K)
    L, index = np.empty((D, D)), np.empty(D, np.int64)
    for t in range(len(X)):
        if not np.isnan(np.sum(X[t])):
            continue
        for k in range(K):
            log_density, _ = condition(X[t], mixture.means[k], mixture.covariances[k], filled[k], rest[k])
            joint[k] = np.log(mixture.weights[k]) + log_density
        joint[:] = np.exp(joint - np.max(joint))
        k = min(np.searchsorted(np.cumsum(joint), uniforms[t] * np.sum(joint)), K - 1)
        h = 0
        for i in range(D):
            if np.isnan(X[t, i]):
                index[h] = i
                rest[k, i, i] *= 1.0 + 1e-9
                h += 1
        log_det = cholesky_of_block(rest[k], index[:h], 0, L)
        for a in range(h):
            X[t, index[a]] = filled[k, index[a]]
            if np.isfinite(log_det):
                X[t, index[a]] += np.sum(L[a, : a + 1] * normals[t, : a + 1])


@kernel
def expect_gaps(Z, weights, mixture, sums, start, stop):
    """Add expected moments of rows with gaps to `sums`: counts, deviations from the means, and scatter about them.

    Returns the log-likelihood of the rows.
    """
    D, K = Z.shape[1], len(mixture.weights)
    filled, rest, joint = np.empty((K, D)), np.empty((K, D, D)), np.empty(K)
    value = 0.0
    for t in range(start, stop):
        for k in range(K):
            log_density, _ = condition(Z[t], mixture.means[k], mixture.covariances[k], filled[k], rest[k])
            joint[k] = np.log(mixture.weights[k]) + log_density
        top = np.max(joint)
        joint[:] = np.exp(joint - top)
        s = np.sum(joint)
        value += weights[t] * (top + np.log(s))
        for k in range(K):
            r = weights[t] * joint[k] / s
            if r < 1e-6:
                continue
            sums.counts[k] += r
            for i in range(D):
                e = filled[k, i] - mixture.means[k, i]
                sums.shifts[k, i] += r * e
                for j in range(D):
                    sums.scatters[k, i, j] += r * (e * (filled[k, j] - mixture.means[k, j]) + rest[k, i, j])
    return value
