"""The natural constraint for mixtures: its step against its objective, and the laws that the printed form broke."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from everlearn.experiments.papers.nat_oem.mixtures import (
    GAINS,
    Mixture,
    OnlineMixture,
    Reference,
    Statistics,
    constrain,
    letter_tasks,
    log_likelihood,
    maximise,
    responsibilities,
)

K, D = 3, 2


@pytest.fixture
def parts():
    rng = np.random.default_rng(0)
    old = Mixture(np.array([0.5, 0.3, 0.2]), rng.normal(size=(K, D)), rng.uniform(0.5, 2, (K, D)))
    free = Mixture(np.array([0.2, 0.2, 0.6]), rng.normal(size=(K, D)), rng.uniform(0.5, 2, (K, D)))
    S0 = free.weights
    known = Statistics(S0, S0[:, None] * free.means, S0[:, None] * (free.variances + free.means**2))
    return old, free, known, Reference(old, np.array([1.0, 0.9, 0.0]))


def test_density_is_that_of_the_mixture(parts):
    old = parts[0]
    X = np.random.default_rng(1).normal(size=(7, D))
    densities = np.column_stack([w * multivariate_normal(m, np.diag(v)).pdf(X) for w, m, v in zip(*old, strict=True)])
    assert log_likelihood(X, old) == pytest.approx(np.log(densities.sum(axis=1)).mean())
    assert np.allclose(responsibilities(X, old), densities / densities.sum(axis=1, keepdims=True))


def test_the_maximum_of_the_statistics_is_found(parts):
    assert np.allclose(maximise(parts[2], 1e-9).variances, parts[1].variances)
    assert np.allclose(maximise(parts[2], 1e-9).means, parts[1].means)


def test_each_mean_minimises_the_penalised_objective(parts):
    old, free, known, reference = parts
    moved = constrain(free, known, reference, 0.7)
    for j in range(K):
        for d in range(D):

            def objective(m, j=j, d=d):
                v = free.variances[j, d]
                # -Q: expected squares of the rows of the component about m.
                squares = known.S2[j, d] - 2 * m * known.S1[j, d] + known.S0[j] * m * m
                information = reference.shares[j] / old.variances[j, d]
                return 0.5 * squares / v + 0.35 * information * (m - old.means[j, d]) ** 2

            assert moved.means[j, d] == pytest.approx(minimize_scalar(objective, tol=1e-12).x, abs=1e-6)


def test_a_component_that_no_earlier_class_needs_is_free(parts):
    old, free, known, reference = parts
    moved = constrain(free, known, reference, 1e6)
    assert np.allclose(moved.means[2], free.means[2])
    assert np.allclose(moved.variances[2], free.variances[2])
    assert np.allclose(moved.means[:2], old.means[:2], atol=1e-4)
    unheld = constrain(free, known, reference, 0.0)
    assert all(np.allclose(a, b) for a, b in zip(unheld, free, strict=True))


def test_the_unit_of_the_data_does_not_matter():
    rng = np.random.default_rng(0)
    tasks = [task.X[:120] for task in letter_tasks(rng)][:2]

    def learned(factor):
        model = OnlineMixture(4, GAINS["0.9 k^-0.6"], 1.0, seed=0)
        for X in tasks:
            model.learn(factor * X)
            model.end_class(factor * X)
        return model.mixture

    one, thousand = learned(1.0), learned(1000.0)
    assert np.allclose(thousand.means, 1000 * one.means)
    assert np.allclose(thousand.weights, one.weights)


def test_counting_every_row_alike_needs_no_constraint():
    """With gain 1/k the weights are the shares of all rows so far, whatever their order."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-20, 1, (150, D)), rng.normal(20, 1, (150, D))])
    model = OnlineMixture(2, GAINS["1/k"], 0.0, seed=0)
    model.start(np.concatenate([X[:5], X[-5:]]))
    model.learn(X[5:-5])
    assert np.allclose(model.known.S0.sum(), 1.0)
    assert np.allclose((model.mixture.weights @ model.mixture.means), X.mean(axis=0))
