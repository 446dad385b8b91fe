"""Rows with gaps: marginal densities, conditional moments, draws, and expectation-maximisation.

Loops are written out: NumPy's functions would double the seconds that these kernels take to compile.
"""

import numpy as np

from everlearn.linalg.arrays import empty_indices, empty_matrix, empty_stack, empty_vector
from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import cholesky_of_block, divide_columns, dot, softmax, solve_lower
from everlearn.mixture.kernels.covariance import LOG_2PI, covariance_factor, posterior_scatter


@kernel
def condition(x, mean, covariance, filled, rest):
    """Log-density of the observed part of x under a Gaussian, and its squared distance.

    `filled` becomes x with the conditional mean in its gaps, `rest` the conditional covariance of the gaps (zero
    elsewhere). With o the observed and u the other columns, ``E[u | o] = mu_u + Sigma_uo Sigma_oo^-1 (x_o - mu_o)``.
    """
    D = len(x)
    seen, gaps = empty_indices(D), empty_indices(D)
    g = divide_columns(x, seen, gaps)
    h = D - g
    L, y = empty_matrix(g, g), empty_vector(g)
    log_det = cholesky_of_block(covariance, seen[:g], 0, L)
    for i in range(g):
        y[i] = x[seen[i]] - mean[seen[i]]
        filled[seen[i]] = x[seen[i]]
    solve_lower(L, g, y)
    d2 = dot(y, y, g)
    # T = Sigma_uo L'^-1: T y is the shift of the conditional mean, T T' what the observed columns explain.
    T = empty_matrix(h, g)
    for a in range(h):
        for i in range(g):
            T[a, i] = covariance[gaps[a], seen[i]]
        solve_lower(L, g, T[a])
        filled[gaps[a]] = mean[gaps[a]] + dot(T[a], y, g)
    for i in range(D):
        for j in range(D):
            rest[i, j] = 0.0
    for a in range(h):
        for b in range(h):
            rest[gaps[a], gaps[b]] = covariance[gaps[a], gaps[b]] - dot(T[a], T[b], g)
    return -0.5 * (g * LOG_2PI + log_det + d2), d2


@kernel
def fill_row(x, k, components, shape, filled, rest):
    """Log joint and squared distance of the observed part of x in component k, and its conditional moments.

    The component must have been refreshed.
    """
    D = x.shape[0]
    covariance = empty_matrix(D, D)
    count = components.counts[k]
    posterior_scatter(count, components.scatter[k], shape, covariance)
    factor = covariance_factor(count, shape.tau)
    for i in range(D):
        for j in range(D):
            covariance[i, j] *= factor
    log_density, d2 = condition(x, components.means[k], covariance, filled, rest)
    return np.log(components.mass[k]) + log_density, d2


@kernel
def fill_sample(X, mixture, uniforms, normals):
    """Fill the gaps of X by a draw from a mixture given the rest of each row, in place."""
    D, K = X.shape[1], len(mixture.weights)
    filled, rest, joint = empty_matrix(K, D), empty_stack(K, D, D), empty_vector(K)
    L, seen, gaps = empty_matrix(D, D), empty_indices(D), empty_indices(D)
    for t in range(len(X)):
        h = D - divide_columns(X[t], seen, gaps)
        if h == 0:
            continue
        for k in range(K):
            log_density, _ = condition(X[t], mixture.means[k], mixture.covariances[k], filled[k], rest[k])
            joint[k] = np.log(mixture.weights[k]) + log_density
        softmax(joint, K, joint)
        k, mass = 0, joint[0]
        # The component is drawn, too: draws from the likeliest one would leave out the spread between components.
        while mass < uniforms[t] and k < K - 1:
            k += 1
            mass += joint[k]
        for a in range(h):
            # A difference of matrices, singular where the observed columns determine a gap.
            rest[k, gaps[a], gaps[a]] *= 1.0 + 1e-9
        log_det = cholesky_of_block(rest[k], gaps[:h], 0, L)
        for a in range(h):
            X[t, gaps[a]] = filled[k, gaps[a]]
            if np.isfinite(log_det):
                X[t, gaps[a]] += dot(L[a], normals[t], a + 1)


@kernel
def expect_gaps(Z, weights, mixture, sums, start, stop):
    """Add expected moments of rows with gaps to `sums`: counts, deviations from the means, and scatter about them.

    Returns the log-likelihood of the rows. Most rows have no gap: these share one factor of each covariance, which
    takes a third of the time that a factor for every row does.
    """
    D, K = Z.shape[1], len(mixture.weights)
    filled, rest, joint = empty_matrix(K, D), empty_stack(K, D, D), empty_vector(K)
    seen, gaps, e = empty_indices(D), empty_indices(D), empty_vector(D)
    factors, log_dets = empty_stack(K, D, D), empty_vector(K)
    for i in range(D):
        seen[i] = i
    for k in range(K):
        log_dets[k] = cholesky_of_block(mixture.covariances[k], seen, 0, factors[k])
    value = 0.0
    for t in range(start, stop):
        complete = divide_columns(Z[t], seen, gaps) == D
        for k in range(K):
            if complete:
                for i in range(D):
                    e[i] = Z[t, i] - mixture.means[k, i]
                solve_lower(factors[k], D, e)
                log_density = -0.5 * (D * LOG_2PI + log_dets[k] + dot(e, e, D))
            else:
                log_density, _ = condition(Z[t], mixture.means[k], mixture.covariances[k], filled[k], rest[k])
            joint[k] = np.log(mixture.weights[k]) + log_density
        value += weights[t] * softmax(joint, K, joint)
        for k in range(K):
            r = weights[t] * joint[k]
            if r < 1e-6:
                continue
            sums.counts[k] += r
            for i in range(D):
                e[i] = (Z[t, i] if complete else filled[k, i]) - mixture.means[k, i]
                sums.shifts[k, i] += r * e[i]
            for i in range(D):
                for j in range(D):
                    # E[(x - mu)(x - mu)'] = deviation of the mean squared, plus the conditional covariance.
                    sums.scatters[k, i, j] += r * (e[i] * e[j] + (0.0 if complete else rest[k, i, j]))
    return value
