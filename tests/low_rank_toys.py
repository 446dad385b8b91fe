"""Rows of low-rank Gaussians."""

import numpy as np


def one(rng, n, D, variances=(50.0, 20.0, 8.0), noise=1.0):
    """Rows of a Gaussian with a few directions above noise."""
    U = np.linalg.qr(rng.normal(size=(D, len(variances))))[0].T
    return (rng.normal(size=(n, len(variances))) * np.sqrt(variances)) @ U + np.sqrt(noise) * rng.normal(size=(n, D))


def several(rng, n, D, K=4):
    """Rows of K such Gaussians, one after the other."""
    return np.concatenate([one(rng, n // K, D) + rng.normal(size=D) for _ in range(K)])
