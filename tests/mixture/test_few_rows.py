"""Few rows a column: one Gaussian stays one and is estimated well, however its columns correlate."""

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from everlearn import IncrementalGaussianMixture


def independent(D, rng):
    return np.eye(D)


def random(D, rng):
    return rng.normal(size=(D, D)) / np.sqrt(D) + 0.3 * np.eye(D)


def autoregressive(D, rng):
    return np.linalg.cholesky(0.95 ** np.abs(np.subtract.outer(np.arange(D), np.arange(D)))).T


def factors(D, rng):
    return np.vstack([rng.normal(size=(5, D)), 0.5 * np.eye(D)])


def gaussian(root, n, D, seed):
    """Rows to learn, and others."""
    rng = np.random.default_rng(seed)
    A = root(D, rng)
    X = rng.normal(size=(n + 1000, len(A))) @ A
    return X[:n], X[n:]


@pytest.mark.parametrize("root", [independent, random, autoregressive, factors])
@pytest.mark.parametrize(("D", "n"), [(30, 200), (60, 60), (60, 200), (60, 400)])
def test_one_gaussian_stays_one(root, D, n):
    for seed in range(4):
        assert IncrementalGaussianMixture().fit(gaussian(root, n, D, seed)[0]).n_components_ == 1


@pytest.mark.parametrize("root", [independent, random, autoregressive, factors])
@pytest.mark.parametrize(("D", "n"), [(8, 200), (30, 200), (60, 200)])
def test_the_covariance_of_one_gaussian_is_no_worse_than_that_of_ledoit_and_wolf(root, D, n):
    """To a tenth of a nat for 20 columns: the two shrink to other targets."""
    gains = []
    for seed in range(4):
        X, held_out = gaussian(root, n, D, seed)
        gains.append(IncrementalGaussianMixture().fit(X).score(held_out) - LedoitWolf().fit(X).score(held_out))
    assert np.mean(gains) > -0.005 * D
