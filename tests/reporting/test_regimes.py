"""Regimes: groups in which a stream stays; those that it passes through count to the next."""

import numpy as np
import pytest

from everlearn.reporting.figures import timeline
from everlearn.reporting.regimes import Stay, active, stays_in_regimes


def labels(*runs):
    """Groups of rows, as (group, rows) one after the other."""
    return np.concatenate([np.full(n, k) for k, n in runs])


def test_stays_are_found_and_numbered_by_their_rows():
    stays = stays_in_regimes(labels((5, 100), (2, 300), (5, 100)))
    assert stays == [Stay(2, 0, 100), Stay(1, 100, 400), Stay(2, 400, 500)]
    np.testing.assert_array_equal(active(stays, 500), labels((2, 100), (1, 300), (2, 100)))


def test_rows_on_the_way_count_to_the_next_regime():
    passing = [(0, 150), (7, 12), (1, 150), (8, 12), (0, 150), (7, 12)]
    assert stays_in_regimes(labels(*passing)) == [Stay(1, 0, 150), Stay(2, 150, 312), Stay(1, 312, 486)]


@pytest.mark.parametrize("odd", [1, 2], ids=["a group of their own", "another regime"])
def test_single_odd_rows_do_not_end_a_stay(odd):
    found = labels((0, 300), (2, 200))
    found[[20, 90, 91, 150]] = odd
    assert stays_in_regimes(found) == [Stay(1, 0, 300), Stay(2, 300, 500)]


def test_numbers_follow_the_rows_that_regimes_end_up_with():
    """Rows on the way to a regime count to it: the terminal and the timeline have to give it the same number."""
    parts = []
    for _ in range(5):  # one has 200 rows of its own, the other 190 and 30 on the way to it
        parts += [(7, 200), (9, 10), (8, 10), (9, 10), (4, 190), (8, 10)]
    stays = stays_in_regimes(labels(*parts))
    rows = {k: sum(stay.end - stay.first for stay in stays if stay.regime == k) for k in (1, 2)}
    assert rows[1] > rows[2]
    assert stays[0].regime == 2


def test_a_stream_without_stays():
    assert stays_in_regimes(np.arange(300)) == []
    assert stays_in_regimes(np.zeros(1, dtype=int)) == [Stay(1, 0, 1)]


def test_timeline():
    picture = timeline([Stay(2, 0, 100), Stay(1, 100, 400), Stay(2, 400, 500)])
    assert [trace["x"] for trace in picture["data"]] == [[100, 400, None], [0, 100, None, 400, 500, None]]
    assert picture["layout"]["meta"]["alt"] == (
        "3 stays in 2 regimes over 500 rows: regime 1 for 60%, regime 2 for 40%."
    )
