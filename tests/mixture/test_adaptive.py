"""Forgetting that finds its factor: how the members are weighed, and what they remember."""

import numpy as np
import pytest

from everlearn.mixture import adaptive
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.forgetting import fading_of, sample_weights
from mixture_toys import settings_for


def test_weights_follow_bayes_rule_and_a_share_flows_back():
    prior = np.exp(adaptive.log_prior(3))
    assert prior.sum() == pytest.approx(1.0)
    assert prior[-1] == adaptive.PRIOR_OF_THE_LONGEST
    w, density = np.array([0.2, 0.3, 0.5]), np.array([-1.0, -2.0, -3.0])
    posterior = w * np.exp(density) / (w @ np.exp(density))
    wanted = (1.0 - adaptive.SHARE) * posterior + adaptive.SHARE * prior
    np.testing.assert_allclose(np.exp(adaptive._reweighed(np.log(w), density)), wanted)


def test_one_row_says_only_so_much_and_the_warm_up_nothing():
    w = np.log(np.full(2, 0.5))
    after = np.exp(adaptive._reweighed(w, np.array([-5000.0, -1.0])))
    assert after[1] / after[0] == pytest.approx(np.exp(adaptive.MOST_EVIDENCE), rel=0.05)
    np.testing.assert_array_equal(adaptive._reweighed(w, np.array([np.nan, np.nan])), w)


def test_members_remember_longer_the_more_columns_there_are():
    few, many = (adaptive.settings_of_members(settings_for(D), D) for D in (2, 11))
    lengths = [[1.0 / (1.0 - np.exp(-one.fading.rate)) for one in members[:-1]] for members in (few, many)]
    np.testing.assert_allclose(lengths[0], adaptive.CAPS[:-1])
    np.testing.assert_allclose(lengths[1], 2.0 * np.array(adaptive.CAPS[:-1]))
    assert few[-1].fading.rate == many[-1].fading.rate == 0.0


def test_another_factor_leaves_rows_with_the_weight_that_they_have_now():
    model = IncrementalGaussianMixture(1, forgetting=0.99, reservoir=200).partial_fit(np.arange(600.0)[:, None])
    old, new = fading_of(0.99, 200), fading_of(0.999, 200)
    state = model._state_
    other = adaptive.with_fading(state, old, new)
    before, after = sample_weights(state.reservoir, old), sample_weights(other.reservoir, new)
    np.testing.assert_array_equal(before.slots, after.slots)
    np.testing.assert_allclose(before.weights * before.ratio, after.weights * after.ratio, rtol=1e-9)
    assert not np.shares_memory(other.model.components.means, state.model.components.means)


@pytest.mark.slow
def test_outliers_are_no_evidence_for_a_change():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 2))
    X[rng.random(2000) < 0.02] *= 30.0
    model = IncrementalGaussianMixture(forgetting="adaptive").partial_fit(X)
    assert adaptive.answering(model._state_) == len(adaptive.CAPS) - 1
