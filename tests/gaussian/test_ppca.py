"""Probabilistic PCA against d x d matrices, SciPy and scikit-learn."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA

import naive
from everlearn.gaussian import ppca
from everlearn.gaussian.ppca import PPCA


def random_model(seed, d=6, q=2, scale=1.0):
    rng = np.random.default_rng(seed)
    return PPCA(scale * rng.normal(size=d), scale * rng.normal(size=(d, q)), scale**2 * rng.uniform(0.1, 1.0))


def rows_of(model, n, gaps=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = ppca.sample(model, n, rng)
    X[rng.random(X.shape) < gaps] = np.nan
    return X


sizes = st.tuples(st.integers(1, 8), st.integers(1, 4)).map(lambda pair: (max(pair), min(pair)))


@given(seed=st.integers(0, 10**6), size=sizes, gaps=st.sampled_from([0.0, 0.3, 0.8]))
def test_density_is_the_marginal_of_the_observed_cells(seed, size, gaps):
    model = random_model(seed, *size)
    X = rows_of(model, 5, gaps, seed)
    C = naive.ppca_covariance(model.W, model.sigma2)
    for x, value in zip(X, ppca.log_density(ppca.ready(model), X), strict=True):
        seen = ~np.isnan(x)
        expected = multivariate_normal(model.mu[seen], C[np.ix_(seen, seen)]).logpdf(x[seen]) if seen.any() else 0.0
        assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)


@given(seed=st.integers(0, 10**6), size=sizes)
def test_filled_gaps_are_the_conditional_mean_and_variance(seed, size):
    model = random_model(seed, *size)
    X = rows_of(model, 4, 0.5, seed)
    filled, variance = ppca.fill_with_variance(ppca.ready(model), X)
    np.testing.assert_allclose(ppca.fill(ppca.ready(model), X), filled, rtol=1e-14)
    for x, mean, spread in zip(X, filled, variance, strict=True):
        expected, _, covariance, _, _ = naive.ppca_posterior(x, model.mu, model.W, model.sigma2)
        np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(spread, np.where(np.isnan(x), np.diag(covariance), 0.0), rtol=1e-9, atol=1e-12)


def test_latent_posterior_mean():
    model = random_model(3)
    X = rows_of(model, 5)
    expected = [naive.ppca_posterior(x, model.mu, model.W, model.sigma2)[1] for x in X]
    np.testing.assert_allclose(ppca.latent(ppca.ready(model), X), expected, rtol=1e-10)


def test_precision_inverts_the_covariance():
    model = random_model(4, 7, 3)
    np.testing.assert_allclose(ppca.precision(ppca.ready(model)) @ ppca.covariance(model), np.eye(7), atol=1e-12)


def test_closed_form_equals_scikit_learns_pca():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 7)) + 0.3 * rng.normal(size=(80, 7)) + 5.0
    model = ppca.maximum_likelihood(X, 3)
    peer = PCA(3).fit(X)
    # scikit-learn divides by n - 1 where maximum likelihood divides by n.
    np.testing.assert_allclose(ppca.covariance(model), peer.get_covariance() * 79 / 80, rtol=1e-10)
    axes = ppca.axes(model)
    np.testing.assert_allclose(axes.components, peer.components_, atol=1e-10)
    np.testing.assert_allclose(axes.variances, peer.explained_variance_ * 79 / 80, rtol=1e-10)


@given(seed=st.integers(0, 10**6))
def test_nothing_near_the_closed_form_is_more_likely(seed):
    rng = np.random.default_rng(seed)
    X = rows_of(random_model(seed), 40, seed=seed)
    best = ppca.maximum_likelihood(X, 2)
    top = ppca.log_density(ppca.ready(best), X).sum()
    for _ in range(5):
        other = PPCA(
            best.mu + 0.01 * rng.normal(size=6),
            best.W + 0.01 * rng.normal(size=(6, 2)),
            best.sigma2 * np.exp(0.01 * rng.normal()),
        )
        assert ppca.log_density(ppca.ready(other), X).sum() <= top + 1e-9


def test_as_many_axes_as_columns_leave_the_noise_floor():
    X = np.random.default_rng(1).normal(size=(50, 3))
    model = ppca.maximum_likelihood(X, 3)
    assert 0 < model.sigma2 < 1e-5
    np.testing.assert_allclose(ppca.covariance(model), np.cov(X.T, bias=True), atol=1e-5)


@given(seed=st.integers(0, 10**6), size=sizes)
def test_fisher_information_equals_the_traces(seed, size):
    model = random_model(seed, *size)
    ready = ppca.ready(model)
    for fast, slow in (
        (ppca.fisher(ready), naive.ppca_fisher(model.W, model.sigma2)),
        (ppca.fisher(ready, body=True), naive.ppca_fisher_body(model.W, model.sigma2)),
    ):
        for a, b in zip(fast, slow, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.max(b))


def test_fisher_information_is_the_variance_of_the_score():
    model = random_model(7, 5, 2)
    n = 200_000
    Y = rows_of(model, n, seed=1) - model.mu
    P = np.linalg.inv(ppca.covariance(model))
    G = Y @ P
    scores = (
        G,
        np.einsum("ni,nj->nij", G, G @ model.W) - P @ model.W,
        0.5 * (np.sum(G**2, axis=1) - np.trace(P)),
    )
    for score, F in zip(scores, ppca.fisher(ppca.ready(model)), strict=True):
        squares = score**2
        error = squares.std(axis=0) / np.sqrt(n)
        assert np.all(np.abs(squares.mean(axis=0) - F) <= 5 * error)


def test_merging_matches_the_pooled_covariance():
    a, b = random_model(1), random_model(2)
    weights = np.array([3.0, 1.0])
    part = ppca.pool([ppca.Part(a, 1.0, np.ones(6, bool)), ppca.Part(b, 1.0, np.ones(6, bool))], weights, 5)
    w = weights / 4
    mu = w[0] * a.mu + w[1] * b.mu
    pooled = sum(
        share * (ppca.covariance(m) + np.outer(m.mu - mu, m.mu - mu)) for share, m in zip(w, (a, b), strict=True)
    )
    np.testing.assert_allclose(part.model.mu, mu, rtol=1e-12)
    np.testing.assert_allclose(ppca.covariance(part.model), pooled, rtol=1e-9, atol=1e-10)


def test_merging_takes_means_from_the_parts_that_have_seen_a_column():
    a, b = random_model(1), random_model(2)
    unseen = np.array([False, *[True] * 5])
    part = ppca.pool([ppca.Part(a, 1.0, unseen), ppca.Part(b, 0.5, np.ones(6, bool))], [1.0, 1.0], 2)
    assert part.model.mu[0] == pytest.approx(b.mu[0] * 0.5)
    assert part.seen.all()


def test_samples_have_the_models_moments():
    model = random_model(5, 4, 2)
    X = rows_of(model, 100_000)
    np.testing.assert_allclose(X.mean(axis=0), model.mu, atol=0.05)
    np.testing.assert_allclose(np.cov(X.T), ppca.covariance(model), atol=0.15)


def test_no_matrix_of_d_by_d_is_formed():
    d = 20_000
    rng = np.random.default_rng(0)
    model = PPCA(rng.normal(size=d), rng.normal(size=(d, 2)), 0.5)
    X = rows_of(model, 3, 0.1)
    tracemalloc.start()
    ready = ppca.ready(model)
    ppca.log_density(ready, X)
    ppca.fill_with_variance(ready, X)
    ppca.fisher(ready)
    ppca.axes(model)
    ppca.maximum_likelihood(np.nan_to_num(X), 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * d * 8
