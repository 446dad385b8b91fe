"""What is carried over, and merging of sketches."""

import numpy as np
import pytest

from everlearn.low_rank.keep.reconsider import carried, merged
from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.state import Settings, joined
from naive import low_rank as naive

SETTINGS = Settings(12, 8, 50, 500, 16, 0, 64, 1.0, 2**60, 0)


def test_merging_is_exact_up_to_the_cut():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(30, 12)) + 3.0 * (np.arange(30)[:, None] > 14), rng.uniform(0.5, 2.0, 30)
    halves = joined([component_of_rows(X[i::2], w[i::2], SETTINGS) for i in (0, 1)])
    c = merged(halves)
    n, mean, S = naive.scatter_of(X, w)
    U, a = c.directions[0, : c.used[0]], c.scatter[0, : c.used[0]]
    # Eleven of the twelve directions are kept.
    values = np.linalg.eigvalsh(S)
    np.testing.assert_allclose(a, values[::-1][:11], rtol=0.05)
    np.testing.assert_allclose(U @ U.T, np.eye(len(U)), atol=1e-9)
    np.testing.assert_allclose(c.mean[0], mean, rtol=1e-12)
    np.testing.assert_allclose(c.diagonal[0], np.diag(S), rtol=1e-9)
    assert c.n[0] == pytest.approx(n)
    assert c.trace[0] == pytest.approx(np.trace(S))


def test_components_of_the_same_rows_are_carried_over():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 10))
    labels = np.arange(80) // 40
    before = joined([component_of_rows(X[labels == k], np.full(40, 5.0), SETTINGS) for k in range(2)])
    found = joined([component_of_rows(X[labels == k], np.ones(40), SETTINGS) for k in range(2)])
    same = carried(before, labels, found, labels, np.array([0.7, 0.3]))
    np.testing.assert_array_equal(same.n, 200.0)
    np.testing.assert_array_equal(same.mass, 200.0)
    mixed = carried(before, np.arange(80) % 2, found, labels, np.array([0.7, 0.3]))
    np.testing.assert_array_equal(mixed.n, 40.0)
    np.testing.assert_allclose(mixed.mass, [280.0, 120.0])
    one = carried(before, labels, component_of_rows(X, np.ones(80), SETTINGS), np.zeros(80, np.intp), np.ones(1))
    assert one.n[0] == 400.0
