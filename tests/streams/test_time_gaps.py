"""Gaps in time: found whatever the batches, and not where the pace merely changes a little."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from everlearn.streams.time_gaps import StampCheck, TimeGapDetector


@given(st.integers(30, 200), st.floats(0.01, 3600.0), st.lists(st.integers(1, 199), max_size=5))
def test_one_gap_is_found_in_any_batches_and_after_a_pause(row, pace, splits):
    jitter = np.random.default_rng(row).uniform(0.5, 1.5, size=260)
    times = 1.7e9 + np.cumsum(pace * jitter)
    times[row:] += 100.0 * pace
    detector, found, first = TimeGapDetector(), [], 0
    for part in np.split(times, sorted(splits)):
        found += [(first + gap.offset, gap.seconds) for gap in detector.find(part.tolist())]
        first += len(part)
        memory, detector = json.loads(json.dumps(detector.memory())), TimeGapDetector()
        detector.restore(memory)
    assert [place for place, _ in found] == [row]
    np.testing.assert_allclose(found[0][1], times[row] - times[row - 1])


def test_steady_streams_ties_unknown_times_and_clocks_set_back_have_no_gaps():
    times = np.arange(500.0)
    times[100:110] = times[100]
    times[200:205] = np.nan
    times[300:] -= 50.0
    assert TimeGapDetector().find(times.tolist()) == []
    assert TimeGapDetector().find([]) == []


@given(st.integers(2, 198), st.sampled_from([1e3, 1e5, 1e9]), st.lists(st.integers(1, 199), max_size=4))
def test_a_stamp_far_ahead_is_no_time_unless_the_next_row_confirms_it(row, ahead, splits):
    stray, gap = np.arange(200.0), np.arange(200.0)
    stray[row] += ahead
    gap[row:] += ahead
    for times in (stray, gap):
        check, kept = StampCheck(), []
        for part in np.split(times, sorted(splits)):
            kept += check.checked(part).tolist()
            memory, check = json.loads(json.dumps(check.memory())), StampCheck()
            check.restore(memory)
        expected = times.copy()
        expected[row] = np.nan
        np.testing.assert_array_equal(kept, expected)


def test_stamps_of_a_slow_stream_of_late_rows_and_of_a_new_pace_are_believed():
    hourly = 3600.0 * np.arange(50)
    np.testing.assert_array_equal(StampCheck().checked(hourly), hourly)
    late = np.arange(100.0)
    late[50] = 20.0
    np.testing.assert_array_equal(StampCheck().checked(late), late)
    slower = np.concatenate([np.arange(100.0), 100.0 + hourly[1:]])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(StampCheck().checked(slower))), [100])
    assert StampCheck().checked(None) is None
