"""What becomes an event, row by row, against comparisons of whole columns."""

import numpy as np

from everlearn.monitoring import event_log
from everlearn.monitoring.kernels.event_log import CHANGE, NOVELTY, Rules, watch_rows
from everlearn.monitoring.page_hinkley import PageHinkley, settings

RULES = Rules(np.array([0.0, 4.0, 9.0, 16.0]), settings(PageHinkley()))


def watched(X, density, distance, max_events=100, first_row=0, log=None, n_events=0):
    log = event_log.init(max_events) if log is None else log
    return log, watch_rows(X, density, distance, first_row, RULES, log, n_events)


def test_a_row_is_a_novelty_beyond_the_distance_of_its_number_of_values():
    """At the distance itself it is none."""
    X = np.ones((5, 3))
    X[1, 0], X[2, :2], X[4] = np.nan, np.nan, np.nan
    distance = np.array([16.0, 9.1, 4.1, 16.1, 1e9])
    log, n = watched(X, np.zeros(5), distance, first_row=50)
    assert n == 3
    assert log.rows[:3].tolist() == [51, 52, 53]
    assert log.kinds[:3].tolist() == [NOVELTY] * 3
    assert log.values[:3].tolist() == [9.1, 4.1, 16.1]


def test_rows_without_a_value_or_a_density_are_not_counted():
    X, density = np.ones((4, 2)), np.array([-1.0, np.nan, -4.0, -8.0])
    X[2] = np.nan
    log, n = watched(X, density, np.full(4, 100.0))
    assert n == 2
    np.testing.assert_allclose(log.totals, [2.0, -9.0])


def test_the_ring_goes_round_and_any_split_is_the_same():
    rng = np.random.default_rng(0)
    X, density, distance = np.ones((60, 1)), rng.normal(size=60), rng.chisquare(1, size=60) * 4
    log, n = watched(X, density, distance, max_events=4)
    rows = np.flatnonzero(distance > 4.0)
    assert n == len(rows) > 8
    expected = np.empty(4)
    expected[np.arange(n - 4, n) % 4] = rows[-4:]
    np.testing.assert_array_equal(log.rows, expected)
    parts, m = watched(X[:23], density[:23], distance[:23], max_events=4)
    parts, m = watched(X[23:], density[23:], distance[23:], first_row=23, log=parts, n_events=m)
    assert m == n
    np.testing.assert_array_equal(parts.rows, log.rows)
    np.testing.assert_allclose(parts.totals, log.totals)


def test_a_drop_of_the_density_is_a_change_after_the_novelty_of_its_row():
    """The value of a change is the density, that of a novelty the distance."""
    rng = np.random.default_rng(1)
    density, distance = rng.normal(size=500), np.zeros(500)
    density[400:] -= 6.0
    log, n = watched(np.ones((500, 1)), density, distance)
    assert n >= 1
    row = int(log.rows[0])
    assert 400 <= row < 420
    assert log.kinds[0] == CHANGE
    assert log.values[0] == density[row]
    distance[row] = 5.0
    log, _ = watched(np.ones((500, 1)), density, distance)
    assert log.kinds[:2].tolist() == [NOVELTY, CHANGE]
    assert log.rows[:2].tolist() == [row, row]
