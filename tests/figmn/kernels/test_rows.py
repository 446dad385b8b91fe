"""The compiled incremental mixture against its slow twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.figmn import learn as incremental
from everlearn.figmn import state as states

LONG = 500  # rows


def settings_for(D, *, beta=0.05, delta=0.5, max_components=10_000, **changes):
    plain = states.Settings(
        centre=np.zeros(D),
        initial_variance=np.full(D, delta),
        thresholds=states.novelty_thresholds(beta, D),
        paper=False,
        forgetting=1.0,
        min_age=np.inf,
        min_count=0.0,
        max_components=max_components,
        log_scale=np.zeros(D),
    )
    return plain._replace(**changes)


def twin_of(settings):
    prune = None if np.isinf(settings.min_age) else (settings.min_age, settings.min_count)
    return naive.IGMN(
        settings.initial_variance,
        lambda d: settings.thresholds[d],
        paper=settings.paper,
        forgetting=settings.forgetting,
        prune=prune,
        centre=settings.centre,
    )


def clustered_rows(rng, n, D, clusters=4, gaps=0.0):
    centres = rng.normal(0, 2, (clusters, D))
    X = centres[rng.integers(clusters, size=n)] + rng.normal(0, 0.5, (n, D)) @ rng.normal(0, 1, (D, D))
    X[rng.random(X.shape) < gaps] = np.nan
    return X


def assert_same(state, twin, rtol=1e-9):
    K = state.n_components
    assert len(twin.means) == K
    if K == 0:
        return
    np.testing.assert_allclose(state.means[:K], twin.means, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(state.counts[:K], twin.counts, rtol=rtol)
    np.testing.assert_array_equal(state.ages[:K], twin.ages)
    covariances = np.array(twin.covariances)
    scale = np.abs(covariances).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(states.covariances_of(state) / scale, covariances / scale, atol=rtol)
    np.testing.assert_allclose(state.log_dets[:K], np.linalg.slogdet(covariances)[1], rtol=rtol, atol=rtol)


CASES = {
    "plain": ({}, 0.0),
    "pruning": ({"min_age": 20.0, "min_count": 3.0}, 0.0),
    "forgetting": ({"forgetting": 0.99}, 0.0),
    "gaps": ({}, 0.3),
    "gaps, pruning, forgetting": ({"min_age": 20.0, "min_count": 2.0, "forgetting": 0.995}, 0.4),
    "single component": ({"thresholds": np.full(6, np.inf)}, 0.1),
}


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_covariance_form_over_a_long_stream(case):
    changes, gaps = CASES[case]
    rng = np.random.default_rng(3)
    X = clustered_rows(rng, LONG, 5, gaps=gaps)
    settings = settings_for(5, beta=1e-3, **changes)
    weights = rng.uniform(0.5, 2.0, len(X))
    twin = twin_of(settings)
    for x, weight in zip(X, weights, strict=True):
        twin.learn(x, weight)
    state, info = incremental.learn(states.empty(5), X, weights, settings)
    assert case == "single component" or state.n_components > 3
    assert_same(state, twin)
    np.testing.assert_allclose(info.log_density, twin.log_densities, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(info.distance, twin.distances, rtol=1e-7, atol=1e-9)


def test_pruning_case_prunes():
    settings = settings_for(5, beta=1e-3)
    X = clustered_rows(np.random.default_rng(3), 2000, 5)
    without, _ = incremental.learn(states.empty(5), X, np.ones(len(X)), settings)
    pruned, _ = incremental.learn(states.empty(5), X, np.ones(len(X)), settings._replace(min_age=20.0, min_count=3.0))
    assert pruned.n_components < without.n_components


@given(seed=st.integers(0, 10**6), D=st.integers(1, 4), n=st.integers(1, 60), gaps=st.sampled_from([0.0, 0.3, 0.7]))
def test_agrees_with_the_covariance_form_on_any_short_stream(seed, D, n, gaps):
    X = clustered_rows(np.random.default_rng(seed), n, D, gaps=gaps)
    settings = settings_for(D, beta=0.3)
    twin = twin_of(settings)
    for x in X:
        twin.learn(x)
    state, _ = incremental.learn(states.empty(D), X, np.ones(n), settings)
    assert_same(state, twin, rtol=1e-7)


def test_exact_rule_is_the_weighted_scatter_with_one_prior():
    """One component: Sigma = (initial + sum (x - mu)(x - mu)')/n for any n, by definition."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 3)) + 5.0
    settings = settings_for(3, beta=0.0)
    state, _ = incremental.learn(states.empty(3), X, np.ones(300), settings)
    scatter = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
    expected = (np.diag(settings.initial_variance) + scatter) / 300
    np.testing.assert_allclose(states.covariances_of(state)[0], expected, rtol=1e-11)
    np.testing.assert_allclose(state.means[0], X.mean(axis=0), rtol=1e-12)


def test_printed_rule_agrees_with_its_twin_and_reports_what_it_skips():
    rng = np.random.default_rng(1)
    X = rng.normal(0, 3, (200, 3))
    settings = settings_for(3, beta=0.0, paper=True)
    twin = twin_of(settings)
    for x in X:
        twin.learn(x)
    state, info = incremental.learn(states.empty(3), X, np.ones(200), settings)
    assert info.skipped_updates > 0
    np.testing.assert_allclose(states.covariances_of(state), twin.covariances, rtol=1e-8)


@pytest.mark.parametrize("size", [1e3, 1e9, 1e30, 1e60])
def test_an_outlier_of_any_size_leaves_positive_definite_covariances(size):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(100, 4))
    X[50] = size * np.array([1.0, -1.0, 0.5, 0.25])
    X[70, :2] = np.nan
    state, _ = incremental.learn(states.empty(4), X, np.ones(100), settings_for(4, beta=0.0))
    np.linalg.cholesky(state.precisions[0])
    np.linalg.cholesky(states.covariances_of(state)[0])
    assert np.all(np.isfinite(state.log_dets[:1]))


def test_a_full_mixture_merges_and_goes_on():
    rng = np.random.default_rng(4)
    X = rng.normal(0, 10, (200, 3))
    settings = settings_for(3, beta=0.5, delta=0.1, max_components=12)
    state, _ = incremental.learn(states.empty(3), X, np.ones(200), settings)
    assert state.n_components <= 12
    assert state.counts[: state.n_components].sum() == pytest.approx(200)
    assert len(state.means) <= 12
