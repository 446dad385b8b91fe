"""Severity: how sure, how far, how long."""

from __future__ import annotations

import pytest

from everlearn.watch.severity import is_sure, severity_of_absence, severity_of_departure


@pytest.mark.parametrize(
    ("n_rows", "size", "sure", "severity"),
    [
        (3, 30.0, True, "look"),  # two rows more may show that it was the line
        (5, 9.0, False, "look"),
        (5, 10.0, False, "alarm"),  # far
        (5, 6.0, True, "alarm"),  # sure
        (1000, 6.0, False, "look"),
    ],
)
def test_a_departure_is_an_alarm_when_it_is_repeated_and_far_or_sure(n_rows, size, sure, severity):
    assert severity_of_departure(n_rows, size, sure=sure) == severity


def test_sure_is_a_thousand_times_less_probable_than_a_false_alarm():
    assert is_sure(0.9e-6, 1e-3)
    assert not is_sure(1.1e-6, 1e-3)


def test_what_says_nothing_is_an_alarm_after_a_while():
    assert [severity_of_absence(lasted, 300) for lasted in (10, 299, 300)] == ["look", "look", "alarm"]
