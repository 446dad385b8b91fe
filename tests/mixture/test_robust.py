"""What spoils a mixture elsewhere: outliers, heavy tails, ties, many columns, few components, gaps, little noise."""

import numpy as np
import pytest

from everlearn.mixture.estimator import IncrementalGaussianMixture


def is_sound(model, X):
    """Finite scores, weights that sum to one, and covariances that are positive definite."""
    assert np.isfinite(model.score_samples(X)).all()
    assert model.weights_.sum() == pytest.approx(1.0)
    np.linalg.cholesky(model.covariances_)
    return True


@pytest.mark.parametrize("at", [3, 150, 700])
def test_a_row_at_a_million_deviations(at):
    rng = np.random.default_rng(at)
    X, new = rng.normal(size=(900, 2)), rng.normal(size=(500, 2))
    clean = IncrementalGaussianMixture().fit(X).score(new)
    X[at] = [1e6, -1e6]
    model = IncrementalGaussianMixture()
    for part in np.split(X, 9):
        model.partial_fit(part)
    assert is_sound(model, X)
    assert model.n_components_ == 1
    assert model.score(new) > clean - 0.02


def test_heavy_tails():
    X = np.random.default_rng(0).standard_cauchy(size=(2000, 2))
    model = IncrementalGaussianMixture().fit(X[:1500])
    assert is_sound(model, X)
    # Independent Cauchy columns have an entropy of 2 log(4 pi) = 5.06 nats.
    assert model.score(X[1500:]) > -6.5


@pytest.mark.parametrize("kind", ["constant", "two values", "integers", "all alike"])
def test_ties(kind):
    rng = np.random.default_rng(0)
    column = {
        "constant": np.full(1200, 7.0),
        "two values": rng.integers(0, 2, 1200).astype(float),
        "integers": rng.poisson(20.0, 1200).astype(float),
        "all alike": np.full(1200, -3.0),
    }[kind]
    X = np.column_stack([column, np.full(1200, 2.0) if kind == "all alike" else rng.normal(size=1200)])
    model = IncrementalGaussianMixture().fit(X)
    assert is_sound(model, X)
    # The ridge bounds the density: 1e-3 of the variance in each column is at most 2 x 3.5 nats above a Gaussian.
    assert model.score_samples(X).max() < 10.0


def test_most_components():
    rng = np.random.default_rng(1)
    X = 20.0 * rng.normal(size=(12, 3))[rng.integers(12, size=2500)] + rng.normal(size=(2500, 3))
    model = IncrementalGaussianMixture(max_components=5)
    for part in np.split(X, 5):
        model.partial_fit(part)
        assert 1 <= model.n_components_ <= 5
    assert is_sound(model, X)


@pytest.mark.parametrize("D", [1, 2, 7, 25, 60])
def test_any_number_of_columns(D):
    rng = np.random.default_rng(D)
    label = rng.integers(2, size=400 + 8 * D)
    X = np.where(label[:, None] == 1, 12.0, 0.0) + rng.normal(size=(len(label), D))
    model = IncrementalGaussianMixture().fit(X)
    assert is_sound(model, X)
    assert model.n_components_ == 2
    agree = (model.predict(X) == label).mean()
    assert max(agree, 1.0 - agree) > 0.99


def test_groups_far_apart_with_half_of_the_cells_missing():
    rng = np.random.default_rng(5)
    X = np.where(rng.random((1500, 1)) < 0.5, 0.0, 30.0) + rng.normal(size=(1500, 3))
    X[rng.random(X.shape) < 0.5] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    model = IncrementalGaussianMixture().fit(X)
    assert model.n_components_ == 2
    assert model.score_samples([[0.0, 30.0, 0.0]]) < model.score_samples([[0.0, 0.0, 0.0]]) - 10.0


def test_noise_of_a_thousandth_of_a_columns_spread_is_found():
    rng = np.random.default_rng(2)
    x = rng.normal(size=4000)
    X = np.column_stack([x, 3.0 * x + 3e-3 * rng.normal(size=4000)])
    model = IncrementalGaussianMixture().fit(X)
    _, std = model.predict_columns(X[:200], target=1, return_std=True)
    np.testing.assert_allclose(np.median(std), 3e-3, rtol=0.1)


def test_groups_that_take_turns_are_found():
    """A search on a part of the rows must not take every second one: here that is a single group."""
    n = 2000
    X = np.random.default_rng(0).normal(size=(n, 4)) + 20.0 * (np.arange(n) % 2)[:, None]
    assert IncrementalGaussianMixture().fit(X).n_components_ == 2


@pytest.mark.slow
def test_groups_in_many_columns_are_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 40)) + 3.0 * rng.integers(2, size=(900, 1))
    assert IncrementalGaussianMixture().fit(X).n_components_ == 2
