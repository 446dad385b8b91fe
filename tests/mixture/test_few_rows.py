"""Few rows a column: one Gaussian stays one and is estimated well, however its columns correlate; groups are found."""

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


def groups(n, D, K, seed, apart=16.0):
    """Rows of groups of different covariances, with centres at least so many standard deviations apart."""
    rng = np.random.default_rng(seed)
    while True:
        centres = rng.normal(size=(K, D)) * apart / np.sqrt(2 * D)
        distance = np.linalg.norm(centres[:, None] - centres, axis=2) + 1e9 * np.eye(K)
        if distance.min() > 0.8 * apart:
            break
    label = np.arange(n) % K
    roots = [np.linalg.qr(rng.normal(size=(D, D)))[0] * rng.uniform(0.5, 1.2, D) for _ in range(K)]
    return np.array([centres[k] + rng.normal(size=D) @ roots[k] for k in label])


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


@pytest.mark.parametrize(("D", "n", "K"), [(30, 270, 3), (40, 360, 3), (60, 900, 3), (20, 200, 4)])
def test_groups_far_apart_are_found(D, n, K):
    for seed in range(4):
        assert IncrementalGaussianMixture().fit(groups(n, D, K, seed)).n_components_ == K


@pytest.mark.parametrize(("D", "n", "K"), [(60, 900, 3), (60, 2400, 4)])
def test_groups_of_one_covariance_share_it(D, n, K):
    """With a covariance of 1,890 numbers each, groups of 300 rows would not pay."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        centres = 16.0 / np.sqrt(2 * D) * rng.normal(size=(K, D))
        X = centres[np.arange(n) % K] + rng.normal(size=(n, D))
        assert IncrementalGaussianMixture().fit(X).n_components_ == K
