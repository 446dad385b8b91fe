"""Rows of low-rank Gaussians."""

import numpy as np

from everlearn.low_rank import learn


def one(rng, n, D, variances=(50.0, 20.0, 8.0), noise=1.0):
    """Rows of a Gaussian with a few directions above noise."""
    U = np.linalg.qr(rng.normal(size=(D, len(variances))))[0].T
    return (rng.normal(size=(n, len(variances))) * np.sqrt(variances)) @ U + np.sqrt(noise) * rng.normal(size=(n, D))


def several(rng, n, D, K=4):
    """Rows of K such Gaussians, one after the other."""
    return np.concatenate([one(rng, n // K, D) + rng.normal(size=D) for _ in range(K)])


def learned(X, settings, weights=None):
    """A state that has learned rows in one batch."""
    weights = np.ones(len(X)) if weights is None else weights
    with np.errstate(over="ignore"):  # of hashed row numbers, where kernels are not compiled
        return learn.learn(learn.init(X.shape[1], settings), X, weights, settings, learn.Progress())[0]


def dense(components, readout, j):
    """Covariance of component j as a matrix of all columns."""
    W = np.sqrt(readout.loading[j])[:, None] * components.directions[j]
    return W.T @ W + np.diag(1.0 / readout.inverse_psi[j])
