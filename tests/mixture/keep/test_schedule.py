"""When searches are due: by row counts alone, seldom enough that a stream of n rows has about log n of them."""

import itertools

import numpy as np
import pytest

from everlearn.mixture.keep import schedule

FOREVER = 2**60


def dues(warmup, reservoir, interval, n):
    out, at = [], 0
    while (at := schedule.next_search(at, warmup, reservoir, interval)) <= n:
        out.append(at)
    return out


def test_searches_come_at_four_times_then_at_twice_the_rows():
    assert dues(200, 3200, FOREVER, 60_000) == [200, 800, 3200, 6400, 12_800, 25_600, 51_200]


def test_the_last_search_that_sees_all_rows_comes_when_the_reservoir_is_full():
    """Unless that is less than twice the rows of the one before."""
    assert dues(200, 2800, FOREVER, 30_000) == [200, 800, 2800, 5600, 11_200, 22_400]
    assert dues(200, 1600, FOREVER, 7000) == [200, 800, 1600, 3200, 6400]
    assert dues(200, 1599, FOREVER, 7000) == [200, 800, 1600, 3200, 6400]
    assert dues(200, 300, FOREVER, 2000) == [200, 400, 800, 1600]


def test_under_forgetting_they_are_an_interval_apart_at_most():
    assert (np.diff(dues(200, 1000, 500, 20_000)) <= 500).all()


@pytest.mark.parametrize("interval", [200, 1000, FOREVER])
def test_a_search_is_adopted_before_the_next_is_due(interval):
    found = dues(200, 2800, interval, 100_000)
    for due, following in itertools.pairwise(found):
        assert 0 < schedule.lag(due, interval) <= min(schedule.MAX_LAG, following - due)


def test_questions_after_every_row_cost_few_searches():
    """Who asks after every row from row 200 on until row 20,000 pays for one at every 5 % more rows."""
    searched, searches = 200, 0
    for n in range(201, 20_001):
        if schedule.has_grown(n, searched, FOREVER):
            searched, searches = n, searches + 1
    assert searches == pytest.approx(np.log(100.0) / np.log(1.05), abs=5)


def test_a_first_question_is_worth_a_search_and_a_single_row_more_is_not():
    assert schedule.has_grown(1, 0, FOREVER)
    assert not schedule.has_grown(2, 1, FOREVER)
    assert schedule.has_grown(3, 1, FOREVER)
    assert schedule.has_grown(10_100, 10_000, 400)  # a quarter of the memory
    assert not schedule.has_grown(10_099, 10_000, 400)


@pytest.mark.parametrize("D", [1, 8, 40, 1000])
def test_rows_that_are_kept_and_waited_for(D):
    kept = schedule.reservoir_rows(D)
    assert 1000 <= kept <= 2800
    assert schedule.warmup_rows(D, kept) <= kept
    assert schedule.warmup_rows(D, 150) == 150  # no more than the reservoir holds
    assert schedule.warmup_rows(D, 0) >= schedule.warmup_rows(D, kept)
    assert schedule.apart(0) == 50
    assert schedule.apart(10_000) == 500
