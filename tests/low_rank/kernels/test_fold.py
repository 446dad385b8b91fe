"""Folding rows into a sketch."""

import numpy as np
import pytest

from everlearn.low_rank.kernels.fold import fold
from everlearn.low_rank.state import Settings, no_components, nothing_waiting
from naive import low_rank as naive


def folded(X, weights, sizes, rank, fading=1.0):
    settings = Settings(rank, max(sizes), 50, 500, 16, 0, 64, fading, 2**60, 0)
    c, waiting = no_components(1, X.shape[1], rank), nothing_waiting(1, X.shape[1], settings)
    at = 0
    for size in sizes:
        waiting.rows[0, :size], waiting.weights[0, :size] = X[at : at + size], weights[at : at + size]
        waiting.size[0] = size
        fold(c, waiting, 0, fading)
        at += size
    return c


@pytest.mark.parametrize("sizes", [(20,), (1, 3, 16), (1,) * 20])
def test_with_room_for_all_directions_nothing_is_lost(sizes):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(20, 12)) + 5.0, rng.uniform(0.5, 2.0, 20)
    X[:, 7] = X[:, 2]  # of rank 11
    c = folded(X, w, sizes, 11)
    n, mean, S = naive.scatter_of(X, w)
    U, a = c.directions[0, : c.used[0]], c.scatter[0, : c.used[0]]
    np.testing.assert_allclose((U.T * a) @ U, S, atol=1e-9)
    np.testing.assert_allclose(U @ U.T, np.eye(len(U)), atol=1e-9)
    assert c.n[0] == pytest.approx(n)
    np.testing.assert_allclose(c.mean[0], mean, rtol=1e-12)


def test_mean_trace_and_diagonal_are_exact_whatever_is_cut():
    rng = np.random.default_rng(1)
    X, w = rng.normal(size=(60, 30)), np.ones(60)
    c = folded(X, w, (4,) * 15, 3)
    _, mean, S = naive.scatter_of(X, w)
    assert c.used[0] == 3
    np.testing.assert_allclose(c.mean[0], mean, atol=1e-12)
    np.testing.assert_allclose(c.diagonal[0], np.diag(S), rtol=1e-12)
    assert c.trace[0] == pytest.approx(np.trace(S), rel=1e-12)


def test_held_out_energies_are_of_rows_not_seen():
    """Along directions of noise, rows that were folded in have more energy than rows that were not."""
    rng = np.random.default_rng(2)
    c = folded(rng.normal(size=(60, 300)), np.ones(60), (5,) * 12, 8)
    assert (c.held[0] < 0.7 * c.expected[0]).all()
    assert c.residual[0] / c.held_rows[0] == pytest.approx(292.0, rel=0.1)


def test_forgetting_counts_own_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 6))
    c = folded(X, np.ones(30), (1,) * 30, 5, fading=0.9)
    _, mean, S = naive.scatter_of(X, 0.9 ** np.arange(29, -1, -1))
    np.testing.assert_allclose(c.mean[0], mean, rtol=1e-9)
    np.testing.assert_allclose(c.diagonal[0], np.diag(S), rtol=1e-9)
