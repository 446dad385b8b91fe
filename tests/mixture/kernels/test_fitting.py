"""The steps of a fit, by either way, and what is made of them."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import em, fitting
from everlearn.mixture.kernels.fitting import MANY_COLUMNS, change_left_out
from everlearn.mixture.state import Shape
from mixture_toys import groups, rows_of, shape_of
from naive import structure as naive


@pytest.fixture(params=[(1, 2), (3, 3), (6, 2)])
def case(request):
    D, K = request.param
    rng = np.random.default_rng(D)
    Z = rng.normal(size=(40, D)) + 3.0 * rng.integers(K, size=(40, 1))
    return rows_of(Z), rng.dirichlet(np.full(K, 0.3), size=40), Shape(np.eye(D) + 0.3, np.full(D, 1e-3), 1.5)


def take_steps(rows, R, shape, steps):
    """Steps of EM, changing R in place; returns the moments of the last R."""
    out = np.empty(len(R))
    moments = fitting.moments_of(rows, R)
    for _ in range(steps):
        fitting.expect(rows, fitting.gaussians_of(moments, shape), R, out, 0, len(R))
        moments = fitting.moments_of(rows, R)
    return moments


def left_out(rows, R, shape):
    moments, out = fitting.moments_of(rows, R), np.empty(len(R))
    fitting.leave_one_out(rows, R, moments, fitting.gaussians_of(moments, shape), shape, out, 0)
    return out


def test_change_of_a_merge_is_that_of_the_whole_score(case):
    rows, R, shape = case
    merged = np.column_stack([R[:, :2].sum(axis=1), R[:, 2:]])
    found = change_left_out(
        rows, np.ascontiguousarray(R[:, :2]), np.ascontiguousarray(merged[:, :1]), left_out(rows, R, shape), shape
    )
    expected = (left_out(rows, np.ascontiguousarray(merged), shape) - left_out(rows, R, shape)).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("D", [MANY_COLUMNS - 1, MANY_COLUMNS])
def test_few_and_many_columns_take_the_same_steps(D):
    rng = np.random.default_rng(0)
    Z, label = groups(rng, 60, D, 2, apart=0.5)
    rows, R, shape = rows_of(Z), 0.8 * np.eye(2)[label] + 0.1, shape_of(D, tau=3.0)
    found, wanted = R.copy(), R.copy()
    moments = take_steps(rows, found, shape, 3)
    for _ in range(3):
        wanted = naive.responsibilities(Z, wanted, *shape[:3])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_allclose(moments.counts, found.sum(axis=0), atol=1e-4)
    background = world_of_rows(Z, rows.weights, 1.0).background
    np.testing.assert_allclose(
        fitting.log_marginals(moments, shape, background), em.log_marginals(moments, shape, background), rtol=1e-9
    )


def test_em_raises_the_likelihood_until_it_gains_no_more():
    """Of maximum-likelihood components, that is: the prior counts for next to nothing here."""
    Z, label = groups(np.random.default_rng(1), 300, 2, 3)
    rows, shape = rows_of(Z), shape_of(2, tau=1e-6, ridge=0.0)
    R = 0.4 * np.eye(3)[label] + 0.2

    def likelihood(R):
        parts = [naive.posterior_covariance(Z, r, *shape[:3]) for r in R.T]
        return np.log(
            sum(r.sum() * multivariate_normal(m, S).pdf(Z) for r, (m, S) in zip(R.T, parts, strict=True))
        ).sum()

    values = [likelihood(R)]
    for _ in range(8):
        take_steps(rows, R, shape, 1)
        values.append(likelihood(R))
    assert (np.diff(values) > -0.5).all()  # covariances are a little wider than those of most likelihood
    assert values[-1] > values[0] + 100.0
    take_steps(rows, R, shape, 100)
    settled = R.copy()
    take_steps(rows, R, shape, 1)
    np.testing.assert_allclose(R, settled, atol=1e-4)
