"""Titterington's recursion: scores and metrics against finite differences, and what they lead to."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.experiments.papers.nat_oem.titterington import (
    Parameters,
    fisher_observed,
    learn,
    log_likelihood,
    rotations,
    score,
    step,
)

D, Q = 4, 2


@pytest.fixture
def theta():
    rng = np.random.default_rng(0)
    return Parameters(rng.normal(size=D), rng.normal(size=(D, Q)), 0.6)


def flat(theta):
    return np.concatenate([theta.mu, theta.W.ravel(), [theta.sigma2]])


def shaped(values):
    return Parameters(values[:D], values[D:-1].reshape(D, Q), values[-1])


def covariance(theta):
    return theta.W @ theta.W.T + theta.sigma2 * np.eye(D)


def hessian(f, at, h=1e-4):
    n = len(at)
    E = h * np.eye(n)
    return np.array(
        [[(f(at + a + b) - f(at + a - b) - f(at - a + b) + f(at - a - b)) / (4 * h * h) for b in E] for a in E]
    )


def test_score_is_the_gradient_of_the_log_density(theta):
    x = np.array([0.5, -1.0, 2.0, 0.3])

    def density(values):
        at = shaped(values)
        return multivariate_normal(at.mu, covariance(at)).logpdf(x)

    h = 1e-6 * np.eye(len(flat(theta)))
    numeric = [(density(flat(theta) + e) - density(flat(theta) - e)) / 2e-6 for e in h]
    assert np.allclose(flat(score(x, theta)), numeric, atol=1e-6)


def test_observed_information_is_the_curvature_of_the_expected_log_density(theta):
    C = covariance(theta)

    def expected(values):
        at = shaped(values)
        S = covariance(at)
        e = at.mu - theta.mu
        return -0.5 * (np.linalg.slogdet(S)[1] + np.trace(np.linalg.solve(S, C)) + e @ np.linalg.solve(S, e))

    F = -hessian(expected, flat(theta))
    assert np.allclose(fisher_observed(theta.W, theta.sigma2), F[D:, D:], atol=1e-5)
    assert np.allclose(F[:D, D:], 0, atol=1e-5)
    assert np.allclose(F[:D, :D], np.linalg.inv(C), atol=1e-5)


def test_observed_step_is_that_of_the_pseudo_inverse(theta):
    x = np.array([0.5, -1.0, 2.0, 0.3])
    F = fisher_observed(theta.W, theta.sigma2)
    g = score(x, theta)
    assert np.allclose(F @ rotations(theta.W).T, 0, atol=1e-12)
    change = np.linalg.pinv(F, rcond=1e-10) @ np.append(g.W.ravel(), g.sigma2)
    moved = step(x, theta, 0.1, "observed")
    assert np.allclose(moved.W, theta.W + 0.1 * change[:-1].reshape(D, Q))
    assert moved.sigma2 == pytest.approx(theta.sigma2 + 0.1 * change[-1])
    assert np.allclose(moved.mu, theta.mu + 0.1 * covariance(theta) @ g.mu)


def test_complete_step_divides_by_the_curvature_of_the_complete_log_density(theta):
    C = covariance(theta)

    def expected(values):
        """Mean of log p(x, z) over both, with E[e z'] = W, E[z z'] = I, E[e e'] = C."""
        at = shaped(values)
        squares = np.trace(C) - 2 * np.sum(at.W * theta.W) + np.sum(at.W**2) + np.sum((at.mu - theta.mu) ** 2)
        return -0.5 * (D * np.log(at.sigma2) + squares / at.sigma2)

    F = -hessian(expected, flat(theta))
    x = np.array([0.5, -1.0, 2.0, 0.3])
    moved = flat(step(x, theta, 0.1, "complete")) - flat(theta)
    assert np.allclose(moved, 0.1 * np.linalg.solve(F, flat(score(x, theta))), atol=1e-5)


@pytest.mark.parametrize("fisher", ["observed", "complete"])
def test_it_climbs_to_the_likelihood_of_the_truth(theta, fisher):
    rng = np.random.default_rng(1)
    X = rng.multivariate_normal(theta.mu, covariance(theta), 3000)
    start = Parameters(theta.mu + 0.3, theta.W + 0.2 * rng.normal(size=(D, Q)), 1.0)
    found = learn(X[:2500], start, 51, fisher)
    before, after, best = (log_likelihood(X[2500:], t) for t in (start, found, theta))
    assert after > before + 0.8 * (best - before)


@pytest.mark.parametrize("fisher", ["observed", "complete"])
def test_the_noise_variance_stays_positive_with_gains_below_one(theta, fisher):
    rng = np.random.default_rng(2)
    for size in (0.0, 1.0, 1e3):
        assert step(size * rng.normal(size=D), theta, 0.99, fisher).sigma2 > 0.0


def test_a_run_that_overflows_is_none(theta):
    X = np.full((3, D), 1e200)
    with np.errstate(all="ignore"):
        assert learn(X, theta, 1, "complete") is None
