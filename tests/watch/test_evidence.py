"""The evidence of an episode: which sensors are off, and whether a later row still belongs to it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from everlearn.watch.episodes import Episode
from everlearn.watch.evidence import BEYOND_DOUBT, UNKNOWN, Unusual
from everlearn.watch.watcher import Row, Watcher

HEAT, FLOW, LOAD = np.eye(3)


def row(blame):
    """An explained row of three sensors, each expected between -1 and 1."""
    values = np.zeros((1, 3))
    return SimpleNamespace(blame=np.array([blame], float), values=values, low=values - 1.0, high=values + 1.0)


@pytest.fixture
def unusual():
    """An episode of heat, which jumped."""
    found = Unusual(Episode(1, "unusual", 100, 100, 100.0, 100.0), 3)
    found.take(row(50.0 * HEAT + 2.0), 100, -30.0, 12.0 * HEAT, BEYOND_DOUBT * HEAT)
    return found


def test_a_sensor_is_off_when_both_measures_say_so_in_the_same_row(unusual):
    assert unusual.off.tolist() == [True, False, False]
    assert unusual.size == 12.0
    unusual.take(row(60.0 * FLOW), 101, -30.0, 9.0 * FLOW, 1.0 * FLOW)
    unusual.take(row(60.0 * FLOW), 102, -30.0, 2.0 * FLOW, 9.0 * FLOW)
    assert not unusual.off[1], "it was far from what was expected, and from the relation, but never at once"
    unusual.take(row(60.0 * FLOW), 103, -30.0, 9.0 * FLOW, 9.0 * FLOW)
    assert unusual.off[1]


def test_two_sensors_that_leave_their_range_together_are_off_though_the_relation_cannot_say_so(unusual):
    """A bearing that fails slowly: both rise together, and neither is known given so much of the other."""
    found = Unusual(Episode(0, "unusual", 0, 0, 0.0, 0.0), 3)
    both = FLOW + LOAD
    found.take(row(60.0 * both), 1, -12.0, 20.0 * both, 0.5 * both)
    assert not found.off.any(), "as on an afternoon that is warmer than all before"
    found.take(row(60.0 * both), 2, -12.0, 30.0 * both, 0.5 * both)
    assert found.off.tolist() == [False, True, True]
    assert unusual.lasts(row(60.0 * both), 30.0 * both, 0.5 * both)


def test_it_lasts_while_its_sensor_is_off_though_the_relation_has_got_used_to_it(unusual):
    assert unusual.lasts(row(20.0 * HEAT + 1.0), 3.0 * HEAT, 0.0 * HEAT)


def test_rows_that_are_unusual_for_another_reason_do_not_keep_it_open(unusual):
    """A fault that is over would be accepted as normal an hour later, with all that happened meanwhile."""
    assert not unusual.lasts(row(20.0 * FLOW + HEAT), 4.0 * FLOW + 0.5 * HEAT, 1.0 * FLOW)
    assert not unusual.lasts(row(20.0 * FLOW + HEAT), 6.0 * FLOW, 1.0 * FLOW)


def test_another_sensor_that_is_off_keeps_it_open(unusual):
    assert unusual.lasts(row(20.0 * FLOW), 6.0 * FLOW, 5.0 * FLOW)


def test_a_sensor_of_which_little_is_known_comes_first():
    found = Unusual(Episode(0, "unusual", 0, 0, 0.0, 0.0), 3)
    found.take(row(30.0 * HEAT + 20.0 * LOAD), 0, -9.0, 2.0 * LOAD, UNKNOWN * LOAD)
    assert found.order()[0] == 2


@pytest.mark.parametrize(("age", "first"), [(200, 100), (2000, 2100)])
def test_what_was_unusual_for_long_without_a_sensor_off_is_not_the_beginning(unusual, age, first):
    """Else a fault would be accepted as normal by the age of what came before it."""
    watcher, discarded = Watcher(["heat", "flow", "load"]), []
    watcher._start(1.0)
    watcher.detector = SimpleNamespace(discard_held=lambda: discarded.append(True))
    watcher._unusual = unusual
    watcher._confirm(Row(100 + age, 100.0 + age))
    assert watcher._unusual.episode.first_row == first
    assert watcher._unusual.episode.begin == first
    assert discarded == [True] * (first > 100)
