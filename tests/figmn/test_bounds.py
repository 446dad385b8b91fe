"""The bounds hold, are sharp enough to be of use, and stay valid while components learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.figmn import bounds
from everlearn.figmn import learn as learning
from everlearn.linalg.backend import LARGE
from states import mixture, rows_from, settings_for


def exact_distances(X, means, precisions):
    E = X[:, None].astype(np.longdouble) - means
    return np.einsum("nka,kab,nkb->nk", E, precisions.astype(np.longdouble), E)


@given(
    seed=st.integers(0, 10**6),
    D=st.integers(1, 50) | st.just(LARGE + 5),
    offset=st.sampled_from([0.0, 10.0, 1e4]),
    condition=st.sampled_from([1.0, 1e3, 1e8]),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_bounds_of_the_screen_hold(seed, D, offset, condition, scale):
    rng = np.random.default_rng(seed)
    K, n = 4, 12
    Q = np.linalg.qr(rng.normal(size=(K, D, D)))[0]
    precisions = (Q * condition ** rng.uniform(-0.5, 0.5, (K, 1, D))) @ np.swapaxes(Q, 1, 2) / scale**2
    precisions = 0.5 * (precisions + np.swapaxes(precisions, 1, 2))
    means = scale * (offset + rng.normal(size=(K, D)))
    X = scale * (offset + rng.normal(0, 3, (n, D)))
    known = bounds.bounds_of(means.mean(axis=0) + scale * rng.normal(size=D), means, np.triu(precisions), K)
    d2, error = bounds.squared_distances(known, X, K)
    truth = exact_distances(X, means, precisions)
    assert np.all(np.abs(d2 - truth) <= error)
    assert np.all(bounds.lower_bounds(known, X, K) <= 1.0 + truth)


@pytest.mark.parametrize("D", [34, LARGE])
def test_the_screen_is_sharp_enough_to_be_of_use(D):
    rng = np.random.default_rng(0)
    state = mixture(rng, D, 20, spread=5.0, room=0)
    known = bounds.bounds_of(np.zeros(D), state.means, state.precisions, 20)
    X = rows_from(rng, state, 50)
    d2, error = bounds.squared_distances(known, X, 20)
    assert np.median(error / d2) < 0.01


@pytest.mark.parametrize("D", [3, LARGE])
@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e60])
def test_sizes_beyond_single_precision_are_evaluated(scale, D):
    rng = np.random.default_rng(1)
    state = mixture(rng, D, 4, room=0)
    known = bounds.bounds_of(np.zeros(D), state.means, state.precisions, 4)
    X = scale * rng.normal(size=(10, D))
    truth = exact_distances(X, state.means, state.precisions)
    assert np.all(bounds.lower_bounds(known, X, 4) <= 1.0 + truth)


def test_bounds_hold_while_components_learn():
    """After any updates 1 + d^2 is at least its bound times the product of 1/(1 + w d^2)."""
    rng = np.random.default_rng(9)
    state = mixture(rng, 6, 1, count=1.5, room=0)
    X = rng.normal(0, 3, (30, 6))
    first = 1.0 + exact_distances(X, state.means, state.precisions)[:, 0]
    shrink, settings = 1.0, settings_for(6)
    for t in range(30):
        d2 = exact_distances(X[t : t + 1], state.means, state.precisions)[0, 0]
        shrink /= 1.0 + d2 / (state.counts[0] + 1.0)
        state, _ = learning.learn(state, X[t : t + 1], np.ones(1), settings)
        now = 1.0 + exact_distances(X, state.means, state.precisions)[:, 0]
        assert np.all(now >= first * shrink * (1.0 - 1e-9))
    assert shrink < 1e-3
