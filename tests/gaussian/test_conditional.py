"""Conditional mixtures: moments, quantiles, intervals, samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from everlearn.errors import InputError
from everlearn.gaussian import conditional
from everlearn.gaussian.conditional import ConditionalMixture
from everlearn.gaussian.mixture import Mixture, log_density

seeds = st.integers(0, 2**32 - 1)
forms = st.sampled_from(["shared", "diagonal", "own"])


def random_conditional(rng, n=5, K=3, T=2, form="shared"):
    A = rng.normal(size=(n, K, T, T + 1))
    S = A @ np.swapaxes(A, -1, -2) + 1e-3 * np.eye(T)
    covariances = {"shared": S[0], "diagonal": np.einsum("kii->ki", S[0]), "own": S}[form]
    return ConditionalMixture(rng.dirichlet(np.ones(K), n), rng.normal(0, 3, (n, K, T)), covariances)


def component(c, row, k):
    S = c.covariances[row, k] if c.covariances.ndim == 4 else c.covariances[k]
    return c.means[row, k], np.diag(S) if S.ndim == 1 else S


@given(seeds, forms)
def test_moments_by_total_expectation(seed, form):
    c = random_conditional(np.random.default_rng(seed), form=form)
    for row in range(5):
        parts = [component(c, row, k) for k in range(3)]
        mean = sum(w * m for w, (m, _) in zip(c.weights[row], parts, strict=True))
        second = sum(w * (S + np.outer(m, m)) for w, (m, S) in zip(c.weights[row], parts, strict=True))
        covariance = second - np.outer(mean, mean)
        np.testing.assert_allclose(conditional.mean(c)[row], mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(conditional.covariance(c)[row], covariance, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(conditional.std(c)[row], np.sqrt(np.diagonal(covariance)), rtol=1e-7)


@given(seeds, forms, st.floats(1e-6, 1 - 1e-6))
def test_quantile_inverts_the_distribution_function(seed, form, q):
    c = random_conditional(np.random.default_rng(seed), form=form)
    y = conditional.quantile(c, q)
    np.testing.assert_allclose(conditional.cdf(c, y), q, rtol=1e-9)


def test_quantile_against_a_root_finder():
    rng = np.random.default_rng(0)
    c = random_conditional(rng, n=20, K=4, T=1)
    y = conditional.quantile(c, 0.83)
    sd = np.sqrt(c.covariances[:, 0, 0])
    for row in range(20):
        root = brentq(lambda v, r=row: c.weights[r] @ norm.cdf((v - c.means[r, :, 0]) / sd) - 0.83, -50, 50, xtol=1e-13)
        assert y[row, 0] == pytest.approx(root, abs=1e-10)


@pytest.mark.parametrize("scale", [1e-130, 1.0, 1e140])
@pytest.mark.parametrize("q", [1e-12, 0.05, 0.5, 0.9, 1 - 1e-9])
def test_quantile_of_steps_and_plateaus(scale, q):
    spikes = np.array([[[0.0], [1.0], [1e6]]]) * scale
    narrow = np.array([1e-20, 1e-6, 1e3])[:, None, None] ** 2 * scale * scale
    c = ConditionalMixture(np.array([[0.4, 0.3, 0.3]]), spikes, narrow)
    y = conditional.quantile(c, q)[0, 0]
    step = 1e-13 * max(abs(y), scale)
    below, above = (conditional.cdf(c, np.array([[y + d]]))[0, 0] for d in (-step, step))
    assert below <= q <= above


def test_a_component_without_weight_does_not_bound_the_quantile():
    c = ConditionalMixture(np.array([[1.0, 0.0]]), np.array([[[0.0], [1e300]]]), np.ones((2, 1, 1)))
    assert conditional.quantile(c, 0.975)[0, 0] == pytest.approx(norm.ppf(0.975))


def test_intervals_cover_what_they_say():
    rng = np.random.default_rng(1)
    c = random_conditional(rng, n=4, form="own")
    draws = conditional.sample(c, 50_000, rng)
    low, high = conditional.interval(c, 0.9)
    inside = (draws > low[:, None]) & (draws < high[:, None])
    np.testing.assert_allclose(inside.mean(axis=1), 0.9, atol=0.006)
    np.testing.assert_allclose((draws < low[:, None]).mean(axis=1), 0.05, atol=0.005)


@pytest.mark.parametrize("form", ["shared", "diagonal", "own"])
def test_samples_have_the_moments(form):
    rng = np.random.default_rng(2)
    c = random_conditional(rng, n=3, form=form)
    draws = conditional.sample(c, 100_000, rng)
    assert draws.shape == (3, 100_000, 2)
    np.testing.assert_allclose(draws.mean(axis=1), conditional.mean(c), atol=0.06)
    for row in range(3):
        np.testing.assert_allclose(np.cov(draws[row].T), conditional.covariance(c)[row], rtol=0.05, atol=0.1)


@pytest.mark.parametrize("form", ["shared", "diagonal", "own"])
def test_density_integrates_to_one(form):
    c = random_conditional(np.random.default_rng(3), n=2, form=form)
    c = ConditionalMixture(
        c.weights, c.means[..., :1], c.covariances[..., :1, :1] if form != "diagonal" else c.covariances[:, :1]
    )
    grid = np.linspace(-30, 30, 1501)
    total = sum(np.exp(conditional.log_density(c, np.full((2, 1), y))) for y in grid) * (grid[1] - grid[0])
    np.testing.assert_allclose(total, 1, rtol=1e-6)


@pytest.mark.parametrize("q", [0.0, 1.0, -1, np.nan])
def test_impossible_probabilities_are_refused(q):
    c = random_conditional(np.random.default_rng(4))
    with pytest.raises(InputError, match="q="):
        conditional.quantile(c, q)
    with pytest.raises(InputError, match="coverage="):
        conditional.interval(c, q)


def test_log_sum_exp_of_nothing_possible():
    values = np.array([[-np.inf, -np.inf], [0.0, -np.inf], [1e300, 0.0]])
    np.testing.assert_array_equal(conditional.log_sum_exp(values), [-np.inf, 0.0, 1e300])


@pytest.mark.parametrize("noise", [1e-4, 1e-6, 1e-7])
def test_nearly_equal_columns_lose_no_digits(noise):
    """x and x + noise: the marginal of either is standard normal, and each tells the other to within the noise."""
    S = np.array([[[1.0, 1.0], [1.0, 1.0 + noise**2]]])
    f = Mixture(np.ones(1), np.zeros((1, 2)), S)
    X = np.array([[1.3, np.nan], [np.nan, 1.3]])
    wanted = norm(0, np.sqrt([1.0, 1.0 + noise**2])).logpdf(1.3)
    np.testing.assert_allclose(log_density(X, f), wanted, rtol=1e-12)
    c = conditional.condition(f, [0], X[:1, :1], [1])
    assert conditional.mean(c)[0, 0] == pytest.approx(1.3, rel=1e-12)
    assert conditional.std(c)[0, 0] == pytest.approx(noise, rel=1e-2)
