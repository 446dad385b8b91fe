"""Forgetting by a fixed factor and by one that is found."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everlearn
from everlearn.mixture.estimator import IncrementalGaussianMixture
from examples import examples


def drifting(n, rate, seed=0):
    """Two groups whose centres move by `rate` in each row."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + 8.0 * rng.integers(2, size=(n, 1)) + rate * np.arange(n)[:, None]


@functools.cache
def in_one_batch(forgetting):
    return everlearn.dumps(IncrementalGaussianMixture(forgetting=forgetting).partial_fit(drifting(900, 0.01)))


@examples(4)
@given(cuts=st.lists(st.integers(0, 900), max_size=5), forgetting=st.sampled_from([0.95, 0.995, "adaptive"]))
def test_any_split_into_batches_gives_the_same_model(cuts, forgetting):
    parts = IncrementalGaussianMixture(forgetting=forgetting)
    for part in np.split(drifting(900, 0.01), sorted(cuts)):
        if len(part):
            parts.partial_fit(part)
    assert everlearn.dumps(parts) == in_one_batch(forgetting)


@pytest.mark.parametrize("factor", [0.98, 0.995, 0.999])
def test_one_component_is_the_exponentially_weighted_mean(factor):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2)) + np.linspace(0, 5, 3000)[:, None]
    model = IncrementalGaussianMixture(1, forgetting=factor).partial_fit(X)
    w = factor ** np.arange(len(X))[::-1]
    mean = w @ X / w.sum()
    covariance = (w[:, None] * (X - mean)).T @ (X - mean) / w.sum()
    # Rows inside a step of 2 % of the memory weigh the same; a component is renewed when it has grown by a tenth.
    np.testing.assert_allclose(model.means_[0], mean, atol=0.12)
    np.testing.assert_allclose(model.covariances_[0], covariance, atol=0.25)
    assert model.effective_samples_ == pytest.approx(w.sum(), rel=0.03)


@pytest.mark.parametrize("n", [150, 1000, 1900, 2000, 2200])
def test_rows_fade_during_the_warm_up_and_while_a_search_is_under_way_too(n):
    X = np.random.default_rng(1).normal(size=(n, 2))
    model = IncrementalGaussianMixture(1, forgetting=0.999).partial_fit(X)
    assert model.effective_samples_ == pytest.approx((0.999 ** np.arange(n)).sum(), rel=0.03)
    assert IncrementalGaussianMixture(1).partial_fit(X).effective_samples_ == pytest.approx(n)


@pytest.mark.slow
def test_what_no_longer_holds_is_forgotten():
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(0, 1, (1500, 2)), rng.normal(30, 1, (1500, 2))])
    for forgetting in (0.99, "adaptive"):
        model = IncrementalGaussianMixture(forgetting=forgetting).partial_fit(X)
        assert model.weights_[model.means_[:, 0] < 15].sum() < 0.01
    kept = IncrementalGaussianMixture().partial_fit(X)
    assert kept.weights_[kept.means_[:, 0] < 15].sum() == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "best"), [(0.0, 1.0), (0.02, 0.98)])
def test_adaptive_is_as_good_as_the_best_factor(rate, best):
    X = drifting(2000, rate)
    lost = []
    for forgetting in (best, "adaptive"):
        log_density = IncrementalGaussianMixture(forgetting=forgetting).prequential(X)
        lost.append(log_density[1000:].mean())
    assert lost[1] > lost[0] - 0.03


@pytest.mark.parametrize("forgetting", [0.98, "adaptive"])
def test_files_and_merging(forgetting):
    a, b = (IncrementalGaussianMixture(forgetting=forgetting).partial_fit(drifting(800, 0.0, seed)) for seed in (4, 5))
    loaded = everlearn.loads(everlearn.dumps(a))
    more = drifting(300, 0.0, 6)
    assert everlearn.dumps(loaded.partial_fit(more)) == everlearn.dumps(a.copy().partial_fit(more))
    merged = a + b
    assert everlearn.dumps(merged) == everlearn.dumps(b + a)
    assert merged.n_components_ == 2
    assert merged.score(more) == pytest.approx(a.score(more), abs=0.2)
    merged.partial_fit(more)
