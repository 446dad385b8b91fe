"""Rates of false alarms as people name them, such as 1/day, and what they are for each row."""

from __future__ import annotations

import re
from typing import NamedTuple

from everlearn.errors import InputError

UNITS = {
    "minute": 60.0, "hour": 3600.0, "shift": 8 * 3600.0, "day": 86400.0, "week": 7 * 86400.0, "month": 30 * 86400.0,
    "year": 365 * 86400.0,
}  # fmt: skip
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:/|per|a|an)\s*(\d+(?:\.\d+)?)?\s*([a-z]+?)s?\s*", re.IGNORECASE)
MOST = 0.1
"""Largest share of rows that may raise an alarm."""


class AlarmRate(NamedTuple):
    """False alarms that may be raised in a stretch of time or of rows."""

    alarms: float
    amount: float
    """Seconds, or rows."""
    in_rows: bool
    text: str

    def per_row(self, interval: float | None) -> float:
        """The share of rows that may raise an alarm, given the seconds from one row to the next."""
        if self.in_rows:
            share = self.alarms / self.amount
        elif interval is None:
            raise InputError(
                f"A rate of {self.text} needs the times of the rows, and this stream has none. Name their column with "
                "--time, or give the rate in rows, for example --false-alarms 1/10000rows."
            )
        else:
            share = self.alarms * interval / self.amount
        return min(share, MOST)


def parse_rate(text: str) -> AlarmRate:
    """Read a rate such as ``1/day``, ``2/week``, ``1/12hours`` or ``1/10000rows``.

    Parameters
    ----------
    text : str
        A number, a slash, and a stretch of time or of rows.

    Returns
    -------
    AlarmRate
        The rate.

    Examples
    --------
    >>> from everlearn.watch.rates import parse_rate
    >>> round(1 / parse_rate("1/day").per_row(interval=1.0))
    86400
    >>> parse_rate("1/10000rows").per_row(None)
    0.0001
    """
    match = _FORM.fullmatch(text)
    unit = match[3].lower() if match else ""
    if match is None or (unit != "row" and unit not in UNITS) or not float(match[1]) or not float(match[2] or 1):
        raise InputError(
            f"false alarms {text!r}: write a number and a stretch of time or rows, for example 1/day, 2/week, "
            f"1/12hours or 1/10000rows. The units are {', '.join(UNITS)} and rows."
        )
    amount = float(match[2] or 1) * UNITS.get(unit, 1.0)
    return AlarmRate(float(match[1]), amount, unit == "row", text.strip())


_SHORT = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, **UNITS}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*?)s?\s*", re.IGNORECASE)


def parse_duration(text: str) -> float:
    """Read a stretch of time such as ``1h``, ``30min`` or ``90`` (seconds).

    Examples
    --------
    >>> from everlearn.watch.rates import parse_duration
    >>> parse_duration("30min")
    1800.0
    """
    match = _DURATION.fullmatch(text)
    unit = (match[2].lower() or "s") if match else ""
    if match is None or unit not in _SHORT or not float(match[1]):
        raise InputError(f"A stretch of time is a number with a unit, such as 90s, 30min, 1h or 2days; got {text!r}.")
    return float(match[1]) * _SHORT[unit]
