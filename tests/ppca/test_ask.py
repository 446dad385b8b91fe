"""Probabilistic PCA against d x d matrices, SciPy and scikit-learn."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import naive
from everlearn.ppca import ask, keep, learn
from everlearn.ppca.state import PPCA, factor


def random_model(seed, d=6, q=2, scale=1.0):
    rng = np.random.default_rng(seed)
    return PPCA(scale * rng.normal(size=d), scale * rng.normal(size=(d, q)), scale**2 * rng.uniform(0.1, 1.0))


def rows_of(model, n, gaps=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = ask.sample(model, n, rng)
    X[rng.random(X.shape) < gaps] = np.nan
    return X


sizes = st.tuples(st.integers(1, 8), st.integers(1, 4)).map(lambda pair: (max(pair), min(pair)))


@given(seed=st.integers(0, 10**6), size=sizes, gaps=st.sampled_from([0.0, 0.3, 0.8]))
def test_density_is_the_marginal_of_the_observed_cells(seed, size, gaps):
    model = random_model(seed, *size)
    X = rows_of(model, 5, gaps, seed)
    C = naive.ppca_covariance(model.W, model.sigma2)
    for x, value in zip(X, ask.log_density(factor(model), X), strict=True):
        seen = ~np.isnan(x)
        expected = multivariate_normal(model.mu[seen], C[np.ix_(seen, seen)]).logpdf(x[seen]) if seen.any() else 0.0
        assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)


@given(seed=st.integers(0, 10**6), size=sizes)
def test_filled_gaps_are_the_conditional_mean_and_variance(seed, size):
    model = random_model(seed, *size)
    X = rows_of(model, 4, 0.5, seed)
    filled, variance = ask.fill_with_variance(factor(model), X)
    np.testing.assert_allclose(ask.fill(factor(model), X), filled, rtol=1e-14)
    for x, mean, spread in zip(X, filled, variance, strict=True):
        expected, _, covariance, _, _ = naive.ppca_posterior(x, model.mu, model.W, model.sigma2)
        np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(spread, np.where(np.isnan(x), np.diag(covariance), 0.0), rtol=1e-9, atol=1e-12)


def test_latent_posterior_mean():
    model = random_model(3)
    X = rows_of(model, 5)
    expected = [naive.ppca_posterior(x, model.mu, model.W, model.sigma2)[1] for x in X]
    np.testing.assert_allclose(ask.latent(factor(model), X), expected, rtol=1e-10)


def test_precision_inverts_the_covariance():
    model = random_model(4, 7, 3)
    np.testing.assert_allclose(ask.precision(factor(model)) @ ask.covariance(model), np.eye(7), atol=1e-12)


def test_samples_have_the_models_moments():
    model = random_model(5, 4, 2)
    X = rows_of(model, 100_000)
    np.testing.assert_allclose(X.mean(axis=0), model.mu, atol=0.05)
    np.testing.assert_allclose(np.cov(X.T), ask.covariance(model), atol=0.15)


def test_no_matrix_of_d_by_d_is_formed():
    d = 20_000
    rng = np.random.default_rng(0)
    model = PPCA(rng.normal(size=d), rng.normal(size=(d, 2)), 0.5)
    X = rows_of(model, 3, 0.1)
    tracemalloc.start()
    ready = factor(model)
    ask.log_density(ready, X)
    ask.fill_with_variance(ready, X)
    keep.fisher(ready)
    ask.axes(model)
    learn.maximum_likelihood(np.nan_to_num(X), 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * d * 8
