"""Mode-IMM for mixtures."""

import numpy as np
import pytest

from everlearn.gaussian.mixture import Mixture
from everlearn.gaussian.pooling import pool


def density(x, weights, means, variances):
    """Of a mixture of normal distributions, from its definition."""
    terms = [
        w / np.sqrt(2 * np.pi * v) * np.exp(-0.5 * (x - m) ** 2 / v)
        for w, m, v in zip(weights, means, variances, strict=True)
    ]
    return np.sum(terms, axis=0)


def test_each_component_is_a_hill_of_the_log_linear_pool_of_the_densities():
    """Two mixtures of two hills far apart: the product of their densities, each to its power, by quadrature."""
    first, second = ([0.5, 0.5], [0.0, 60.0], [1.0, 4.0]), ([0.5, 0.5], [1.5, 57.0], [2.0, 1.0])
    n = np.array([300.0, 100.0])
    parts = [
        Mixture(rows * np.array(w), np.array(m)[:, None], np.array(v)[:, None, None])
        for rows, (w, m, v) in zip(n, (first, second), strict=True)
    ]
    found = pool(parts, n_components=2)
    x = np.linspace(-20.0, 80.0, 400_001)
    pooled = density(x, *first) ** 0.75 * density(x, *second) ** 0.25
    for hill, at in ((x < 30, 0), (x > 30, 1)):
        share = np.where(hill, pooled, 0.0) / pooled[hill].sum()
        mean = share @ x
        j = int(np.argmin(np.abs(found.means[:, 0] - mean)))
        assert found.means[j, 0] == pytest.approx(mean, abs=1e-6)
        assert found.covariances[j, 0, 0] == pytest.approx(share @ (x - mean) ** 2, rel=1e-6)
        assert found.weights[j] == pytest.approx(200.0), at


def test_precisions_add_with_the_counts():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, 3, 5))
    S, T = A @ A.T, B @ B.T
    first, second = (
        Mixture(np.array([30.0]), rng.normal(size=(1, 3)), S[None]),
        Mixture(np.array([90.0]), rng.normal(size=(1, 3)), T[None]),
    )
    found = pool([first, second], n_components=1)
    precision = 0.25 * np.linalg.inv(S) + 0.75 * np.linalg.inv(T)
    np.testing.assert_allclose(np.linalg.inv(found.covariances[0]), precision, rtol=1e-9)
    pull = 0.25 * np.linalg.inv(S) @ first.means[0] + 0.75 * np.linalg.inv(T) @ second.means[0]
    np.testing.assert_allclose(precision @ found.means[0], pull, rtol=1e-9)
    diagonal = [part._replace(covariances=np.diagonal(part.covariances, 0, 1, 2)) for part in (first, second)]
    by_column = pool(diagonal, n_components=1)
    expected = 1.0 / (0.25 / np.diag(S) + 0.75 / np.diag(T))
    np.testing.assert_allclose(by_column.covariances[0], expected, rtol=1e-12)


def test_components_of_one_model_keep_the_spread_between_them():
    part = Mixture(np.array([1.0, 3.0]), np.array([[0.0], [4.0]]), np.ones((2, 1, 1)))
    whole = pool([part], n_components=1)
    assert whole.means[0, 0] == pytest.approx(3.0)
    assert whole.covariances[0, 0, 0] == pytest.approx(1.0 + 0.25 * 9 + 0.75 * 1)


def test_what_only_one_model_knows_stays_as_it_is():
    rng = np.random.default_rng(1)
    means = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    S = np.stack([np.cov(rng.normal(size=(2, 50))) for _ in range(3)])
    counts = np.array([500.0, 400.0, 300.0])
    first = Mixture(counts[:2], means[:2], S[:2])
    # The second knows the first hill, as other rows of it show it, and one of its own.
    second = Mixture(np.array([600.0, 300.0]), np.array([[0.05, 0.0], [0.0, 9.0]]), S[[0, 2]])
    found = pool([first, second])
    assert len(found.weights) == 3
    order = np.argsort(found.means @ [1.0, 2.0])
    np.testing.assert_array_equal(found.means[order][1:], means[1:])
    np.testing.assert_array_equal(found.covariances[order][1:], S[1:])
    np.testing.assert_allclose(found.weights[order], [1100.0, 400.0, 300.0])


def test_two_estimates_of_one_distribution_become_one_component():
    """However many rows there are: the difference that is expected by chance costs less than a component."""
    rng = np.random.default_rng(2)
    for n in (100, 3000, 100_000):
        parts = []
        for _ in range(2):
            X = rng.normal(size=(n, 3))
            parts.append(Mixture(np.array([float(n)]), X.mean(axis=0)[None], np.cov(X.T)[None]))
        assert len(pool(parts).weights) == 1
        far = parts[1]._replace(means=parts[1].means + 1.0)
        assert len(pool([parts[0], far]).weights) == 2
    assert len(pool([parts[0], far], max_components=1).weights) == 1
