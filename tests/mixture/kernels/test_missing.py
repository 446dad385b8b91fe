"""Rows with gaps: conditional moments by matrix algebra, expected moments by definition, draws by their law."""

import time

import numba
import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal

from everlearn.gaussian.mixture import Mixture
from everlearn.linalg.dense import divide_columns
from everlearn.mixture.keep.reconsider import Sums
from everlearn.mixture.kernels import missing as kernels

D, K = 4, 3


@pytest.fixture
def mixture():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(K, D, D))
    return Mixture(np.array([0.5, 0.3, 0.2]), 2.0 * rng.normal(size=(K, D)), A @ A.transpose(0, 2, 1) + np.eye(D))


def given(x, mean, covariance):
    """Log-density of what is observed, the row with its gaps expected, and their covariance."""
    o, u = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    density = multivariate_normal.logpdf(x[o], mean[o], covariance[np.ix_(o, o)]) if len(o) else 0.0
    filled, rest = x.copy(), np.zeros_like(covariance)
    gain = covariance[np.ix_(u, o)] @ np.linalg.inv(covariance[np.ix_(o, o)]) if len(o) else np.zeros((len(u), 0))
    filled[u] = mean[u] + gain @ (x[o] - mean[o])
    rest[np.ix_(u, u)] = covariance[np.ix_(u, u)] - gain @ covariance[np.ix_(o, u)]
    return density, filled, rest


PATTERNS = [[], [0], [3], [1, 2], [0, 2, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("gaps", PATTERNS)
def test_condition(mixture, gaps):
    x = np.array([0.3, -1.0, 2.0, 0.7])
    x[gaps] = np.nan
    filled, rest = np.full(D, 9.0), np.full((D, D), 9.0)
    for k in range(K):
        density, _ = kernels.condition(x, mixture.means[k], mixture.covariances[k], filled, rest)
        expected = given(x, mixture.means[k], mixture.covariances[k])
        assert density == pytest.approx(expected[0], abs=1e-12)
        np.testing.assert_allclose(filled, expected[1], atol=1e-12)
        np.testing.assert_allclose(rest, expected[2], atol=1e-12)


def test_columns_are_divided():
    seen, gaps = np.full(4, -1), np.full(4, -1)
    assert divide_columns(np.array([np.nan, 1.0, np.nan, np.inf]), seen, gaps) == 2
    assert (seen[:2].tolist(), gaps[:2].tolist()) == ([1, 3], [0, 2])


def test_expected_moments(mixture):
    rng = np.random.default_rng(1)
    X, weights = 2.0 * rng.normal(size=(30, D)), rng.uniform(0.5, 2.0, 30)
    X[rng.uniform(size=X.shape) < 0.4] = np.nan
    sums = Sums(np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D)))
    value = kernels.expect_gaps(X, weights, mixture, sums, 0, 20)
    value += kernels.expect_gaps(X, weights, mixture, sums, 20, 30)
    expected = Sums(np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D)))
    total = 0.0
    for x, w in zip(X, weights, strict=True):
        parts = [given(x, mean, covariance) for mean, covariance in zip(*mixture[1:], strict=True)]
        joint = mixture.weights * np.exp([part[0] for part in parts])
        total += w * np.log(joint.sum())
        for k, (_, filled, rest) in enumerate(parts):
            r, e = w * joint[k] / joint.sum(), filled - mixture.means[k]
            if r >= 1e-6:
                expected.counts[k] += r
                expected.shifts[k] += r * e
                expected.scatters[k] += r * (np.outer(e, e) + rest)
    assert value == pytest.approx(total, rel=1e-12)
    for found, wanted in zip(sums, expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-10)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="times of compiled code")
def test_rows_without_gaps_take_less_time_than_rows_with_one(mixture):
    """All of them share one factor of each covariance; with one for every row they would take as long."""
    X = np.random.default_rng(3).normal(size=(2000, D))
    with_gaps = X.copy()
    with_gaps[:, 0] = np.nan

    def seconds(rows):
        sums = Sums(np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D)))
        start = time.thread_time()
        kernels.expect_gaps(rows, np.ones(len(rows)), mixture, sums, 0, len(rows))
        return time.thread_time() - start

    complete, others = (min(seconds(rows) for _ in range(5)) for rows in (X, with_gaps))
    assert complete < 0.5 * others, (complete, others)


def test_draws_have_the_law_of_the_gaps(mixture):
    """Draws of one column given another: the probability that the mixture gives to what lies below is uniform."""
    rng = np.random.default_rng(2)
    x = np.array([0.5, np.nan, np.nan, -0.5])
    X = np.tile(x, (4000, 1))
    kernels.fill_sample(X, mixture, rng.random(len(X)), rng.standard_normal(X.shape))
    assert np.array_equal(X[:, [0, 3]], np.tile(x[[0, 3]], (4000, 1)))
    parts = [given(x, mean, covariance) for mean, covariance in zip(*mixture[1:], strict=True)]
    joint = mixture.weights * np.exp([part[0] for part in parts])
    for column in (1, 2):

        def below(value, column=column):
            spreads = [np.sqrt(rest[column, column]) for _, _, rest in parts]
            means = [filled[column] for _, filled, _ in parts]
            cdf = [multivariate_normal.cdf(value[:, None], m, s**2) for m, s in zip(means, spreads, strict=True)]
            return (joint / joint.sum()) @ cdf

        assert kstest(X[:, column], below).pvalue > 1e-3


def test_a_row_without_gaps_is_left_alone(mixture):
    X = np.arange(4.0)[None]
    kernels.fill_sample(X, mixture, np.array([0.5]), np.ones((1, D)))
    assert np.array_equal(X, np.arange(4.0)[None])
