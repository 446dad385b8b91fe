"""The covariance of a component from its scatter and the shape that all components share."""

import numpy as np

from everlearn.linalg.arrays import empty_matrix
from everlearn.linalg.compile import inlined, kernel
from everlearn.linalg.dense import whiten_one, whiten_stack

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
    L, U = empty_matrix(D, D), empty_matrix(D, D)
    log_det = whiten_one(B, L, U)
    inflation = 1e-13
    # Shares of the variances, so that the units of the columns do not matter.
    while not np.isfinite(log_det) and inflation < 1.0:
        for i in range(D):
            B[i, i] *= 1.0 + inflation
        log_det = whiten_one(B, L, U)
        inflation *= 10.0
    for i in range(D):
        for j in range(D):
            out[i, j] = U[j, i]
    return log_det


# -- for Python: as a kernel of its own, each would be compiled for half a second -----------------------


def inverse_factor(B):
    """`invert_factor` of a matrix, which stays as it is: the inverse of its lower Cholesky factor, and log|B|."""
    B, inflation = B.copy(), 1e-13
    U, log_dets = whiten_stack(B[None])
    while not np.isfinite(log_dets[0]) and inflation < 1.0:
        np.fill_diagonal(B, B.diagonal() * (1.0 + inflation))
        U, log_dets = whiten_stack(B[None])
        inflation *= 10.0
    return np.ascontiguousarray(U[0].T), float(log_dets[0])


def factors_of_counts(counts, tau):
    """`covariance_factor` of many counts."""
    return (1.0 + 1.0 / np.maximum(counts, 1.0)) / (tau + np.maximum(counts - 1.0, 0.0))


def posterior_scatters(counts, scatters, shape):
    """`posterior_scatter` of many components."""
    lower = np.tril(scatters, -1)
    S = lower + lower.transpose(0, 2, 1) + np.eye(scatters.shape[1]) * np.diagonal(scatters, axis1=1, axis2=2)[:, None]
    B = shape.tau * shape.matrix + S + (counts + shape.tau)[:, None, None] * np.diag(shape.ridge)
    return B * np.eye(B.shape[1]) if shape.diagonal else B


def covariances_of(components, shape):
    """Covariances of all components, (K, D, D), after a refresh."""
    K = int(components.size[0])
    counts = components.counts[:K]
    scale = factors_of_counts(counts, shape.tau)
    return posterior_scatters(counts, components.scatter[:K], shape) * scale[:, None, None]
