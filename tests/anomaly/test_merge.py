"""Two detectors into one: samples and memories of both, by their lengths."""

import numpy as np
import pytest

from detectors import SETTINGS, prepared_state, state_with_sample
from everlearn import AnomalyDetector
from everlearn.anomaly.kernels.memory import remember
from everlearn.anomaly.learn import SAMPLE_ROWS, init_memory
from everlearn.anomaly.merge import _copied, _take_memory, _take_sample, merged


def full_sample(value):
    return state_with_sample(np.full((SAMPLE_ROWS, 1), value)).sample


def memory_with(values, room=100):
    memory = init_memory(np.ones(1), np.ones(1), room)
    for value in values:
        remember(memory, 0, float(value))
    return memory


@pytest.mark.parametrize(("n", "m"), [(1000, 3000), (500, 500), (10**6, 1000)])
def test_both_streams_are_in_the_sample_by_their_lengths(n, m):
    sample = full_sample(1.0)
    _take_sample(sample, full_sample(2.0), n, m, 0)
    assert (sample.rows == 1.0).sum() == round(SAMPLE_ROWS * n / (n + m))
    assert (sample.rows == 2.0).sum() == SAMPLE_ROWS - round(SAMPLE_ROWS * n / (n + m))
    # Any of the places: the first ones are scored anew for what is usual.
    assert (sample.rows[:400] == 1.0).sum() == pytest.approx(400 * n / (n + m), abs=40)


def test_samples_that_fit_are_kept_whole():
    sample = state_with_sample(np.arange(60.0)[:, None]).sample
    _take_sample(sample, state_with_sample(np.arange(60.0, 100.0)[:, None]).sample, 60, 40, 0)
    assert sample.size[0] == 100
    assert sorted(sample.rows[:100, 0]) == list(range(100))


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (range(30), range(100, 140), [*range(30), *range(100, 140)]),  # both fit
        (range(100), range(200, 310), [*range(50, 100), *range(260, 310)]),  # both full: half of each, the latest
        (range(20), range(200, 310), [*range(20), *range(230, 310)]),  # one has room for more
    ],
    ids=["both fit", "both full", "one full"],
)
def test_a_memory_takes_the_latest_of_the_other(own, other, expected):
    memory = memory_with(own)
    _take_memory(memory, memory_with(other))
    assert memory.ordered[0, : memory.size[0]].tolist() == sorted(expected)


def test_neither_argument_changes_and_time_is_that_of_the_first():
    rng = np.random.default_rng(0)
    first, second = prepared_state(rng), prepared_state(rng)
    first.clock.learned[0], second.clock.learned[0], first.clock.rows[0] = 100, 300, 7
    before = _copied(first), _copied(second)
    mixture = AnomalyDetector().fit(rng.normal(size=(100, 3))).mixture_
    state = merged(first, second, SETTINGS, mixture)
    for old, new in zip(before, (first, second), strict=True):
        np.testing.assert_array_equal(old.sample.rows, new.sample.rows)
        np.testing.assert_array_equal(old.memory.ordered, new.memory.ordered)
        assert old.clock.learned[0] == new.clock.learned[0]
    assert state.clock.learned[0] == 400
    assert state.clock.rows[0] == 7
    assert state.sample.size[0] == 120
    np.testing.assert_array_equal(state.season.ring, first.season.ring)
    np.testing.assert_array_equal(state.guard.rows, first.guard.rows)


def test_a_merged_detector_knows_what_each_of_them_knew():
    rng = np.random.default_rng(1)
    low, high = rng.normal(size=(600, 2)), rng.normal(20.0, 1.0, size=(600, 2))
    one, other = AnomalyDetector().fit(low), AnomalyDetector().fit(high)
    both = one.merge(other)
    assert one.p_value(high[:100]).max() < 1e-3
    assert np.median(both.explain(high[:100]).views["mixture"]) < 3.0
    assert np.median(both.explain(low[:100]).views["mixture"]) < 3.0
    assert both.explain([[10.0, 10.0]]).views["mixture"][0] > 5.0
