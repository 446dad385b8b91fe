"""Responsibilities, leave-one-out and evidence against their slow twins."""

import numpy as np
import pytest
from scipy.stats import multivariate_t

from everlearn.mixture.keep.evidence import common_shape, evidence
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import em as kernels
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.fitting import change_left_out
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


def test_responsibilities(case):
    rows, R, shape = case
    found = R.copy()
    moments = kernels.moments_of(rows, R)
    kernels.expect(rows, kernels.gaussians_of(moments, shape), found, np.empty(40), 0, 40)
    np.testing.assert_allclose(found, naive.responsibilities(rows.Z, R, *shape[:3]), atol=1e-9)


def test_leave_one_out_by_leaving_out(case):
    """Exact but for the ridge that the row itself adds to its components."""
    rows, R, shape = case
    for ridge, tolerance in ((0.0, 1e-9), (1e-3, 1e-3)):
        prior = shape._replace(ridge=np.full(len(shape.ridge), ridge))
        moments, out = kernels.moments_of(rows, R), np.empty(40)
        kernels.leave_one_out(rows, R, moments, kernels.gaussians_of(moments, prior), prior, out, 0)
        np.testing.assert_allclose(out, naive.leave_one_out(rows.Z, R, *prior[:3]), atol=tolerance)


def test_row_of_weight_two_is_left_out_whole(case):
    """Judged by a model that was never shown it, as a row of weight one is."""
    rows, R, shape = case
    weights = np.ones(40)
    weights[7] = 2.0
    double = Rows(rows.Z, weights, rows.background, 41.0)
    moments, out = kernels.moments_of(double, R), np.empty(40)
    bare = shape._replace(tau=1e-9)
    kernels.leave_one_out(double, R, moments, kernels.gaussians_of(moments, bare), bare, out, 0)
    single, expected = kernels.moments_of(rows, R), np.empty(40)
    kernels.leave_one_out(rows, R, single, kernels.gaussians_of(single, bare), bare, expected, 0)
    np.testing.assert_allclose(out[7], expected[7], atol=1e-2)
    assert abs(out[8] - expected[8]) > 1e-4, "the heavier row does count for the others"


def left_out(rows, R, shape):
    moments, out = kernels.moments_of(rows, R), np.empty(len(R))
    kernels.leave_one_out(rows, R, moments, kernels.gaussians_of(moments, shape), shape, out, 0)
    return out


def test_change_of_a_merge_is_that_of_the_whole_score(case):
    rows, R, shape = case
    merged = np.column_stack([R[:, :2].sum(axis=1), R[:, 2:]])
    found = change_left_out(
        rows, np.ascontiguousarray(R[:, :2]), np.ascontiguousarray(merged[:, :1]), left_out(rows, R, shape), shape
    )
    expected = (left_out(rows, np.ascontiguousarray(merged), shape) - left_out(rows, R, shape)).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_evidence_of_hard_labels_is_marginals_and_labels(case):
    rows, R, shape = case
    labels = R.argmax(axis=1)
    hard = np.eye(R.shape[1])[labels]
    world = world_of_rows(rows.Z, rows.weights, 1.0)
    covariance = np.linalg.inv(world.background.factor.T @ world.background.factor)
    found = evidence(rows, hard, kernels.moments_of(rows, hard), shape, world)
    counts = hard.sum(axis=0)
    marginals = sum(
        naive.log_marginal(
            rows.Z[labels == k], shape.matrix, shape.ridge, shape.tau, world.background.centre, covariance
        )
        for k in range(R.shape[1])
    )
    assert found == pytest.approx(marginals + naive.dirichlet_multinomial(counts), rel=1e-9)


def test_marginal_is_a_product_of_student_densities():
    """One row after another: the second has the Student density that the closed form implies."""
    D, tau = 2, 1.5
    rng = np.random.default_rng(0)
    rows, shape, none = rng.normal(size=(2, D)), np.eye(D), np.zeros(D)
    both = naive.log_marginal(rows, shape, none, tau, rows.mean(axis=0), np.eye(D))
    v = D + 1.0 + tau
    difference = multivariate_t(np.zeros(D), 2.0 * tau * shape / (v - D + 1), df=v - D + 1).logpdf(rows[1] - rows[0])
    prior_of_mean = -0.5 * D * np.log(2.0 * np.pi)
    assert both == pytest.approx(difference + prior_of_mean, rel=1e-9)


def test_common_shape_is_the_geometric_mean_of_what_commutes():
    """Two diagonal covariances of equal counts: the log-Euclidean mean is the root of their product."""
    rng = np.random.default_rng(0)
    Z = np.concatenate([rng.normal(size=(4000, 2)) * [1.0, 4.0], rng.normal(size=(4000, 2)) * [4.0, 1.0]])
    R = np.repeat(np.eye(2), 4000, axis=0)
    rows = Rows(Z, np.ones(8000), np.full(8000, -np.inf), 8000.0)
    found = common_shape(kernels.moments_of(rows, R), world_of_rows(Z, rows.weights, 1.0), np.full(2, 1e-6), 1.0, False)
    np.testing.assert_allclose(found.matrix, 4.0 * np.eye(2), atol=0.25)
