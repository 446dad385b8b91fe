"""Regimes: groups in which a stream stays; those that it passes through count to the next."""

import numpy as np
import pytest
from scipy import stats

from everlearn.gaussian.mixture import Mixture
from everlearn.reporting.figures import timeline
from everlearn.reporting.regimes import Stay, active, outside, stays_in_regimes, tail_probability, usual_of


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


def test_tail_probabilities_are_uniform_and_take_gaps():
    rng = np.random.default_rng(0)
    L = rng.normal(size=(3, 3))
    one = Mixture(np.ones(1), np.ones((1, 3)), (L @ L.T)[None])
    X = rng.normal(size=(4000, 3)) @ L.T + 1.0
    X[rng.uniform(size=X.shape) < 0.2] = np.nan
    X[0] = np.nan
    p = tail_probability(X, one)
    assert p[0] == 1.0
    assert stats.kstest(p[~np.isnan(X).all(axis=1)], "uniform").pvalue > 1e-3
    # One column: the two-sided p-value of a normal.
    z = (X[:, :1] - 1.0) / np.sqrt(one.covariances[0, 0, 0])
    alone = np.column_stack([X[:, 0], np.full((len(X), 2), np.nan)])
    seen = ~np.isnan(X[:, 0])
    np.testing.assert_allclose(tail_probability(alone, one)[seen], 2 * stats.norm.sf(abs(z[seen, 0])), rtol=1e-10)


def test_components_of_faults_are_not_usual_and_ways_only_after_a_switch():
    """Two regimes at 0 and 20, a way between them at 10, and a fault at 5 that has a component of its own."""
    rng = np.random.default_rng(1)
    groups = np.tile(labels((0, 180), (2, 10), (1, 200), (2, 10)), 5)[:-10]
    groups[[50, 250, 470, 650, 900, 1300, 1700]] = 3
    X = np.array([0.0, 20.0, 10.0, 5.0])[groups][:, None] + 0.5 * rng.normal(size=(len(groups), 1))
    X[100] = 10.0  # on no way: no switch is near
    means, ones = np.array([[0.0], [20.0], [10.0], [5.0]]), np.full((4, 1, 1), 0.25)
    usual = usual_of(Mixture(np.full(4, 0.25), means, ones), groups, groups, stays_in_regimes(groups))
    assert usual.regimes.means.tolist() == [[0.0], [20.0]]
    assert usual.regimes_and_ways.means.tolist() == [[0.0], [20.0], [10.0]]
    np.testing.assert_array_equal(np.flatnonzero(outside(X, usual)), [50, 100, 250, 470, 650, 900, 1300, 1700])


def test_a_stream_without_regimes_has_no_usual():
    flicker = np.arange(300) % 7
    mixture = Mixture(np.full(7, 1 / 7), np.zeros((7, 1)), np.ones((7, 1, 1)))
    assert usual_of(mixture, flicker, flicker, stays_in_regimes(flicker)) is None
