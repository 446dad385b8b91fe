"""What a forgetting factor means for components and searches, and what sampled rows count for."""

import numpy as np
import pytest

from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.forgetting import FADED, fading_of, sample_weights
from everlearn.mixture.state import Reservoir


@pytest.mark.parametrize("factor", [0.9, 0.99, 0.9999])
def test_steps_fade_by_as_much_as_their_rows_would(factor):
    rate, every, step, interval = fading_of(factor, 200)
    assert np.exp(-rate) == pytest.approx(factor)
    assert step == pytest.approx(np.prod(np.full(every, factor)))
    assert 1 <= every <= max(1.0, 0.02 / (1.0 - factor) + 1e-6)
    assert interval == max(200, round(1.0 / (1.0 - factor)))


def test_a_factor_of_one_forgets_nothing():
    rate, _, step, interval = fading_of(1.0, 200)
    assert (rate, step) == (0.0, 1.0)
    assert interval > 10**15


def sample(log_weights, level, offered):
    n = len(log_weights)
    rows = np.zeros((n, 1), np.float32)
    return Reservoir(rows, np.array(log_weights), np.zeros(n), np.array([n]), np.array([level]), np.array([offered]))


def test_rows_of_a_full_sample_stand_for_all_rows():
    """Ten rows of weight one and a threshold of three: each stands for three rows."""
    slots, weights, ratio = sample_weights(sample(np.zeros(10), np.log(3.0), 30), fading_of(1.0, 200))
    assert slots.tolist() == list(range(10))
    np.testing.assert_allclose(weights, 1.0)
    assert ratio == pytest.approx(3.0)


def test_a_row_above_the_threshold_stands_for_itself():
    _, weights, ratio = sample_weights(sample(np.log([1.0, 1.0, 8.0]), np.log(4.0), 30), fading_of(1.0, 200))
    np.testing.assert_allclose(weights * ratio, [4.0, 4.0, 8.0])
    assert weights.sum() == pytest.approx(10.0)


def test_a_sample_of_all_rows_stands_for_itself_and_nearly_forgotten_rows_are_left_out():
    factor, age = 0.9, np.arange(100)[::-1]
    # Each row weighs 1 / 0.9 times as much as the one before it.
    slots, weights, ratio = sample_weights(sample(-np.log(factor) * (99.0 - age), -np.inf, 100), fading_of(factor, 200))
    assert ratio == 1.0
    np.testing.assert_allclose(weights, factor ** age[slots])
    assert slots.tolist() == np.flatnonzero(factor**age > FADED).tolist()


def test_sample_is_biased_exponentially():
    factor = 0.999
    X = np.arange(20_000.0)[:, None]
    model = IncrementalGaussianMixture(1, forgetting=factor, reservoir=500).partial_fit(X)
    state, fading = model._state_, fading_of(factor, 200)
    slots, weights, ratio = sample_weights(state.reservoir, fading)
    age = 19_999 - (state.reservoir.rows[slots, 0] / state.frame.inverse[0] + state.frame.centre[0])
    assert weights.sum() * ratio == pytest.approx(1000, rel=0.1)
    # Mean age of an exponential memory of 1000 rows; the sample's standard error is 45.
    assert (weights @ age) / weights.sum() == pytest.approx(1000, abs=200)
