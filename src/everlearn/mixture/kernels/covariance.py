"""The covariance of a component from its scatter and the shape that all components share."""

import numpy as np

from everlearn.linalg.compile import inlined, kernel
from everlearn.linalg.dense import whiten_one

LOG_2PI = np.log(2.0 * np.pi)


@inlined
def covariance_factor(count, tau):
    """Sigma over B = tau C + S + (c + tau) ridge: posterior mean of the covariance, widened for the unknown mean."""
    return (1.0 + 1.0 / max(count, 1.0)) / (tau + max(count - 1.0, 0.0))


@inlined
def posterior_scatter(count, scatter, shape, out):
    """B = tau C + S + (c + tau) diag(ridge) into `out`, from the lower triangle of S, or from its diagonal."""
    for i in range(out.shape[0]):
        for j in range(i + 1):
            off = shape.diagonal and j < i
            out[i, j] = 0.0 if off else shape.tau * shape.matrix[i, j] + scatter[i, j]
            out[j, i] = out[i, j]
        out[i, i] += (count + shape.tau) * shape.ridge[i]


@kernel
def invert_factor(B, out):
    """Inverse of the lower Cholesky factor of B into `out`; returns log|B|.

    A matrix that is not definite to rounding has its variances inflated step by step until it is, in place.
    """
    D = B.shape[0]
    L, U = np.empty((D, D)), np.empty((D, D))
    log_det = whiten_one(B, L, U)
    inflation = 1e-13
    while not np.isfinite(log_det) and inflation < 1.0:
        for i in range(D):
            B[i, i] *= 1.0 + inflation
        log_det = whiten_one(B, L, U)
        inflation *= 10.0
    for i in range(D):
        for j in range(D):
            out[i, j] = U[j, i]
    return log_det


@kernel
def covariances_of(components, shape):
    """Covariances of all components, (K, D, D), after a refresh."""
    K, D = components.size[0], components.means.shape[1]
    out = np.empty((K, D, D))
    for k in range(K):
        count = components.counts[k]
        posterior_scatter(count, components.scatter[k], shape, out[k])
        scale = covariance_factor(count, shape.tau)
        for i in range(D):
            for j in range(D):
                out[k, i, j] *= scale
    return out
