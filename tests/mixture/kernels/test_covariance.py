"""Covariances: means of an inverse-Wishart posterior, widened for the unknown mean; factors of any matrix."""

import numpy as np
import pytest
from scipy.stats import invwishart

from everlearn.mixture.kernels import covariance as kernels
from everlearn.mixture.kernels.em import Moments, gaussians_of
from mixture_toys import components, groups, shape_of

D, K = 3, 2


@pytest.fixture
def learned():
    Z, label = groups(np.random.default_rng(0), 40, D, K)
    return Z, np.eye(K)[label]


def expected(Z, shape):
    """Mean of the posterior of the covariance of rows, with 1/n of it more because their mean is estimated."""
    n, S = len(Z), np.cov(Z.T, ddof=0) * len(Z)
    prior = shape.tau * (shape.matrix + np.diag(shape.ridge))
    scale = prior + S + n * np.diag(shape.ridge)
    if shape.diagonal:
        return np.diag(np.diag(scale)) / (shape.tau + n - 1.0) * (1.0 + 1.0 / n)
    return invwishart(D + 1 + shape.tau + n - 1, scale).mean() * (1.0 + 1.0 / n)


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_covariance_is_the_mean_of_its_posterior(learned, diagonal):
    Z, R = learned
    shape = shape_of(D, diagonal=diagonal)
    c = components(Z, R, shape, room=4)
    c.scatter[:, 0, 1:] = np.nan  # what lies above the diagonal means nothing
    found = kernels.covariances_of(c, shape)
    assert len(found) == K
    for k in range(K):
        wanted = expected(Z[R[:, k] == 1.0], shape)
        np.testing.assert_allclose(found[k], wanted, rtol=1e-10)
        # The compiled ways give its factor.
        np.testing.assert_allclose(c.factors[k], np.linalg.inv(np.linalg.cholesky(wanted)), atol=1e-10)


def test_a_component_without_rows_has_the_common_shape():
    """tau C over tau - 1 rows fewer than none: the factor does not divide by what is negative."""
    factors = kernels.factors_of_counts(np.array([0.0, 0.5, 1.0, 4.0]), 2.0)
    np.testing.assert_allclose(factors, [2.0 / 2.0, 2.0 / 2.0, 2.0 / 2.0, 1.25 / 5.0])


def test_the_inverse_factor_of_a_matrix_and_its_determinant():
    A = np.random.default_rng(1).normal(size=(5, 5))
    B = A @ A.T + 0.1 * np.eye(5)
    kept = B.copy()
    F, log_det = kernels.inverse_factor(B)
    np.testing.assert_array_equal(B, kept)
    np.testing.assert_allclose(F, np.linalg.inv(np.linalg.cholesky(B)), atol=1e-9)
    assert log_det == pytest.approx(np.linalg.slogdet(B)[1])


@pytest.mark.parametrize("D", [1, 7, 8, 9, 31, 33, 40, 65, 70])
def test_the_inverse_factor_where_registers_are_full_and_where_they_are_not(D):
    A = np.random.default_rng(D).normal(size=(2 * D + 1, D))
    B, out = A.T @ A, np.full((D, D), np.nan)
    log_det = kernels.invert_factor(B.copy(), out)
    np.testing.assert_allclose(out, np.linalg.inv(np.linalg.cholesky(B)), rtol=1e-9, atol=1e-12)
    assert log_det == pytest.approx(np.linalg.slogdet(B)[1])
    assert kernels.log_determinant(B) == log_det


@pytest.mark.parametrize("units", [1.0, 1e-9, 1e9])
def test_a_singular_matrix_has_its_variances_inflated_in_any_unit(units):
    v = np.array([1.0, -2.0 * units, 0.5])
    B = np.outer(v, v)
    F, log_det = kernels.inverse_factor(B)
    inside = np.linalg.inv(F)
    near = inside @ inside.T / np.outer(np.abs(v), np.abs(v))
    np.testing.assert_allclose(near, B / np.outer(np.abs(v), np.abs(v)), atol=1e-8)
    assert np.isfinite(log_det)
    # The compiled way does the same.
    shape = shape_of(3, tau=1.0, ridge=0.0)._replace(matrix=B)
    one = Moments(np.ones(1), np.zeros((1, 3)), np.zeros((1, 3, 3)))
    found = gaussians_of(one, shape)
    assert found.log_dets[0] == pytest.approx(log_det, abs=1e-6)
    np.testing.assert_allclose(np.tril(found.factors[0]) * np.sqrt(2.0), F, rtol=1e-6)
