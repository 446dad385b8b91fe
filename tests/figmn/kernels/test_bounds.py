"""The screen's kernels: distances from products of columns, and which components may matter to a row."""

import numpy as np
import pytest

from everlearn.figmn.kernels import bounds as kernels
from everlearn.figmn.kernels.bounds import Coefficients


@pytest.mark.parametrize("size", [1, 4, 100])
def test_features_are_the_products_of_columns(size):
    Z = np.random.default_rng(6).normal(size=(3, 5)).astype(np.float32)
    expected = np.array([[z[a] * z[b] for a in range(5) for b in range(a, 5)] for z in Z])
    got, pair = [], (0, 0)
    for f in range(0, 15, size):
        part = np.zeros((3, min(size, 15 - f)), dtype=np.float32)
        pair = kernels.fill_features(Z, *pair, part)
        got.append(part)
    np.testing.assert_array_equal(np.concatenate(got, axis=1), expected)


def coefficients(K, D):
    floats = np.empty((K, D * (D + 1) // 2), np.float32), np.empty((K, D), np.float32)
    return Coefficients(*floats, np.empty((K, D)), np.empty(K), np.empty(K))


def test_coefficients_of_a_component_by_hand():
    """(2, 1)' from the centre, with the precision [[3, 1], [1, 2]]: d^2 = 3 a^2 + 2 ab + 2 b^2 - 14 a - 8 b + 18."""
    found = coefficients(2, 2)
    precisions, means = np.array([np.eye(2), [[3.0, 1.0], [np.nan, 2.0]]]), np.array([[0.0, 0.0], [7.0, 6.0]])
    kernels.describe(precisions, means, np.array([1]), np.full(2, 5.0), found)
    assert found.quadratic[1].tolist() == [3.0, 2.0, 2.0]
    assert found.linear[1].tolist() == [-14.0, -8.0]
    assert found.constant[1] == pytest.approx(18.0)
    np.testing.assert_allclose(found.root[1], np.sqrt([3.0, 2.0]))
    assert found.reach[1] == pytest.approx(2.0 * np.sqrt(3.0) + np.sqrt(2.0))


@pytest.mark.parametrize("D", [3, 50])
def test_distances_are_those_of_all_terms_within_their_error(D):
    """50 columns have 1,275 products: more than are summed in one go."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, D, D)) / np.sqrt(D)
    precisions, means = A @ A.transpose(0, 2, 1) + np.eye(D), rng.normal(size=(4, D))
    X, centre = 3.0 * rng.normal(size=(9, D)), rng.normal(size=D)
    found, d2, error = coefficients(5, D), np.empty((9, 3)), np.empty((9, 3))
    kernels.describe(precisions, means, np.arange(4), centre, found)
    kernels.squared_distances(X, 3, centre, found, d2, error)
    E = X[:, None] - means[:3]
    truth = np.einsum("nka,kab,nkb->nk", E, precisions[:3], E)
    assert (np.abs(d2 - truth) <= error).all()
    assert (error < 0.1 * truth).all()


def test_a_pair_that_is_left_out_is_neither_near_nor_changed():
    rng = np.random.default_rng(1)
    n, K = 300, 6
    d2, error = rng.gamma(1.0, 400.0, (n, K)), rng.uniform(0.0, 0.5, (n, K))
    height, counts, weights = rng.normal(0, 5, K), rng.uniform(1, 50, K), rng.uniform(0.5, 2.0, n)
    lower, near = d2.copy(), np.empty((n, K), bool)
    kernels.choose_near(lower, error, height, counts, weights, near)
    np.testing.assert_allclose(lower, 1.0 + np.maximum(d2 - error, 0.0))
    # Whatever the distances are within their errors: a component that is left out has no part of the row.
    for actual in (d2 - error, d2 + error):
        joint = height - 0.5 * np.maximum(actual, 0.0)
        share = weights[:, None] * np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
        assert ((share * (1.0 + actual))[~near] < np.exp(kernels.LOG_NEGLIGIBLE)).all()
        assert near[np.arange(n), actual.argmin(axis=1)].all()
    assert 0.05 < near.mean() < 0.9


def test_nothing_is_left_out_that_is_not_known_or_hardly_counts():
    d2, error = np.array([[1.0, 1e5, np.inf, 1e5]]), np.array([[0.1, 1.0, np.inf, 1.0]])
    near, counts = np.empty((1, 4), bool), np.array([10.0, 10.0, 10.0, 1e-6])
    with np.errstate(invalid="ignore"):  # infinity less infinity, where kernels are not compiled
        kernels.choose_near(d2, error, np.zeros(4), counts, np.ones(1), near)
    assert near.tolist() == [[True, False, True, True]]
    assert d2[0, 2] == 1.0
