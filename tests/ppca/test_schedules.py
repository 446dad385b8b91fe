"""Learning rates that follow the number of rows."""

import pytest

from everlearn.errors import InputError
from everlearn.ppca.schedules import PowerSchedule, as_schedule


def test_values_and_limits():
    assert PowerSchedule(0.5, 0.0)(1000) == 0.5
    assert PowerSchedule(1.0, 1.0)(4) == 0.25
    assert as_schedule(0.01, "learning_rate") == PowerSchedule(0.01, 0.0)
    with pytest.raises(InputError, match=r"learning_rate.*at most 1"):
        as_schedule(PowerSchedule(1.5, 0.9), "learning_rate", most=1.0)
