"""Diagonal covariances through the whole: judged column by column, learned, found, asked, merged, saved."""

import numpy as np
import pytest

import everlearn
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.evidence import common_shape
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import em as kernels
from everlearn.mixture.kernels.em import Rows
from everlearn.mixture.kernels.fitting import UNMARKED
from everlearn.mixture.state import Shape


def case(D=3, n=40, K=2, seed=0):
    rng = np.random.default_rng(seed)
    Z, R = rng.normal(size=(n, D)) * [1.0, 2.0, 0.5], rng.dirichlet(np.ones(K), n)
    shape = Shape(np.diag(rng.uniform(0.5, 2, D)) + 0.2, np.full(D, 1e-9), 1.5, True)
    return Rows(Z, np.ones(n), np.full(n, -np.inf), float(n)), R, shape


def column(rows, R, shape, j):
    """The same in one column, with full covariances."""
    one = Rows(np.ascontiguousarray(rows.Z[:, [j]]), rows.weights, rows.background, rows.total)
    return (
        one,
        kernels.moments_of(one, R),
        Shape(shape.matrix[j : j + 1, j : j + 1].copy(), shape.ridge[[j]], shape.tau),
    )


def test_densities_are_products_over_columns():
    rows, R, shape = case()
    found = kernels.gaussians_of(kernels.moments_of(rows, R), shape)
    for k in range(2):
        off = found.factors[k] - np.diag(np.diag(found.factors[k]))
        assert not off.any()
        for j in range(3):
            _, moments, one = column(rows, R, shape, j)
            assert found.factors[k, j, j] == pytest.approx(kernels.gaussians_of(moments, one).factors[k, 0, 0])


def test_leave_one_out_of_one_component_is_the_sum_over_columns():
    rows, _, shape = case()
    R, out, total = np.ones((40, 1)), np.empty(40), np.zeros(40)
    moments = kernels.moments_of(rows, R)
    kernels.leave_one_out(
        rows, R, kernels.parts_of(rows, moments, kernels.gaussians_of(moments, shape), shape), out, 0, UNMARKED
    )
    for j in range(3):
        some, own, one = column(rows, R, shape, j)
        part = np.empty(40)
        kernels.leave_one_out(
            some, R, kernels.parts_of(some, own, kernels.gaussians_of(own, one), one), part, 0, UNMARKED
        )
        total += part
    np.testing.assert_allclose(out, total, atol=1e-9)


def test_marginal_likelihood_is_the_product_over_columns():
    rows, R, shape = case()
    world = world_of_rows(rows.Z, rows.weights, 1.0)
    independent = world.background._replace(factor=np.diag(np.diag(world.background.factor)))
    found = kernels.log_marginals(kernels.moments_of(rows, R), shape, independent)
    total = np.zeros(2)
    for j in range(3):
        _, moments, one = column(rows, R, shape, j)
        part = independent._replace(
            centre=independent.centre[[j]], factor=independent.factor[j : j + 1, j : j + 1].copy(), height=0.0
        )
        total += kernels.log_marginals(moments, one, part)
    np.testing.assert_allclose(found, total + independent.height, atol=1e-8)


def test_common_shape_is_a_geometric_mean_of_variances():
    rng = np.random.default_rng(1)
    Z = np.concatenate([rng.normal(0, [1.0, 4.0], (4000, 2)), rng.normal(50, [9.0, 1.0], (4000, 2))])
    rows = Rows(Z, np.ones(8000), np.full(8000, -np.inf), 8000.0)
    R = np.repeat(np.eye(2), 4000, axis=0)
    shape = common_shape(kernels.moments_of(rows, R), world_of_rows(Z, rows.weights, 1.0), np.full(2, 1e-9), 1.0, True)
    np.testing.assert_allclose(np.diag(shape.matrix), [9.0, 4.0], rtol=0.1)
    assert shape.matrix[0, 1] == 0.0


def groups(n, D=4, seed=0, gaps=0.0):
    rng = np.random.default_rng(seed)
    centres = 8.0 * np.random.default_rng(9).normal(size=(3, D))
    X = centres[rng.integers(3, size=n)] + rng.normal(size=(n, D)) * np.array([1.0, 0.1, 3.0, 1.0])
    X[rng.random(X.shape) < gaps] = np.nan
    return X


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_axis_parallel_groups_are_found(gaps):
    X, test = groups(1500, gaps=gaps), groups(1000, seed=1)
    diagonal = IncrementalGaussianMixture(covariance_type="diag").fit(X)
    full = IncrementalGaussianMixture().fit(X)
    assert diagonal.n_components_ == 3
    assert diagonal.covariances_.shape == diagonal.precisions_.shape == (3, 4)
    assert diagonal.score(test) > full.score(test) - 0.02
    np.testing.assert_allclose(diagonal.to_sklearn().score_samples(test), diagonal.score_samples(test), atol=1e-8)
    filled, std = diagonal.impute(groups(50, seed=2, gaps=0.3), return_std=True)
    assert np.isfinite(filled).all()
    assert (std >= 0).all()


def test_correlated_columns_take_more_components_or_lose_density():
    rng = np.random.default_rng(3)
    x = rng.normal(size=3000)
    X = np.column_stack([x, x + 0.1 * rng.normal(size=3000)])
    diagonal = IncrementalGaussianMixture(1, covariance_type="diag").fit(X)
    assert diagonal.score(X) < IncrementalGaussianMixture(1).fit(X).score(X) - 1.0


def test_files_and_merging():
    a, b = (IncrementalGaussianMixture(covariance_type="diag").partial_fit(groups(900, seed=seed)) for seed in (4, 5))
    assert everlearn.dumps(everlearn.loads(everlearn.dumps(a))) == everlearn.dumps(a)
    merged = a + b
    assert merged.n_components_ == 3
    assert merged.score(groups(500, seed=6)) == pytest.approx(a.score(groups(500, seed=6)), abs=0.1)
