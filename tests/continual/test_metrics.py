"""Metrics of continual learning, against loops that follow the definitions and numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from everlearn.continual import (
    accuracy,
    anytime,
    backward_transfer,
    change_report,
    forgetting,
    forward_transfer,
    running_mean,
)
from everlearn.errors import InputError

matrices = st.integers(2, 5).flatmap(lambda T: arrays(float, (T, T), elements=st.floats(-10, 10)))
# Three tasks; the second helped the first, the third hurt both.
R = np.array([[0.8, 0.5, 0.2], [0.9, 0.7, 0.3], [0.6, 0.4, 0.9]])
b = np.array([0.1, 0.2, 0.25])


def test_numbers_worked_out_by_hand():
    assert accuracy(R) == pytest.approx((0.6 + 0.4 + 0.9) / 3)
    assert backward_transfer(R) == pytest.approx(((0.6 - 0.8) + (0.4 - 0.7)) / 2)
    assert backward_transfer(R, variant="anytime") == pytest.approx(((0.9 - 0.8) + (0.6 - 0.8) + (0.4 - 0.7)) / 3)
    assert forward_transfer(R, b) == pytest.approx(((0.5 - 0.2) + (0.3 - 0.25)) / 2)
    assert forward_transfer(R, b, variant="score") == pytest.approx((0.5 + 0.2 + 0.3) / 3)
    assert forgetting(R) == pytest.approx(((0.9 - 0.6) + (0.7 - 0.4)) / 2)
    assert forgetting(R, variant="own") == pytest.approx(((0.8 - 0.6) + (0.7 - 0.4)) / 2)
    assert anytime(R) == pytest.approx((0.8 + (0.9 + 0.7) / 2 + (0.6 + 0.4 + 0.9) / 3) / 3)
    assert anytime(R, variant="all") == pytest.approx(R.mean())


@given(matrices)
def test_definitions(R):
    T = len(R)
    last = T - 1
    assert forgetting(R) == pytest.approx(
        np.mean([max(R[k, j] for k in range(j, last)) - R[last, j] for j in range(last)])
    )
    assert forgetting(R, variant="ever") == pytest.approx(
        np.mean([max(R[k, j] for k in range(last)) - R[last, j] for j in range(last)])
    )
    assert forgetting(R, variant="own") == pytest.approx(-backward_transfer(R), abs=1e-12)
    assert forgetting(R, variant="ever") >= forgetting(R) - 1e-12
    assert forgetting(R) >= forgetting(R, variant="own") - 1e-12


@given(matrices, st.floats(-5, 5))
def test_a_shift_of_all_scores_moves_means_and_no_differences(R, shift):
    assert accuracy(R + shift) == pytest.approx(accuracy(R) + shift, abs=1e-9)
    assert anytime(R + shift) == pytest.approx(anytime(R) + shift, abs=1e-9)
    for metric in (backward_transfer, forgetting):
        assert metric(R + shift) == pytest.approx(metric(R), abs=1e-9)
    assert forward_transfer(R + shift, shift) == pytest.approx(forward_transfer(R, 0.0), abs=1e-9)


def test_one_task_has_nothing_to_transfer():
    assert accuracy([[0.5]]) == anytime([[0.5]]) == 0.5
    for value in (backward_transfer([[0.5]]), forgetting([[0.5]]), forward_transfer([[0.5]], 0.0)):
        assert math.isnan(value)
    assert math.isnan(forward_transfer(R, np.full(3, np.nan)))


@given(st.lists(st.floats(-5, 5) | st.just(math.nan), min_size=1, max_size=30), st.integers(1, 40))
def test_running_means(scores, window):
    for t, (all_so_far, recent) in enumerate(
        zip(running_mean(scores), running_mean(scores, window=window), strict=True)
    ):
        for value, part in ((all_so_far, scores[: t + 1]), (recent, scores[max(0, t + 1 - window) : t + 1])):
            known = [s for s in part if not math.isnan(s)]
            assert math.isnan(value) if not known else value == pytest.approx(np.mean(known), abs=1e-9)


def test_a_fading_mean_is_its_weighted_sum():
    scores = np.random.default_rng(0).normal(size=20)
    weights = 0.8 ** np.arange(20)[::-1]
    assert running_mean(scores, fading=0.8)[-1] == pytest.approx(weights @ scores / weights.sum())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accuracy([1.0, 2.0]), "row and a column for every task"),
        (lambda: backward_transfer(R, variant="best"), "'final', 'anytime'"),
        (lambda: running_mean([1.0], window=0), "window must be"),
        (lambda: running_mean([1.0], fading=1.0), "fading must be"),
        (lambda: running_mean([1.0], fading=0.5, window=2), "only one of"),
        (lambda: change_report([5], [3], 4, tolerance=1), "alarms must be row numbers from 0 to 3"),
        (lambda: change_report([], [], 0, tolerance=1), "n_rows 1 or more"),
    ],
)
def test_refusals_teach(call, message):
    with pytest.raises(InputError, match=message):
        call()


# -- change detection -------------------------------------------------------------------------------


def naive_change_scores(alarms, changes, n_rows, tolerance):
    found, delays, false = 0, [], 0
    ends = [min(c + tolerance, (changes[k + 1] if k + 1 < len(changes) else n_rows) - 1) for k, c in enumerate(changes)]
    for c, end in zip(changes, ends, strict=True):
        inside = [a for a in alarms if c <= a <= end]
        if inside:
            found, delays = found + 1, [*delays, min(inside) - c]
    false = sum(not any(c <= a <= end for c, end in zip(changes, ends, strict=True)) for a in alarms)
    precision = found / (found + false) if found + false else math.nan
    recall = found / len(changes) if changes else math.nan
    return precision, recall, np.mean(delays) if delays else math.nan, 1000 * false / n_rows


@given(
    st.lists(st.integers(0, 59), unique=True, max_size=12).map(sorted),
    st.lists(st.integers(0, 59), unique=True, max_size=5).map(sorted),
    st.integers(0, 20),
)
def test_change_scores_are_their_definitions(alarms, changes, tolerance):
    report = change_report(alarms, changes, 60, tolerance=tolerance)
    np.testing.assert_allclose(report.detector, naive_change_scores(alarms, changes, 60, tolerance))
    np.testing.assert_allclose(report.always, naive_change_scores(range(60), changes, 60, tolerance))
    if changes:
        assert report.always.recall == 1.0
        assert report.always.delay == 0.0


def test_a_report_shows_the_baseline():
    text = str(change_report([10], [10], 100, tolerance=5))
    assert [line.split()[0] for line in text.splitlines()] == ["precision", "detector", "always"]
