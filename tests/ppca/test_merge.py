"""Merging probabilistic PCAs: the pooled moments and the product of densities, against d x d matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.ppca.ask import covariance
from everlearn.ppca.merge import ScaledPPCA, merge
from everlearn.ppca.state import PPCA

seeds = st.integers(0, 10**6)


def random_model(seed, d=6, q=2, scale=1.0):
    rng = np.random.default_rng(seed)
    return PPCA(scale * rng.normal(size=d), scale * rng.normal(size=(d, q)), scale**2 * rng.uniform(0.1, 1.0))


def test_merging_matches_the_pooled_covariance():
    a, b = random_model(1), random_model(2)
    weights = np.array([3.0, 1.0])
    part = merge([ScaledPPCA(a, 1.0, np.ones(6, bool)), ScaledPPCA(b, 1.0, np.ones(6, bool))], weights, 5)
    w = weights / 4
    mu = w[0] * a.mu + w[1] * b.mu
    pooled = sum(share * (covariance(m) + np.outer(m.mu - mu, m.mu - mu)) for share, m in zip(w, (a, b), strict=True))
    np.testing.assert_allclose(part.model.mu, mu, rtol=1e-12)
    np.testing.assert_allclose(covariance(part.model), pooled, rtol=1e-9, atol=1e-10)


def test_merging_takes_means_from_the_parts_that_have_seen_a_column():
    a, b = random_model(1), random_model(2)
    unseen = np.array([False, *[True] * 5])
    part = merge([ScaledPPCA(a, 1.0, unseen), ScaledPPCA(b, 0.5, np.ones(6, bool))], [1.0, 1.0], 2)
    assert part.model.mu[0] == pytest.approx(b.mu[0] * 0.5)
    assert part.seen.all()


def random_ppca(rng, D, q):
    return PPCA(rng.normal(0, 2, D), rng.normal(size=(D, q)), float(rng.gamma(2.0) + 0.1))


def pooled(weights, models, q):
    whole = merge([ScaledPPCA(model, 1.0, np.ones(len(model.mu), dtype=bool)) for model in models], weights, q)
    assert whole.scale == 1.0
    return whole.model


@given(seeds, st.integers(2, 8), st.data())
def test_ppca_merge_is_closed_form_ppca_of_the_matched_covariance(seed, D, data):
    rng = np.random.default_rng(seed)
    ranks = data.draw(st.lists(st.integers(1, D), min_size=1, max_size=3))
    models, weights = [random_ppca(rng, D, q) for q in ranks], rng.gamma(1.0, size=len(ranks)) + 0.05
    q = data.draw(st.integers(1, D - 1))
    mean, S = naive.moment_match(weights, [m.mu for m in models], [covariance(m) for m in models])
    found = pooled(weights, models, q)
    W, sigma2 = naive.closed_form_ppca(S, q)
    assert found.W.shape == (D, q)
    np.testing.assert_allclose(found.mu, mean, rtol=1e-9, atol=1e-9)
    assert found.sigma2 == pytest.approx(sigma2, rel=1e-8)
    np.testing.assert_allclose(found.W @ found.W.T, W @ W.T, rtol=1e-6, atol=1e-7)
    assert np.trace(covariance(found)) == pytest.approx(np.trace(S), rel=1e-9)


@given(seeds, st.integers(2, 6))
def test_ppca_merge_with_room_for_all_axes_is_exact_and_commutative(seed, D):
    rng = np.random.default_rng(seed)
    models, weights = [random_ppca(rng, D, 1), random_ppca(rng, D, 1)], np.array([2.0, 1.0])
    _, S = naive.moment_match(weights, [m.mu for m in models], [covariance(m) for m in models])
    one = pooled(weights, models, max(D, 3))
    other = pooled(weights[::-1], models[::-1], max(D, 3))
    np.testing.assert_allclose(covariance(one), S, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(covariance(other), S, rtol=1e-8, atol=1e-8)
    alone = pooled(np.array([1.0]), models[:1], 1)
    np.testing.assert_allclose(covariance(alone), covariance(models[0]), rtol=1e-10)
    assert alone.W.shape == (D, 1)


@given(seeds, st.integers(2, 7))
def test_the_product_of_densities_adds_precisions(seed, D):
    rng = np.random.default_rng(seed)
    models, a = [random_ppca(rng, D, 1), random_ppca(rng, D, 1)], np.array([0.3, 0.7])
    parts = [ScaledPPCA(model, 1.0, np.ones(D, dtype=bool)) for model in models]
    found = merge(parts, a, D, "mode").model
    precisions = [np.linalg.inv(covariance(model)) for model in models]
    C = np.linalg.inv(a[0] * precisions[0] + a[1] * precisions[1])
    mean = C @ (a[0] * precisions[0] @ models[0].mu + a[1] * precisions[1] @ models[1].mu)
    np.testing.assert_allclose(covariance(found), C, rtol=1e-7, atol=1e-5 * np.trace(C))
    np.testing.assert_allclose(found.mu, mean, rtol=1e-8, atol=1e-8)
