"""Many columns by matrix products: the same numbers as row by row."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import em, wide
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.fitting import UNMARKED
from everlearn.mixture.kernels.wide import background_of
from everlearn.mixture.state import Shape
from naive.gaussians import mahalanobis


@pytest.fixture(params=[(2, 3), (7, 2), (40, 2)])
def case(request):
    D, K = request.param
    rng = np.random.default_rng(D)
    Z = rng.normal(size=(120, D)) @ rng.normal(size=(D, D)) + 3.0 * rng.integers(K, size=(120, 1))
    world = world_of_rows(Z, np.ones(120), 1.0)
    weights = rng.uniform(0.5, 2.0, 120)
    rows = Rows(Z, weights, background_of(Z, world.background), weights.sum())
    shape = Shape(np.eye(D) + 0.3, np.full(D, 1e-3), 2.5)
    return rows, rng.dirichlet(np.full(K, 0.3), size=120), shape, world


def test_moments_and_gaussians(case):
    rows, R, shape, _ = case
    few, many = em.moments_of(rows, R), wide.moments_of(rows, R)
    for a, b in zip(few, many, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    for a, b in zip(em.gaussians_of(few, shape), wide.gaussians_of(few, shape), strict=True):
        np.testing.assert_allclose(np.tril(a) if a.ndim == 3 else a, b, rtol=1e-8, atol=1e-9)


def test_expectation(case):
    rows, R, shape, _ = case
    gaussians = em.gaussians_of(em.moments_of(rows, R), shape)
    found = []
    for steps, more in ((em, (UNMARKED,)), (wide, ())):
        S, joints = R.copy(), np.empty(120)
        steps.expect(rows, gaussians, S, joints, 0, 120, *more)
        found.append((S, joints))
    # Row by row, posterior probabilities below this one are zeros: each left out changes the others by as much.
    cut = gaussians.means.shape[0] * np.exp(-em.NEGLIGIBLE)
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=0, atol=cut)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10, atol=cut)


def test_leave_one_out_and_evidence(case):
    rows, R, shape, world = case
    moments = em.moments_of(rows, R)
    gaussians = em.gaussians_of(moments, shape)
    few, many = np.empty(120), np.empty(120)
    em.leave_one_out(rows, R, em.parts_of(rows, moments, gaussians, shape), few, 0, UNMARKED)
    wide.leave_one_out(rows, R, moments, gaussians, shape, many, 0)
    np.testing.assert_allclose(few, many, rtol=1e-8)
    np.testing.assert_allclose(
        em.log_marginals(moments, shape, world.background),
        wide.log_marginals(moments, shape, world.background),
        rtol=1e-9,
    )


def test_the_background_is_half_a_row_of_a_gaussian_twice_as_broad(case):
    rows, _, _, world = case
    covariance = np.linalg.inv(world.background.factor.T @ world.background.factor)
    wanted = np.log(0.5) + multivariate_normal(world.background.centre, 4.0 * covariance).logpdf(rows.Z)
    np.testing.assert_allclose(rows.background, wanted, rtol=1e-8)
    assert (background_of(rows.Z, world.background._replace(rows=0.0)) == -np.inf).all()


def test_distances_of_more_rows_than_a_block(monkeypatch, case):
    rows, R, shape, _ = case
    gaussians = em.gaussians_of(em.moments_of(rows, R), shape)
    whole = wide.distances(rows.Z, gaussians.means, np.tril(gaussians.factors))
    monkeypatch.setattr(wide, "BLOCK", 1)  # then 64 rows at a time
    np.testing.assert_allclose(wide.distances(rows.Z, gaussians.means, np.tril(gaussians.factors)), whole)
    for k, (mean, F) in enumerate(zip(gaussians.means, np.tril(gaussians.factors), strict=True)):
        np.testing.assert_allclose(whole[:, k], mahalanobis(rows.Z, mean, np.linalg.inv(F.T @ F)), rtol=1e-6)


def test_factors_of_singular_matrices_are_those_of_inflated_ones():
    """One in the midst of others: they keep their exact factors."""
    A = np.random.default_rng(0).normal(size=(4, 4))
    B = np.array([A @ A.T, np.outer(A[0], A[0]), np.eye(4)])
    factors, log_dets = wide.inverse_factors(B)
    for k in (0, 2):
        np.testing.assert_allclose(factors[k], np.linalg.inv(np.linalg.cholesky(B[k])), atol=1e-9)
        assert log_dets[k] == pytest.approx(np.linalg.slogdet(B[k])[1])
    L = np.linalg.inv(factors[1])
    np.testing.assert_allclose(L @ L.T, B[1], atol=1e-8)
