"""The mixture with diagonal covariances against its slow twin, and against independent normal columns."""

import numpy as np
import pytest
from scipy.stats import norm

import naive
from everlearn.figmn import ask
from everlearn.figmn import learn as incremental
from everlearn.figmn import state as states
from states import settings_for

D = 4


def rows(n=300, gaps=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 3, (4, D))[rng.integers(4, size=n)] + rng.normal(size=(n, D)) * [1.0, 0.3, 2.0, 0.5]
    X[rng.random(X.shape) < gaps] = np.nan
    return X, rng.uniform(0.5, 2.0, n)


CASES = {
    "plain": ({}, 0.0),
    "gaps": ({}, 0.3),
    "forgetting": ({"forgetting": 0.98}, 0.1),
    "pruning": ({"min_age": 20.0, "min_count": 3.0}, 0.0),
    "the printed rule": ({"paper": True, "beta": 0.0, "delta": 0.2}, 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_learned_as_by_the_twin(case):
    changes, gaps = CASES[case]
    X, weights = rows(gaps=gaps)
    settings = settings_for(D, **{"beta": 1e-3, "centre": np.array([5.0, -1.0, 2.0, 0.5]), **changes})
    prune = None if np.isinf(settings.min_age) else (settings.min_age, settings.min_count)
    twin = naive.IGMN(
        settings.initial_variance,
        lambda d: settings.thresholds[d],
        paper=settings.paper,
        forgetting=settings.forgetting,
        prune=prune,
        centre=settings.centre,
        diagonal=True,
    )
    for x, weight in zip(X, weights, strict=True):
        twin.learn(x, weight)
    state, info = incremental.learn(states.empty(D, diagonal=True), X, weights, settings)
    K = state.n_components
    assert len(twin.means) == K
    assert K > 1 or settings.paper
    np.testing.assert_allclose(state.means[:K], twin.means, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(1.0 / state.precisions[:K], [np.diag(S) for S in twin.covariances], rtol=1e-8)
    np.testing.assert_allclose(state.counts[:K], twin.counts, rtol=1e-8)
    np.testing.assert_array_equal(state.ages[:K], twin.ages)
    np.testing.assert_allclose(info.log_density, twin.log_densities, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(info.distance, twin.distances, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(state.log_dets[:K], -np.log(state.precisions[:K]).sum(axis=1), rtol=1e-9, atol=1e-9)


def test_the_printed_rule_takes_a_row_in_all_columns_or_in_none():
    """A row that is far in one column only would make that variance negative: the other columns do not move either."""
    state = states.from_components(np.array([1.0]), np.zeros((1, D)), np.ones((1, D)), np.ones(1))
    x = np.array([[0.1, 30.0, 0.1, 0.1]])
    after, info = incremental.learn(state, x, np.ones(1), settings_for(D, paper=True, initial_variance=np.ones(D)))
    assert info.skipped_updates == 1
    assert not after.means[0].any()
    assert (after.precisions[0] == 1.0).all()


def test_scores_are_those_of_independent_normal_columns():
    X, weights = rows(gaps=0.3)
    state, _ = incremental.learn(states.empty(D, diagonal=True), X, weights, settings_for(D, beta=1e-3))
    K, log_scale = state.n_components, np.log([1.0, 2.0, 0.5, 4.0])
    found = ask.score(state, X, log_scale, posteriors=True)
    spread = 1.0 / np.sqrt(state.precisions[:K])
    each = norm.logpdf(X[:, None], state.means[:K], spread)
    joint = np.log(state.counts[:K] / state.counts[:K].sum()) + np.nansum(each, axis=2)
    density = np.logaddexp.reduce(joint, axis=1)
    np.testing.assert_allclose(found.posterior, np.exp(joint - density[:, None]), atol=1e-10)
    np.testing.assert_allclose(found.log_density, density - ~np.isnan(X) @ log_scale, rtol=1e-9, atol=1e-9)
    d2 = np.nansum(((X[:, None] - state.means[:K]) / spread) ** 2, axis=2)
    np.testing.assert_allclose(found.distance, d2.min(axis=1), rtol=1e-9, atol=1e-12)
