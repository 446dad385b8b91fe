"""Many columns by matrix products: the same numbers as row by row."""

import numpy as np
import pytest

from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import em, wide
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.wide import background_of
from everlearn.mixture.state import Shape


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
    for steps in (em, wide):
        S, joints = R.copy(), np.empty(120)
        steps.expect(rows, gaussians, S, joints, 0, 120)
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
    em.leave_one_out(rows, R, moments, gaussians, shape, few, 0)
    wide.leave_one_out(rows, R, moments, gaussians, shape, many, 0)
    np.testing.assert_allclose(few, many, rtol=1e-8)
    np.testing.assert_allclose(
        em.log_marginals(moments, shape, world.background),
        wide.log_marginals(moments, shape, world.background),
        rtol=1e-9,
    )


def test_groups_in_many_columns_are_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 40)) + 3.0 * rng.integers(2, size=(900, 1))
    assert IncrementalGaussianMixture().fit(X).n_components_ == 2
