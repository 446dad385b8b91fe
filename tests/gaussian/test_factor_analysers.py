"""Factor analysers answer as dense Gaussians with the same covariance."""

import numpy as np
import pytest

from everlearn.errors import InputError
from everlearn.gaussian import conditional, factor_analysers
from everlearn.gaussian.factor_analysers import FactorMixture
from everlearn.gaussian.mixture import Mixture
from everlearn.gaussian.mixture import log_density as dense_log_density
from naive import low_rank as naive

D, Q, K = 9, 3, 2


@pytest.fixture
def mixture():
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(K, Q, D))
    loadings[1, 2] = 0.0  # of lower rank
    return FactorMixture(np.array([0.3, 0.7]), rng.normal(size=(K, D)), loadings, rng.uniform(0.2, 2.0, (K, D)))


@pytest.fixture
def dense(mixture):
    return Mixture(mixture.weights, mixture.means, factor_analysers.covariances(mixture))


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, D))
    X[5:][rng.random((15, D)) < 0.5] = np.nan
    X[7] = np.nan
    return X


def test_covariances_and_precisions(mixture):
    C = factor_analysers.covariances(mixture)
    for k in range(K):
        np.testing.assert_allclose(C[k], naive.covariance(mixture.loadings[k], mixture.noise[k]))
    np.testing.assert_allclose(factor_analysers.precisions(mixture), np.linalg.inv(C), rtol=1e-9, atol=1e-12)


def test_densities(mixture, dense, rows):
    found = factor_analysers.log_density(rows, mixture)
    np.testing.assert_allclose(found, dense_log_density(rows, dense), rtol=1e-10, atol=1e-12)
    one = FactorMixture(np.ones(1), mixture.means[:1], mixture.loadings[:1], mixture.noise[:1])
    expected = [naive.log_density(x, one.means[0], dense.covariances[0]) for x in rows]
    np.testing.assert_allclose(factor_analysers.log_density(rows, one), expected, rtol=1e-10, atol=1e-12)


def test_conditionals(mixture, dense, rows):
    given, target = np.array([0, 2, 3, 6]), np.array([1, 8])
    for values in (rows[:5][:, given], rows[:, given]):
        found = factor_analysers.condition(mixture, given, values, target)
        expected = conditional.condition(dense, given, values, target)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            factor_analysers.expected_columns(mixture, given, values, target), conditional.mean(expected), rtol=1e-9
        )


def test_nothing_given(mixture, dense):
    """Every column at once, from none: the mixture itself."""
    nothing, columns = np.empty(0, dtype=np.intp), np.arange(dense.means.shape[1])
    answer = factor_analysers.condition(mixture, nothing, np.empty((2, 0)), columns)
    np.testing.assert_allclose(answer.weights, [dense.weights / dense.weights.sum()] * 2, rtol=1e-12)
    np.testing.assert_allclose(answer.means, [dense.means] * 2, rtol=1e-12)
    np.testing.assert_allclose(answer.covariances, dense.covariances, rtol=1e-10, atol=1e-12)


def test_imputation(mixture, dense, rows):
    for a, b in zip(factor_analysers.impute(rows, mixture), conditional.impute(rows, dense), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_drawn_gaps_have_the_conditional_moments(mixture, dense):
    one = FactorMixture(np.ones(1), mixture.means[:1], mixture.loadings[:1], mixture.noise[:1])
    x = np.where(np.arange(D) < 4, np.nan, 0.7)
    drawn = factor_analysers.draw_gaps(np.repeat(x[None], 4000, axis=0), one, np.random.default_rng(0))
    mean, C = naive.conditional(x, one.means[0], dense.covariances[0])
    np.testing.assert_allclose(drawn[:, :4].mean(axis=0), mean, atol=5 * np.sqrt(np.diag(C).max() / 4000))
    np.testing.assert_allclose(np.cov(drawn[:, :4].T), C, atol=0.1 * np.diag(C).max())
    assert (drawn[:, 4:] == 0.7).all()


def test_samples_have_the_moments(mixture, dense):
    X, labels = factor_analysers.sample(mixture, 20000, np.random.default_rng(0))
    assert abs((labels == 0).mean() - 0.3) < 0.02
    C = dense.covariances[0]
    np.testing.assert_allclose(np.cov(X[labels == 0].T), C, atol=0.08 * np.diag(C).max())


def test_matrices_that_do_not_fit_are_refused():
    wide = FactorMixture(np.ones(1), np.zeros((1, 20000)), np.zeros((1, 1, 20000)), np.ones((1, 20000)))
    with pytest.raises(InputError, match="loadings_"):
        factor_analysers.covariances(wide)
    with pytest.raises(InputError, match="fewer target"):
        factor_analysers.condition(wide, np.array([0]), np.zeros((2, 1)), np.arange(1, 20000))
