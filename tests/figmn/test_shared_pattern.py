"""Rows with the same gaps, learned and asked together, against one row at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.figmn import ask as scoring
from everlearn.figmn import cost_model as pace
from everlearn.figmn import learn as incremental
from everlearn.figmn import shared_pattern as marginals
from everlearn.figmn import strategy as runs
from everlearn.figmn.cost_model import LARGE, Method
from states import assert_same, learn, mixture, rows_from, settings_for


@given(seed=st.integers(0, 10**6), D=st.integers(2, 8), K=st.integers(1, 4))
def test_the_marginal_is_that_of_the_covariances(seed, D, K):
    rng = np.random.default_rng(seed)
    state = mixture(rng, D, K)
    observed = np.flatnonzero(np.append(rng.random(D - 1) < 0.6, True))
    part = marginals.marginal(state, observed)
    block = incremental.covariances_of(state)[:, observed[:, None], observed]
    np.testing.assert_allclose(np.linalg.inv(part.state.precisions), block, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(part.state.log_dets, np.linalg.slogdet(block)[1], rtol=1e-9, atol=1e-9)
    back = marginals.absorbed(incremental.with_arrays(state, np.copy), part, part.state)
    np.testing.assert_allclose(back.precisions, state.precisions, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(back.means, state.means)


def stretches(rng, X, D):
    """Long stretches with the same gaps, a complete one, and some rows of their own."""
    X = X.copy()
    X[:90, rng.permutation(D)[: D // 3]] = np.nan
    X[150:260, rng.permutation(D)[: D // 2]] = np.nan
    X[270:300][rng.random((30, D)) < 0.3] = np.nan
    X[300] = np.nan
    return X


@pytest.fixture
def always_in_marginals(monkeypatch):
    """Gaps are learned in marginals wherever they come in stretches; returns how many rows were."""
    learned, function = [], runs.learn_in_marginal

    def spy(state, rows, row, *rest):
        result = function(state, rows, row, *rest)
        learned.append(result[1].row - row)
        return result

    monkeypatch.setattr(runs, "learn_in_marginal", spy)
    monkeypatch.setattr(runs, "marginal_pays", lambda *sizes: True)
    monkeypatch.setattr(scoring, "marginal_pays", lambda *sizes: True)
    return learned


CASES = {
    "plain": {},
    "creating": {"beta": 1e-4},
    "pruning": {"beta": 1e-4, "min_age": 12.0, "min_count": 2.5},
    "forgetting": {"forgetting": 0.97},
}


@pytest.mark.parametrize("D", [6, LARGE + 60])
@pytest.mark.parametrize("case", CASES)
def test_stretches_of_gaps_are_learned_as_one_by_one(case, D, always_in_marginals):
    rng = np.random.default_rng(4)
    start = mixture(rng, D, 5, spread=0.6, count=60.0)
    X = stretches(rng, rows_from(rng, start, 400, outliers=0.01), D)
    settings, weights = settings_for(D, **CASES[case]), rng.uniform(0.5, 2.0, 400)
    truth = learn(Method.ROWS, start, X, settings, weights)
    assert not always_in_marginals
    got = learn(Method.BLOCKS, start, X, settings, weights)
    assert_same(got, truth, rtol=1e-8)
    assert sum(always_in_marginals) >= (100 if case in ("creating", "pruning") else 200)
    np.testing.assert_array_equal(got[0].precisions, np.swapaxes(got[0].precisions, 1, 2))


@pytest.mark.parametrize("D", [5, LARGE + 10])
def test_densities_of_few_patterns_are_those_of_the_observed_columns(D, always_in_marginals):
    rng = np.random.default_rng(6)
    state = mixture(rng, D, 3, room=0)
    X = rng.normal(size=(60, D))
    X[::2, 1:3] = np.nan
    X[::3, 4] = np.nan
    X[50] = np.nan
    log_scale = rng.normal(size=D)
    density, distance, posterior = scoring.score(state, X, log_scale, posteriors=True)
    parts = incremental.mixture_of(state)
    joint = naive.log_joint_with_gaps(X, *parts)
    seen = ~np.isnan(X)
    np.testing.assert_allclose(density, np.logaddexp.reduce(joint, axis=1) - seen @ log_scale, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, rtol=1e-12)
    expected = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])
    np.testing.assert_allclose(posterior, expected, rtol=1e-7, atol=1e-10)
    singly = [scoring.score(state, x[None], log_scale)[1][0] for x in X]
    np.testing.assert_allclose(distance, singly, rtol=1e-9, atol=1e-9)


def test_a_marginal_is_made_where_it_pays():
    assert not pace.marginal_pays(34, 75, 10, 1)
    assert pace.marginal_pays(34, 75, 10, 100)
    assert not pace.marginal_pays(4, 3, 1, 50)
    assert pace.marginal_pays(784, 1, 3, 100)
    assert not pace.marginal_pays(784, 1, 300, 100)
