"""Rows with gaps against the covariance form, where few and where many columns are missing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.figmn import ask as scoring
from everlearn.figmn import learn as incremental
from everlearn.figmn import state as states
from everlearn.figmn.kernels.missing import LANE_COLUMNS, LANES


def mixture(rng, D, K):
    A = rng.normal(size=(K, D, D)) / np.sqrt(D)
    covariances = A @ np.swapaxes(A, 1, 2) + 0.2 * np.eye(D)
    counts, means = rng.uniform(5.0, 50.0, K), rng.normal(size=(K, D))
    return states.from_components(counts, means, covariances, np.ones(K)), (counts, means, covariances)


def rows_with_gaps(rng, n, D, share):
    X = rng.normal(size=(n, D))
    X[rng.random((n, D)) < share] = np.nan
    X[:, rng.integers(D)] = 0.5
    return X


def settings_for(D, **changes):
    plain = states.Settings(
        np.zeros(D), np.full(D, 0.5), np.full(D + 1, np.inf), False, 1.0, np.inf, 0.0, 100, np.zeros(D)
    )
    return plain._replace(**changes)


@given(seed=st.integers(0, 10**6), D=st.integers(1, 40), K=st.integers(1, 2 * LANES + 1), share=st.floats(0.0, 0.95))
def test_densities_are_those_of_the_observed_columns(seed, D, K, share):
    rng = np.random.default_rng(seed)
    state, components = mixture(rng, D, K)
    X = rows_with_gaps(rng, 4, D, share)
    density, distance, posterior = scoring.score(state, X, np.zeros(D), posteriors=True)
    joint = naive.log_joint_with_gaps(X, *components)
    expected = np.logaddexp.reduce(joint, axis=1)
    np.testing.assert_allclose(density, expected - np.log(components[0].sum()), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior, np.exp(joint - expected[:, None]), rtol=1e-7, atol=1e-9)
    seen = [~np.isnan(x) for x in X]
    nearest = [
        min(naive.mahalanobis(x[s][None], m[s], S[np.ix_(s, s)])[0] for m, S in zip(*components[1:], strict=True))
        for x, s in zip(X, seen, strict=True)
    ]
    np.testing.assert_allclose(distance, nearest, rtol=1e-8, atol=1e-10)


def agrees_with_the_covariance_form(rng, D, share, settings):
    K = LANES + 2
    state, (counts, means, covariances) = mixture(rng, D, K)
    X = rows_with_gaps(rng, 12, D, share)
    twin = naive.IGMN(settings.initial_variance, lambda d: np.inf, paper=settings.paper, forgetting=settings.forgetting)
    twin.means, twin.covariances = list(means), list(covariances)
    twin.counts, twin.ages = list(counts), [1.0] * K
    for x in X:
        twin.learn(x)
    state, _ = incremental.learn(state, X, np.ones(12), settings)
    np.testing.assert_allclose(state.counts[:K], twin.counts, rtol=1e-9)
    np.testing.assert_allclose(state.means[:K], twin.means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(states.covariances_of(state), twin.covariances, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(state.precisions, np.swapaxes(state.precisions, 1, 2))


@pytest.mark.parametrize("share", [0.2, 0.9])
@pytest.mark.parametrize("changes", [{}, {"paper": True}, {"forgetting": 0.9}])
def test_learning_agrees_with_the_covariance_form(share, changes):
    """Few gaps are eliminated in lanes, many one by one; 0.9 of 35 columns is more than the lanes take."""
    D = 35
    assert 0.9 * D > LANE_COLUMNS + 3
    agrees_with_the_covariance_form(np.random.default_rng(5), D, share, settings_for(D, **changes))


@pytest.mark.parametrize("D", [2, 7, 8, 9, 16, 31, 32, 33])
def test_learning_agrees_for_any_number_of_columns(D):
    agrees_with_the_covariance_form(np.random.default_rng(D), D, 0.4, settings_for(D))


@pytest.mark.parametrize("gaps", [3, LANE_COLUMNS + 2])
def test_a_block_of_gaps_without_a_factor_has_no_distance(gaps):
    """Two negative pivots have a positive product, and are found all the same."""
    D = gaps + 1
    precision = np.eye(D)
    precision[1, 1] = precision[2, 2] = -1.0
    state = states.from_components(np.ones(2), np.zeros((2, D)), np.array([np.eye(D)] * 2), np.ones(2))
    state.precisions[1] = precision
    x = np.full((1, D), np.nan)
    x[0, 0] = 1.0
    _, distance, _ = scoring.score(state, x, np.zeros(D))
    assert np.isnan(distance[0])


def test_gaps_of_components_of_any_size_are_measured():
    """Twenty gaps of tiny or huge precision: no product of pivots may overflow."""
    D = 21
    for size in (1e-100, 1e100):
        state = states.from_components(np.ones(1), np.zeros((1, D)), size * np.eye(D)[None], np.ones(1))
        x = np.full((1, D), np.nan)
        x[0, 0] = 0.0
        density, _, _ = scoring.score(state, x, np.zeros(D))
        np.testing.assert_allclose(density, -0.5 * np.log(2 * np.pi * size), rtol=1e-12)
