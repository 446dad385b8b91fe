"""Mixture states to learn from, and the comparison of two ways to learn."""

import numpy as np
import pytest

from everlearn.figmn import cost_model
from everlearn.figmn import learn as learning
from everlearn.figmn import state as states
from everlearn.figmn.cost_model import Method


def settings_for(D, *, beta=0.0, delta=0.5, max_components=10_000, **changes):
    plain = states.Settings(
        centre=np.zeros(D),
        initial_variance=np.linspace(0.8, 1.2, D) * delta,
        thresholds=states.novelty_thresholds(beta, D),
        paper=False,
        forgetting=1.0,
        min_age=np.inf,
        min_count=0.0,
        max_components=max_components,
        log_scale=np.zeros(D),
    )
    return plain._replace(**changes)


def mixture(rng, D, K, *, spread=1.0, count=30.0, room=40):
    """A state with K correlated components, and with room for more."""
    A = rng.normal(size=(K, D, D)) / np.sqrt(D)
    covariances = A @ np.swapaxes(A, 1, 2) + 0.2 * np.eye(D)
    return states.from_components(
        rng.uniform(0.5, 1.5, K) * count, rng.normal(0, spread, (K, D)), covariances, np.full(K, 5.0), capacity=K + room
    )


def rows_from(rng, state, n, *, outliers=0.0):
    """Rows of the mixture, some of them moved far away."""
    drawn = states.mixture_of(state)
    labels = rng.integers(state.n_components, size=n)
    noise = np.linalg.cholesky(drawn.covariances)[labels] @ rng.normal(size=(n, state.means.shape[1], 1))
    X = drawn.means[labels] + noise[..., 0]
    far = rng.random(n) < outliers
    X[far] += rng.normal(0, 6, (far.sum(), X.shape[1]))
    return X


def learn(method, state, X, settings, weights=None):
    """Learn everything in one way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_model, "choose", lambda D, K, *args, **kwargs: method if K else Method.ROWS)
        weights = np.ones(len(X)) if weights is None else weights
        return learning.learn(states.with_arrays(state, np.copy), X, weights, settings)


def assert_same(got, expected, rtol=1e-10):
    (state, info), (truth, true_info) = got, expected
    K = truth.n_components
    assert state.n_components == K
    assert state.n_rows == truth.n_rows
    np.testing.assert_array_equal(state.ages[:K], truth.ages[:K])
    np.testing.assert_array_equal(info.distance >= 1e300, true_info.distance >= 1e300)
    np.testing.assert_allclose(info.distance, true_info.distance, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(info.log_density, true_info.log_density, rtol=rtol, atol=100 * rtol)
    np.testing.assert_allclose(state.counts[:K], truth.counts[:K], rtol=rtol)
    np.testing.assert_allclose(state.means[:K], truth.means[:K], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(state.log_dets[:K], truth.log_dets[:K], rtol=rtol, atol=rtol)
    size = np.abs(truth.precisions[:K]).max(axis=(1, 2), keepdims=True, initial=0.0)
    np.testing.assert_allclose(state.precisions[:K] / size, truth.precisions[:K] / size, rtol=0, atol=rtol)
    np.testing.assert_array_equal(state.precisions[:K], np.swapaxes(state.precisions[:K], 1, 2))
