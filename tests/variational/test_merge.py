"""Laws of merging posteriors of loadings, mean and noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.variational.merge import merge, rescale
from everlearn.variational.state import Posterior


def some_posterior(rng, n=5, m=2, N=40.0, W=None, gaps=False):
    A = 0.2 * rng.standard_normal((m, m))
    M = (3.0 * rng.standard_normal((n, m)) if W is None else W) + 0.1 * rng.standard_normal((n, m))
    seen = N * rng.uniform(0.3, 1.0, n) if gaps else np.full(n, N)
    return Posterior(M, N * (np.eye(m) + A @ A.T), rng.standard_normal(n), N, 30.0, 33.0, seen)


def covariance(known):
    return known.M @ known.M.T + known.sigma2 * np.eye(len(known.M))


@given(st.integers(0, 10**6), st.booleans())
def test_merging_is_commutative(seed, gaps):
    rng = np.random.default_rng(seed)
    W = 3.0 * rng.standard_normal((5, 2))
    parts = [some_posterior(rng, N=N, W=W, gaps=gaps) for N in (40.0, 70.0, 25.0)]
    one = merge(parts, np.ones(3))
    other = merge(parts[::-1], np.ones(3))
    np.testing.assert_allclose(covariance(one), covariance(other), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.mu, other.mu, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.eigvalsh(one.K), np.linalg.eigvalsh(other.K), rtol=1e-6)


@given(st.integers(0, 10**6))
def test_latent_axes_are_turned_onto_each_other(seed):
    """A model and the same model with rotated axes know the same; together they know it twice."""
    rng = np.random.default_rng(seed)
    known = some_posterior(rng)
    R = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    turned = known._replace(M=known.M @ R, K=R.T @ known.K @ R)
    merged = merge([known, turned], np.ones(2), K0=1e-9)
    np.testing.assert_allclose(covariance(merged), covariance(known), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.linalg.eigvalsh(merged.K), 2 * np.linalg.eigvalsh(known.K), rtol=1e-6)
    assert merged.N == 2 * known.N
    assert merged.a == 2 * known.a


def test_the_prior_is_counted_once_and_differences_become_noise():
    known = some_posterior(np.random.default_rng(0))
    same = merge([known, known, known], np.ones(3), K0=2.0)
    np.testing.assert_allclose(same.K, 3 * known.K - 4.0 * np.eye(2))
    assert same.b > 3 * known.b  # loadings shrunk by the prior's three copies come back larger than each part's
    apart = merge([known, known._replace(mu=known.mu + 1.0)], np.ones(2))
    np.testing.assert_allclose(apart.mu, known.mu + 0.5)
    flat = merge([known, known], np.ones(2))
    assert apart.b - flat.b == pytest.approx(0.5 * 2 * known.N * 5 * 0.25, rel=1e-9)


def test_shares_multiply_what_a_part_knows():
    rng = np.random.default_rng(3)
    W = 3.0 * rng.standard_normal((5, 2))
    one, two = some_posterior(rng, W=W), some_posterior(rng, W=W)
    merged = merge([one, two], np.array([1.5, 0.5]))
    np.testing.assert_allclose(merged.mu, 0.75 * one.mu + 0.25 * two.mu)
    assert merged.N == pytest.approx(1.5 * one.N + 0.5 * two.N)


def test_a_column_that_a_part_never_saw_comes_from_the_other():
    rng = np.random.default_rng(4)
    W = 3.0 * rng.standard_normal((5, 2))
    one, two = some_posterior(rng, W=W), some_posterior(rng, W=W)
    blind = two._replace(
        M=np.where(np.arange(5)[:, None] == 4, 0.0, two.M), seen=np.where(np.arange(5) == 4, 0.0, 40.0)
    )
    merged = merge([one, blind], np.ones(2))
    assert merged.mu[4] == pytest.approx(one.mu[4])
    np.testing.assert_allclose(np.linalg.norm(merged.M[4]), np.linalg.norm(one.M[4]), rtol=1e-3)


@given(st.floats(1e-3, 1e3))
def test_rescaling_keeps_the_model(factor):
    known = some_posterior(np.random.default_rng(5))
    scaled = rescale(known, factor)
    np.testing.assert_allclose(covariance(scaled), factor**2 * covariance(known), rtol=1e-9)


@given(st.integers(0, 10**6))
def test_shares_that_add_up_to_one_give_the_geometric_mean(seed):
    """Mode-IMM: two models that know the same know together what each of them knows."""
    known = some_posterior(np.random.default_rng(seed))
    merged = merge([known, known], np.array([0.3, 0.7]))
    np.testing.assert_allclose(merged.K, known.K, rtol=1e-9)
    np.testing.assert_allclose(covariance(merged), covariance(known), rtol=1e-9)
    assert merged.N == pytest.approx(known.N)
    assert merged.b == pytest.approx(known.b)
