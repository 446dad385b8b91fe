"""One Gaussian, or a stack of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import naive
from everlearn.errors import InputError
from everlearn.gaussian import gaussian
from everlearn.gaussian.gaussian import Gaussian

seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 6)


def random_gaussian(rng, D, shape=()):
    A = rng.normal(size=(*shape, D, D + 1))
    return Gaussian(rng.normal(0, 3, (*shape, D)), A @ np.swapaxes(A, -1, -2) + 1e-3 * np.eye(D))


def taken(g, i):
    return Gaussian(g.mean[i], g.covariance[i])


@given(seeds, dimensions)
def test_density_is_that_of_scipy(seed, D):
    rng = np.random.default_rng(seed)
    g, X = random_gaussian(rng, D), rng.normal(0, 3, (7, D))
    np.testing.assert_allclose(
        gaussian.log_density(X, g), multivariate_normal(g.mean, g.covariance).logpdf(X), rtol=1e-8, atol=1e-8
    )


@given(seeds, dimensions)
def test_density_moves_with_an_affine_map(seed, D):
    rng = np.random.default_rng(seed)
    g, x = random_gaussian(rng, D), rng.normal(0, 3, D)
    A, b = rng.normal(size=(D, D)) + 3 * np.eye(D), rng.normal(0, 5, D)
    moved = Gaussian(A @ g.mean + b, A @ g.covariance @ A.T)
    change = np.linalg.slogdet(A)[1]
    np.testing.assert_allclose(
        gaussian.log_density(A @ x + b, moved), gaussian.log_density(x, g) - change, rtol=1e-6, atol=1e-6
    )


@given(seeds, dimensions)
def test_divergence(seed, D):
    rng = np.random.default_rng(seed)
    f, g = random_gaussian(rng, D), random_gaussian(rng, D)
    np.testing.assert_allclose(gaussian.kl(f, g), naive.kl(*f, *g), rtol=1e-6, atol=1e-8)
    assert gaussian.kl(f, f) == pytest.approx(0, abs=1e-10)
    A = rng.normal(size=(D, D)) + 3 * np.eye(D)
    moved = [Gaussian(A @ h.mean, A @ h.covariance @ A.T) for h in (f, g)]
    np.testing.assert_allclose(gaussian.kl(*moved), gaussian.kl(f, g), rtol=1e-5, atol=1e-7)


def test_divergence_of_stacks_broadcasts():
    rng = np.random.default_rng(2)
    f, g = random_gaussian(rng, 3, (4, 1)), random_gaussian(rng, 3, (2,))
    expected = [[gaussian.kl(taken(taken(f, i), 0), taken(g, j)) for j in range(2)] for i in range(4)]
    np.testing.assert_allclose(gaussian.kl(f, g), expected, rtol=1e-10)


@given(seeds, dimensions, st.booleans())
def test_moment_matching(seed, D, diagonal):
    rng = np.random.default_rng(seed)
    g, weights = random_gaussian(rng, D, (4,)), rng.gamma(1.0, size=4) + 0.01
    covariances = np.diagonal(g.covariance, axis1=1, axis2=2) if diagonal else g.covariance
    mean, covariance = naive.moment_match(weights, g.mean, g.covariance)
    found = gaussian.moment_match(weights, g.mean, covariances)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.covariance, np.diag(covariance) if diagonal else covariance, rtol=1e-9, atol=1e-10)


def test_moment_matching_minimises_the_divergence():
    rng = np.random.default_rng(3)
    f, weights = random_gaussian(rng, 3, (4,)), np.array([1.0, 2.0, 3.0, 4.0])

    def cost(g):
        return float(weights @ gaussian.kl(f, g))

    best = gaussian.moment_match(weights, *f)
    for _ in range(20):
        A = 0.05 * rng.normal(size=(3, 3))
        shifted = Gaussian(best.mean + 0.05 * rng.normal(size=3), best.covariance)
        widened = Gaussian(best.mean, (np.eye(3) + A) @ best.covariance @ (np.eye(3) + A).T)
        assert min(cost(shifted), cost(widened)) > cost(best)


def test_moment_matching_of_a_stack():
    rng = np.random.default_rng(4)
    g, weights = random_gaussian(rng, 3, (5, 4)), rng.random((5, 4)) + 0.1
    together = gaussian.moment_match(weights, *g)
    for i in range(5):
        alone = gaussian.moment_match(weights[i], *taken(g, i))
        np.testing.assert_allclose(together.mean[i], alone.mean, rtol=1e-12)
        np.testing.assert_allclose(together.covariance[i], alone.covariance, rtol=1e-12)


@given(seeds, dimensions, st.booleans())
def test_columns_of_any_scale(seed, D, stacked):
    rng = np.random.default_rng(seed)
    g, X = random_gaussian(rng, D, (2,) if stacked else ()), rng.normal(0, 3, (3, 1, D) if stacked else (3, D))
    scale = np.ldexp(1.0, rng.integers(-500, 500, D))  # 1e-150 to 1e150
    scaled = Gaussian(g.mean * scale, g.covariance * scale * scale[:, None])
    np.testing.assert_allclose(
        gaussian.log_density(X * scale, scaled) + np.log(scale).sum(), gaussian.log_density(X, g), rtol=1e-9, atol=1e-9
    )
    L, used = gaussian.safe_cholesky(scaled.covariance)
    np.testing.assert_array_equal(used, scaled.covariance)
    np.testing.assert_allclose(L @ np.swapaxes(L, -1, -2) / used, 1, rtol=1e-6)


def test_a_singular_covariance_is_inflated_alone_and_relatively():
    v = np.array([1e-100, 1.0, 1e100])
    stack = np.stack([np.diag(v * v), np.outer(v, v)])
    L, used = gaussian.safe_cholesky(stack)
    np.testing.assert_array_equal(used[0], stack[0])
    np.testing.assert_array_equal(used[1] - np.diag(np.diagonal(used[1])), np.outer(v, v) - np.diag(v * v))
    growth = np.diagonal(used[1]) / (v * v) - 1
    assert np.all((growth > 0) & (growth < 1e-9))
    np.testing.assert_allclose((L @ np.swapaxes(L, 1, 2))[1] / used[1], 1, rtol=1e-12)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_variance_is_named(bad):
    with pytest.raises(InputError, match=f"variance {bad}"):
        gaussian.whiten(np.diag([1.0, bad]))
    with pytest.raises(InputError, match=f"variance {bad}"):
        gaussian.whiten(np.array([1.0, bad]), diagonal=True)


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(InputError, match="positive semi-definite"):
        gaussian.safe_cholesky(np.array([[1.0, 3.0], [3.0, 1.0]]))


def test_columns_by_mask_slice_or_number():
    assert gaussian.columns([True, False, True], 3).tolist() == [0, 2]
    assert gaussian.columns(slice(1, None), 3).tolist() == [1, 2]
    assert gaussian.columns(1, 3).tolist() == [1]
    with pytest.raises(IndexError):
        gaussian.columns([3], 3)


def test_small_matrices_are_whitened_like_large_ones(monkeypatch):
    rng = np.random.default_rng(3)
    covariances = random_gaussian(rng, 6, (4,)).covariance * np.array([1e-290, 1.0, 1e8, 1e290])[:, None, None]
    small = gaussian.whiten(covariances)
    monkeypatch.setattr(gaussian, "_SMALL", 0)
    large = gaussian.whiten(covariances)
    np.testing.assert_allclose(small.matrix, large.matrix, rtol=1e-9)
    np.testing.assert_allclose(small.log_det, large.log_det, rtol=1e-12)


def test_log_sum_exp_of_any_size():
    values = np.array([[-1e4, -1e4], [1e4, 1e4 - 800.0], [-np.inf, -np.inf], [0.0, -np.inf]])
    np.testing.assert_allclose(gaussian.log_sum_exp(values), [np.log(2) - 1e4, 1e4, -np.inf, 0.0])
