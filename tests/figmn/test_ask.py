"""Densities, distances, responsibilities and conditionals against covariances and one row at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.figmn import ask
from everlearn.figmn import state as states
from everlearn.gaussian import conditional
from everlearn.linalg.backend import LARGE
from states import mixture, rows_from


@given(seed=st.integers(0, 10**6), D=st.integers(2, 8), K=st.integers(1, 4))
def test_the_marginal_is_that_of_the_covariances(seed, D, K):
    rng = np.random.default_rng(seed)
    state = mixture(rng, D, K)
    observed = np.flatnonzero(np.append(rng.random(D - 1) < 0.6, True))
    part = ask.marginal(state, observed)
    block = states.covariances_of(state)[:, observed[:, None], observed]
    np.testing.assert_allclose(np.linalg.inv(part.precisions[:K]), block, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(part.log_dets[:K], np.linalg.slogdet(block)[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("D", [5, LARGE + 10])
def test_densities_of_few_patterns_are_those_of_the_observed_columns(D):
    rng = np.random.default_rng(6)
    state = mixture(rng, D, 3, room=0)
    X = rng.normal(size=(60, D))
    X[::2, 1:3] = np.nan
    X[::3, 4] = np.nan
    X[50] = np.nan
    log_scale = rng.normal(size=D)
    density, distance, posterior = ask.score(state, X, log_scale, posteriors=True)
    parts = states.mixture_of(state)
    joint = naive.log_joint_with_gaps(X, *parts)
    seen = ~np.isnan(X)
    np.testing.assert_allclose(density, np.logaddexp.reduce(joint, axis=1) - seen @ log_scale, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, rtol=1e-12)
    expected = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    np.testing.assert_allclose(posterior, expected, rtol=1e-7, atol=1e-10)
    singly = [ask.score(state, x[None], log_scale)[1][0] for x in X]
    np.testing.assert_allclose(distance, singly, rtol=1e-9, atol=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 4), st.booleans())
def test_a_few_rows_are_answered_like_many(seed, D, K, gaps):
    rng = np.random.default_rng(seed)
    state = mixture(rng, D, K)
    X = rows_from(rng, state, 5, outliers=0.2)
    if gaps:
        X[rng.random(X.shape) < 0.3] = np.nan
    target = rng.permutation(D)[: rng.integers(1, D + 1)]
    expected = conditional.mean(ask.condition(state, X, target))
    np.testing.assert_allclose(ask.conditional_mean(state, X, target), expected, rtol=1e-8, atol=1e-10)


def test_a_precision_that_is_not_definite_is_repaired_on_the_way():
    rng = np.random.default_rng(0)
    state = mixture(rng, 3, 2)
    state.precisions[0, 1:, 1:] = 1.0  # singular
    X = np.array([[0.1, 0.2, 0.3]])
    answer = ask.conditional_mean(state, X, np.array([1, 2]))
    assert np.isfinite(answer).all()
    assert answer == pytest.approx(conditional.mean(ask.condition(state, X, np.array([1, 2]))))
