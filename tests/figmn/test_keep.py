"""How many components there are: room, merging of the cheapest pair at once, and a floor under variances."""

import itertools

import numpy as np
import pytest

from everlearn.figmn import keep
from everlearn.figmn import learn as learning
from everlearn.figmn import state as states
from everlearn.figmn.kernels.rows import FLOOR
from states import mixture, settings_for


def test_arrays_grow_by_doubling_up_to_the_most_components():
    state, capacities = states.empty(2), []
    settings = settings_for(2, max_components=10)
    for _ in range(3):
        state = keep.make_room(state._replace(n_components=len(state.counts)), settings)
        capacities.append(len(state.counts))
    assert capacities == [4, 8, 10]


def pair_cost(state, i, j):
    """Runnalls' bound of a pair, from its moments."""
    n, mu, S = state.counts, state.means, states.covariances_of(state)
    total = n[i] + n[j]
    d = mu[i] - mu[j]
    merged = (n[i] * S[i] + n[j] * S[j]) / total + n[i] * n[j] / total**2 * np.outer(d, d)
    log_det = [np.linalg.slogdet(C)[1] for C in (merged, S[i], S[j])]
    return 0.5 * (total * log_det[0] - n[i] * log_det[1] - n[j] * log_det[2])


@pytest.mark.parametrize("seed", range(5))
def test_a_full_mixture_merges_its_cheapest_pair(seed):
    rng = np.random.default_rng(seed)
    state = mixture(rng, 3, 6, spread=2.0, room=0)
    costs = {pair: pair_cost(state, *pair) for pair in itertools.combinations(range(6), 2)}
    i, j = min(costs, key=costs.get)
    merged = keep.make_room(states.with_arrays(state, np.copy), settings_for(3, max_components=6, forgetting=0.9))
    left = [k for k in range(6) if k not in (i, j)]
    assert merged.n_components == 5
    expected = np.append(state.counts[left], state.counts[i] + state.counts[j])
    np.testing.assert_allclose(np.sort(merged.counts[:5]), np.sort(expected))
    mean = (state.counts[i] * state.means[i] + state.counts[j] * state.means[j]) / (state.counts[i] + state.counts[j])
    assert np.isclose(merged.means[:5], mean).all(axis=1).any()


def test_every_novel_row_gets_its_component_at_once_however_full():
    """No rows are absorbed while the mixture waits for room: a novel row is the mean of the newest component."""
    X = np.random.default_rng(5).normal(0, 5, (300, 4))
    state, settings = states.empty(4), settings_for(4, beta=0.2, delta=0.3, max_components=12)
    novel_when_full = 0
    for x in X:
        full = state.n_components == 12
        state, info = learning.learn(state, x[None], np.ones(1), settings)
        if info.distance[0] >= settings.thresholds[4]:
            np.testing.assert_array_equal(state.means[state.n_components - 1], x)
            novel_when_full += full
    assert novel_when_full > 20
    np.testing.assert_allclose(state.counts[: state.n_components].sum(), 300.0)


def test_a_single_component_takes_every_row():
    X = np.random.default_rng(0).normal(size=(50, 2)) * 100.0
    state, _ = learning.learn(states.empty(2), X, np.ones(50), settings_for(2, beta=0.5, max_components=1))
    assert state.n_components == 1
    np.testing.assert_allclose(state.means[0], X.mean(axis=0))


@pytest.mark.parametrize("diagonal", [False, True])
def test_thin_components_get_twice_the_least_variance(diagonal):
    state = states.from_components(np.ones(1), np.zeros((1, 2)), np.array([[1.0, 1.0]]), np.ones(1))
    if not diagonal:
        state = states.from_components(np.ones(1), np.zeros((1, 2)), np.eye(2)[None], np.ones(1))
    state.precisions[(0, 1) if diagonal else (0, 1, 1)] = 1e14
    settings = settings_for(2)
    widened = states.covariances_of(keep.widen(state, settings))[0]
    variances = widened if diagonal else np.diagonal(widened)
    np.testing.assert_allclose(variances[1], 1e-14 + 2.0 * FLOOR * settings.initial_variance[1], rtol=1e-6)
    assert variances[0] == pytest.approx(1.0)
