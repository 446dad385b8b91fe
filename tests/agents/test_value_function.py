"""The value function of an agent against its slow twin, and its laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.agents import value_function
from everlearn.gaussian.mixture import log_joint


def some_settings(d, **changes):
    values = {"beta": 0.3, "max_count": 8.0, "floor": 0.05, "prior_weight": 0.1, "prior_value": 0.7} | changes
    return value_function.make_settings(variances=np.linspace(0.1, 0.2, d + 1), **values)


def some_rows(seed, n, d, A):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    actions = rng.integers(A, size=n)
    return X, actions, np.sin(X.sum(axis=1)) + actions + 0.1 * rng.normal(size=n)


def learned(settings, d, A, capacity, X, actions, values):
    return value_function.learn(value_function.init(d, A, capacity), X, actions, values, settings)


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 3), st.sampled_from([3, 8, 40]))
def test_learns_and_answers_as_the_twin_does(seed, d, A, capacity):
    settings = some_settings(d)
    X, actions, values = some_rows(seed, 60, d, A)
    state = learned(settings, d, A, capacity, X, actions, values)
    twin = naive.ValueFunction(settings, A, capacity)
    for row in zip(X, actions, values, strict=True):
        twin.learn(*row)
    assert state.n_regions == len(twin.regions) <= capacity
    means, variances = value_function.expected_values(state, X, settings)
    expected = np.array([[twin.answer(x, a) for a in range(A)] for x in X])
    np.testing.assert_allclose(means, expected[..., 0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(variances, expected[..., 1], rtol=1e-6, atol=1e-9)


@given(st.integers(0, 2**31), st.booleans(), st.floats(0, 1))
def test_learns_episodes_as_the_twin_does(seed, terminated, trace):
    d, A, settings = 2, 2, some_settings(2)
    state, twin = value_function.init(d, A, 20), naive.ValueFunction(settings, A, 20)
    for episode in range(3):
        X, actions, rewards = some_rows(seed + episode, 12, d, A)
        steps = value_function.Steps(np.vstack([X, X[:1] + 0.1]), actions, rewards, np.full(12, 0.9))
        state, info = value_function.learn_episode(state, steps, settings, terminated=terminated, trace=trace)
        expected = twin.learn_episode(*steps, terminated, trace)
        np.testing.assert_allclose(info.targets, expected, rtol=1e-7, atol=1e-9)
    assert state.n_rows == twin.time == 36


@given(st.integers(0, 2**31), st.integers(1, 29))
def test_any_split_gives_the_same_memory(seed, cut):
    settings = some_settings(2)
    rows = some_rows(seed, 30, 2, 2)
    whole = learned(settings, 2, 2, 10, *rows)
    state = learned(settings, 2, 2, 10, *(part[:cut] for part in rows))
    state = value_function.learn(state, *(part[cut:] for part in rows), settings)
    for a, b in zip(whole, state, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nothing_known_is_the_prior():
    settings = some_settings(2, prior_value=3.0)
    means, variances = value_function.expected_values(value_function.init(2, 3, 5), np.zeros((1, 2)), settings)
    np.testing.assert_array_equal(means, [[3.0, 3.0, 3.0]])
    np.testing.assert_array_equal(variances, np.full((1, 3), settings.variances[2]))


def test_an_action_that_was_not_tried_has_the_prior_where_another_is_known():
    settings = some_settings(1)
    state = learned(settings, 1, 2, 5, np.zeros((1, 1)), np.array([0]), np.array([5.0]))
    means, _ = value_function.expected_values(state, np.zeros((1, 1)), settings)
    assert means[0, 1] == settings.prior_value
    assert means[0, 0] == pytest.approx((5.0 + 0.1 * 0.7) / 1.1)  # one value, and a tenth of the prior


def test_a_linear_value_is_learned_exactly():
    settings = some_settings(2, max_count=np.inf, floor=1e-9, prior_weight=0.0, beta=1e-12)
    X, actions, _ = some_rows(0, 4000, 2, 2)
    state = learned(settings, 2, 2, 5, X, actions, X @ [1.0, -2.0] + 3.0 * actions)
    means, variances = value_function.expected_values(state, X[:50], settings)
    np.testing.assert_allclose(means, (X[:50] @ [1.0, -2.0])[:, None] + [0.0, 3.0], atol=5e-3)
    assert np.sqrt(variances.max()) < 0.02


def test_values_fade_as_the_memory_says():
    settings = some_settings(1, max_count=10.0, prior_weight=0.0)
    state = learned(settings, 1, 1, 1, np.zeros((500, 1)), np.zeros(500, int), np.zeros(500))
    state = value_function.learn(state, np.zeros((20, 1)), np.zeros(20, int), np.ones(20), settings)
    assert value_function.expected_values(state, np.zeros((1, 1)), settings)[0][0, 0] == pytest.approx(1 - 0.9**20)


def test_the_idlest_component_makes_room():
    settings = some_settings(1, prior_weight=0.0)
    X = np.array([[0.0], [10.0], [0.0], [20.0]])
    state = learned(settings, 1, 1, 2, X, np.zeros(4, int), np.zeros(4))
    np.testing.assert_allclose(np.sort(state.means[:, 0]), [0.0, 20.0])


def test_covariances_stay_definite_in_a_long_life():
    rng = np.random.default_rng(0)
    settings = some_settings(3)
    n = 200_000
    X = np.cumsum(rng.normal(size=(n, 3)) * 0.01, axis=0) % 1.0
    X[:, 2] = X[:, 0]  # two observations that are one
    state = learned(settings, 3, 2, 30, X, rng.integers(2, size=n), 1e4 * rng.normal(size=n))
    n = state.n_regions
    assert np.linalg.eigvalsh(state.covariances[:n]).min() > 0
    assert np.linalg.eigvalsh(state.value_covariances[:n][state.value_counts[:n] > 0]).min() > 0
    assert all(np.isfinite(array).all() for array in state[:11])


def test_the_joint_mixture_has_the_regressions_of_its_components():
    settings = some_settings(2)
    X, actions, values = some_rows(1, 300, 2, 2)
    state = learned(settings, 2, 2, 200, X, actions, values)
    mixture, total = value_function.joint_mixture(state, settings)
    n = state.n_regions
    assert 297 < total <= 300.000001  # shares under a hundredth are left out
    gains = np.linalg.solve(mixture.covariances[:, :2, :2], mixture.covariances[:, :2, 2:]).transpose(0, 2, 1)
    known = state.value_counts[:n] > 0
    np.testing.assert_allclose(gains[known], state.slopes[:n][known], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(mixture.means[:, :2], state.means[:n])
    conditional = mixture.covariances[:, 2:, 2:] - gains @ mixture.covariances[:, :2, 2:]
    np.testing.assert_allclose(conditional[:, 0, 1], 0.0, atol=1e-10)
    spreads = np.diagonal(conditional, axis1=1, axis2=2)
    np.testing.assert_allclose(spreads[known], state.residual_variances[:n][known], rtol=1e-8)
    # Wherever it is asked, a component says what the regression of its region says.
    asked = X[:5, None]
    told = mixture.means[:, 2:] + np.einsum("kad,nkd->nka", gains, asked - mixture.means[:, :2])
    offset = asked[:, :, None] - state.value_means[:n, :, :2]
    own = state.value_means[:n, :, 2] + np.einsum("kad,nkad->nka", state.slopes[:n], offset)
    np.testing.assert_allclose(told[:, known], own[:, known], rtol=1e-8, atol=1e-10)
    assert np.isfinite(log_joint(np.column_stack([X, values, values]), mixture)).all()
