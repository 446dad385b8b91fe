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
    moments = fitting.em(rows, found, shape, 3, 0.0)
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
        fitting.em(rows, R, shape, 1, 0.0)
        values.append(likelihood(R))
    assert (np.diff(values) > -0.5).all()  # covariances are a little wider than those of most likelihood
    assert values[-1] > values[0] + 100.0
    fitting.em(rows, R, shape, 500, 1e-9)
    settled = R.copy()
    fitting.em(rows, R, shape, 1, 1e-9)
    np.testing.assert_allclose(R, settled, atol=1e-4)


def test_em_stops_below_its_tolerance(case):
    """The first step has nothing to be compared with; the second gains less than infinity."""
    rows, R, shape = case
    stopped, two, three = R.copy(), R.copy(), R.copy()
    fitting.em(rows, stopped, shape, 50, np.inf)
    fitting.em(rows, two, shape, 2, -np.inf)
    fitting.em(rows, three, shape, 3, -np.inf)
    np.testing.assert_array_equal(stopped, two)
    assert np.abs(three - two).max() > 1e-4


def test_evidence_after_em_refuses_a_component_of_few_rows(case):
    rows, R, shape = case
    background = world_of_rows(rows.Z, rows.weights, 1.0).background
    after, same = R.copy(), R.copy()
    value = fitting.evidence_after_em(rows, after, shape, background, 2, 0.0, 0.0)
    moments = fitting.em(rows, same, shape, 2, 0.0)
    assert value == pytest.approx(fitting.evidence_of(rows, same, moments, shape, background))
    least = moments.counts.min() + 0.1
    assert fitting.evidence_after_em(rows, R.copy(), shape, background, 2, 0.0, least) == -np.inf
