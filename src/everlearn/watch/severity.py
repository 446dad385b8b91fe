"""How urgent an episode is: something to look at, or an alarm that wants somebody now.

Three questions decide: how sure it is, how far the sensor is off, and how long it lasts. What is told at all is off by
five usual errors of its expectation, at the rate of false alarms that was asked for. It becomes an alarm when it is
repeated and either twice as far off or a thousand times less probable. A sensor that says nothing is not off, but the
machine is not watched there: that is an alarm when it has lasted for five minutes. So are rows that do not come.
"""

from __future__ import annotations

from everlearn.watch.episodes import ALARM, LOOK

ALARM_ROWS = 5  # unusual rows: fewer may be a disturbance of the line
FAR = 10.0  # usual errors of what is expected of a sensor from the others
SURE = 1e-3  # of the rate of false alarms


def is_sure(p_value: float, rate: float) -> bool:
    """Whether rows are so improbable that chance is no explanation at the rate of false alarms."""
    return p_value < SURE * rate


def severity_of_departure(n_rows: int, size: float, *, sure: bool = False) -> str:
    """Severity of values that are not where they are expected.

    Parameters
    ----------
    n_rows : int
        Rows that were unusual.
    size : float
        How far the value of a sensor was from what was expected at most, in usual errors of the expectation.
    sure : bool
        Whether chance is no explanation; see `is_sure`.
    """
    return ALARM if n_rows >= ALARM_ROWS and (size >= FAR or sure) else LOOK


def severity_of_absence(lasted: float, patience: float) -> str:
    """Severity of a sensor that says nothing, or of rows that do not come, for so many rows or seconds."""
    return ALARM if lasted >= patience else LOOK
