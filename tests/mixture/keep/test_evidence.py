"""How components are judged: the evidence bound, the common shape and the price of a component."""

import numpy as np
import pytest
from scipy.stats import multivariate_t

from everlearn.mixture.keep.evidence import (
    common_shape,
    evidence,
    gaussians,
    made_of_rows,
    n_parameters,
    price,
    weights_normaliser,
)
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


def test_number_of_parameters():
    assert (n_parameters(3, False), n_parameters(3, True)) == (9.0, 6.0)


def test_the_price_is_above_half_a_parameter_and_rises_with_them():
    """In few columns above BIC's half a parameter for each of e^2 rows; a diagonal component costs less."""
    prices = [price(D, False) for D in (1, 2, 5, 20)]
    assert (np.diff(prices) > 0.0).all()
    assert all(price(D, True) <= price(D, False) for D in (1, 2, 5, 20))
    assert price(1, False) > n_parameters(1, False)


def test_normaliser_of_the_labels_is_that_of_all_sequences():
    """Over all labels of n rows the Dirichlet-multinomial sums to one, with factorials of the counts for the rest."""
    from itertools import product
    from math import factorial

    for K, n in ((2, 3), (3, 4)):
        counts = [np.bincount(labels, minlength=K) for labels in product(range(K), repeat=n)]
        total = sum(np.prod([factorial(c) for c in each]) for each in counts)
        assert np.exp(weights_normaliser(K, n)) * total == pytest.approx(1.0)


def test_gaussians_have_the_posterior_covariances(case):
    rows, R, shape = case
    found = gaussians(kernels.moments_of(rows, R), shape)
    for k in range(R.shape[1]):
        mean, covariance = naive.posterior_covariance(rows.Z, R[:, k], *shape[:3])
        np.testing.assert_allclose(found.means[k], mean, atol=1e-4)
        F = np.tril(found.factors[k])
        np.testing.assert_allclose(np.linalg.inv(F.T @ F), covariance, atol=1e-3)


def test_the_shape_of_one_component_has_a_part_of_its_correlations():
    """With its weight, the covariance has 1 - (tau / (count + tau))^2 of those of the rows."""
    Z = np.random.default_rng(0).normal(size=(50, 3)) @ (np.eye(3) + 0.5)
    rows, tau, ridge = Rows(Z, np.ones(50), np.full(50, -np.inf), 50.0), 49.0, np.full(3, 1e-9)
    moments = kernels.moments_of(rows, np.ones((50, 1)))
    shape = common_shape(moments, world_of_rows(Z, rows.weights, 1.0), ridge, tau, False)
    B, C = moments.scatters[0] + tau * shape.matrix, np.cov(Z.T)
    found = B / np.sqrt(np.outer(B.diagonal(), B.diagonal()))
    wanted = C / np.sqrt(np.outer(C.diagonal(), C.diagonal()))
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(found[off], 0.75 * wanted[off], rtol=0.02)


@pytest.mark.parametrize("tau", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("correlated", [False, True])
def test_what_a_row_takes_along_of_the_shape_of_one_component(tau, correlated):
    """Leave-one-out beside components and shapes that were made without the row."""
    D, n = 12, 60
    Z = np.random.default_rng(1).normal(size=(n, D)) @ (np.eye(D) + 0.5 * correlated)
    world, ridge = world_of_rows(Z, np.ones(n), 1.0), np.full(D, 1e-6)

    def left_out(rows, R, row):
        moments = kernels.moments_of(rows, R)
        shape = common_shape(moments, world, ridge, tau, False)
        known, out = gaussians(moments, shape), np.empty(len(rows.Z))
        parts = kernels.parts_of(rows, moments, known, shape, made_of_rows(moments.counts, shape))
        kernels.leave_one_out(rows, R, parts, out, 0, UNMARKED)
        d = np.tril(known.factors[0]) @ (row - moments.means[0])
        return out, known.heights[0] - 0.5 * d @ d - np.log(rows.total)

    def rows_of(some):
        return Rows(some, np.ones(len(some)), np.full(len(some), -np.inf), float(len(some)))

    found, _ = left_out(rows_of(Z), np.ones((n, 1)), Z[0])
    wanted = [left_out(rows_of(np.delete(Z, t, axis=0)), np.ones((n - 1, 1)), Z[t])[1] for t in range(n)]
    assert found.mean() == pytest.approx(np.mean(wanted), abs=0.1)
