"""Rows that were held back become the new normal: all of them, in their order, the latest where there were many."""

import numpy as np
import pytest

from detectors import SETTINGS, prepared_state
from everlearn.anomaly.keep import release


class Recorder:
    """A mixture that only notes what it is given."""

    def __init__(self):
        self.given = []

    def partial_fit(self, rows):
        self.given.append(rows.copy())


@pytest.mark.parametrize("count", [3, 50, 120], ids=["few", "full", "around"])
def test_held_rows_are_learned_in_their_order(count):
    """The ring has room for 50."""
    rng, mixture = np.random.default_rng(count), Recorder()
    state = prepared_state(rng, D=2)
    rows, statistics = rng.normal(size=(count, 2)), rng.normal(size=(count, len(SETTINGS.views)))
    guard = state.guard
    for t in range(count):
        guard.rows[t % 50], guard.statistics[t % 50], guard.numbers[t % 50] = rows[t], statistics[t], 1000 + 2 * t
    guard.held[0], guard.pressure[0], state.clock.learned[0] = count, 50.0, 300
    released, held = release(state, SETTINGS, mixture)
    latest = slice(max(0, count - 50), count)
    np.testing.assert_array_equal(held.rows, rows[latest])
    np.testing.assert_array_equal(held.statistics, statistics[latest])
    np.testing.assert_array_equal(mixture.given, [rows[latest]])
    n = min(count, 50)
    assert released == (1000 + 2 * (count - n), 1000 + 2 * (count - 1), n)
    assert state.clock.learned[0] == 300 + n
    assert (guard.held[0], guard.pressure[0]) == (0, 0.0)


def test_the_sample_takes_released_rows_while_it_has_room():
    state = prepared_state(np.random.default_rng(0), D=2)
    state.clock.learned[0] = 60
    state.guard.rows[:5], state.guard.held[0] = 77.0, 5
    release(state, SETTINGS, Recorder())
    assert state.sample.size[0] == 65
    assert (state.sample.rows[60:65] == 77.0).all()
