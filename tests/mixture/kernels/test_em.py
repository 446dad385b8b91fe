"""Expectation-maximisation: moments, responsibilities and leave-one-out against their slow twins."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import em as kernels
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.fitting import UNMARKED
from everlearn.mixture.state import Shape
from naive import structure as naive


@pytest.fixture(params=[(1, 2), (3, 3), (6, 2)])
def case(request):
    D, K = request.param
    rng = np.random.default_rng(D)
    Z = rng.normal(size=(40, D)) + 3.0 * rng.integers(K, size=(40, 1))
    R = rng.dirichlet(np.full(K, 0.3), size=40)
    shape = Shape(np.eye(D) + 0.3, np.full(D, 1e-3), 1.5)
    return Rows(Z, np.ones(40), np.full(40, -np.inf), 40.0), R, shape


def test_moments_are_weighted_counts_means_and_scatters(case):
    rows, R, _ = case
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 40)
    # More rows of a component than are gathered for one product.
    many = Rows(np.tile(rows.Z, (10, 1)), np.tile(weights, 10), np.tile(rows.background, 10), 10.0 * weights.sum())
    found = kernels.moments_of(many, np.tile(R, (10, 1)))
    for k, r in enumerate((weights[:, None] * R).T):
        assert found.counts[k] == pytest.approx(10.0 * r.sum(), abs=1e-3)
        np.testing.assert_allclose(found.means[k], np.average(rows.Z, axis=0, weights=r), atol=1e-4)
        scatter = 10.0 * r.sum() * np.cov(rows.Z.T, aweights=r, ddof=0)
        np.testing.assert_allclose(found.scatters[k], np.atleast_2d(scatter), atol=1e-2)


def test_responsibilities(case):
    rows, R, shape = case
    found = R.copy()
    moments = kernels.moments_of(rows, R)
    kernels.expect(rows, kernels.gaussians_of(moments, shape), found, np.empty(40), 0, 40, UNMARKED)
    np.testing.assert_allclose(found, naive.responsibilities(rows.Z, R, *shape[:3]), atol=1e-9)


def test_leave_one_out_by_leaving_out(case):
    """Exact but for the ridge that the row itself adds to its components."""
    rows, R, shape = case
    for ridge, tolerance in ((0.0, 1e-9), (1e-3, 1e-3)):
        prior = shape._replace(ridge=np.full(len(shape.ridge), ridge))
        moments, out = kernels.moments_of(rows, R), np.empty(40)
        kernels.leave_one_out(
            rows, R, kernels.parts_of(rows, moments, kernels.gaussians_of(moments, prior), prior), out, 0, UNMARKED
        )
        np.testing.assert_allclose(out, naive.leave_one_out(rows.Z, R, *prior[:3]), atol=tolerance)


def test_row_of_weight_two_is_left_out_whole(case):
    """Judged by a model that was never shown it, as a row of weight one is."""
    rows, R, shape = case
    weights = np.ones(40)
    weights[7] = 2.0
    double = Rows(rows.Z, weights, rows.background, 41.0)
    moments, out = kernels.moments_of(double, R), np.empty(40)
    bare = shape._replace(tau=1e-9)
    kernels.leave_one_out(
        double, R, kernels.parts_of(double, moments, kernels.gaussians_of(moments, bare), bare), out, 0, UNMARKED
    )
    single, expected = kernels.moments_of(rows, R), np.empty(40)
    kernels.leave_one_out(
        rows, R, kernels.parts_of(rows, single, kernels.gaussians_of(single, bare), bare), expected, 0, UNMARKED
    )
    np.testing.assert_allclose(out[7], expected[7], atol=1e-2)
    assert abs(out[8] - expected[8]) > 1e-4, "the heavier row does count for the others"


def test_an_outlier_belongs_to_the_background_and_other_rows_do_not():
    """Its share is taken off a row that it explains better than any component, and off no other."""
    rng = np.random.default_rng(1)
    Z = np.concatenate([rng.normal(size=(20, 2)), [[9.0, 9.0]]])
    shape, behind = Shape(np.eye(2), np.full(2, 1e-3), 1.5), np.full(21, -6.0)
    moments = kernels.moments_of(Rows(Z, np.ones(21), behind, 21.0), np.eye(2)[np.arange(21) % 2] * (Z[:, :1] < 5.0))
    gaussians = kernels.gaussians_of(moments, shape)
    R, density = np.ones((21, 2)), np.empty(21)
    kernels.expect(Rows(Z, np.ones(21), behind, 21.0), gaussians, R, density, 0, 21, UNMARKED)
    covariances = [np.linalg.inv(F.T @ F) for F in np.tril(gaussians.factors)]
    joint = np.column_stack(
        [np.log(n) + multivariate_normal(m, S).logpdf(Z) for n, m, S in zip(*moments[:2], covariances, strict=True)]
    )
    total = logsumexp(np.column_stack([joint, behind]), axis=1)
    np.testing.assert_allclose(density, total, atol=1e-5)
    outlying = joint.max(axis=1) < behind
    assert outlying[-1]
    assert not outlying[:-1].all()
    own = np.where(outlying, total, logsumexp(joint, axis=1))
    np.testing.assert_allclose(R, np.exp(joint - own[:, None]), atol=1e-5)


def test_evidence_of_the_rows_of_each_component(case):
    rows, R, shape = case
    labels = R.argmax(axis=1)
    world = world_of_rows(rows.Z, rows.weights, 1.0)
    covariance = np.linalg.inv(world.background.factor.T @ world.background.factor)
    found = kernels.log_marginals(kernels.moments_of(rows, np.eye(R.shape[1])[labels]), shape, world.background)
    for k, value in enumerate(found):
        own = rows.Z[labels == k]
        assert value == pytest.approx(
            naive.log_marginal(own, *shape[:3], world.background.centre, covariance), rel=1e-9
        )
