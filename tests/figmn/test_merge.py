"""Two mixtures into one: coordinates, side by side, fewer components."""

import numpy as np
import pytest

from everlearn.base.scaling import frame_of_rows
from everlearn.figmn import ask, merge
from everlearn.figmn import state as states
from states import mixture


def test_the_frame_of_parts_is_the_frame_of_all_rows():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(300, 3)), rng.normal(5.0, 4.0, (700, 3))
    pooled = merge.pooled_frame([frame_of_rows(A), frame_of_rows(B)], np.array([300, 700]))
    whole = frame_of_rows(np.concatenate([A, B]))
    np.testing.assert_allclose(pooled.variance * pooled.scale**2, whole.variance * whole.scale**2, rtol=1e-10)
    np.testing.assert_allclose(pooled.centre * pooled.scale, whole.centre * whole.scale, rtol=1e-10)


def test_another_frame_is_the_same_mixture():
    rng = np.random.default_rng(1)
    state, X = mixture(rng, 3, 4, room=0), rng.normal(size=(20, 3))
    old, new = frame_of_rows(X), frame_of_rows(X * [8.0, 0.5, 1.0])
    moved = merge.in_frame(state, old, new)
    before = ask.score(state, X / old.scale, np.log(old.scale)).log_density
    after = ask.score(moved, X / new.scale, np.log(new.scale)).log_density
    np.testing.assert_allclose(after, before, rtol=1e-12)


def test_side_by_side_the_density_is_the_mean_by_counts():
    rng = np.random.default_rng(2)
    a, b = (mixture(rng, 2, K, room=3) for K in (2, 3))
    both = merge.joined([a, b], np.array([1.0, 2.0]))
    X = rng.normal(size=(15, 2))
    weights = np.array([a.counts[:2].sum(), 2.0 * b.counts[:3].sum()])
    parts = [np.exp(ask.score(state, X, np.zeros(2)).log_density) for state in (a, b)]
    expected = np.log((weights / weights.sum()) @ parts)
    assert both.n_components == 5
    np.testing.assert_allclose(ask.score(both, X, np.zeros(2)).log_density, expected, rtol=1e-10)


@pytest.mark.parametrize("n_components", [1, 2, 4])
def test_fewer_components_keep_the_counts_and_the_mean(n_components):
    rng = np.random.default_rng(3)
    state = mixture(rng, 3, 4)
    fewer = merge.reduced(state, n_components)
    K = fewer.n_components
    assert K == n_components
    np.testing.assert_allclose(fewer.counts[:K].sum(), state.counts[:4].sum(), rtol=1e-12)
    mean = state.counts[:4] @ state.means[:4] / state.counts[:4].sum()
    np.testing.assert_allclose(fewer.counts[:K] @ fewer.means[:K] / fewer.counts[:K].sum(), mean, atol=1e-10)


def test_merging_leaves_its_arguments():
    rng = np.random.default_rng(4)
    state = mixture(rng, 2, 3)
    before = states.copied(state)
    merge.joined([state, state], np.ones(2))
    merge.reduced(state, 1)
    for array, kept in zip(state[:5], before[:5], strict=True):
        np.testing.assert_array_equal(array[:3], kept[:3])
