"""Episodes: alarms that belong together, with begin, end, severity, blamed sensors and a sentence."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from everlearn.errors import StateFileError

KINDS = ("unusual", "drift", "frozen", "gone", "no data", "sampling")
"""Unusual rows, a slow drift, a sensor that is frozen or gone, rows that are missing or do not come, another sampling
rate."""
LOOK, ALARM = SEVERITIES = ("look", "alarm")
"""How urgent an episode is; see `everlearn.watch.severity`."""
OPEN, OVER, ACCEPTED = "open", "over", "accepted"
"""An episode lasts, is over, or lasted so long that it was accepted as the new normal."""


class Blame(NamedTuple):
    """A sensor of an episode: what it said when it stood out most, and what was expected of it."""

    sensor: str
    share: float
    """Of the blame, 0 to 1."""
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    """The interval that holds the value with 90 % probability, given the other sensors."""


class Episode(NamedTuple):
    """Something that happened to the machine or to a sensor, from the first alarm to the last."""

    number: int
    """Counted from 1 in the stream."""
    kind: str
    """One of `KINDS`."""
    first_row: int
    last_row: int
    begin: float
    """Seconds since 1970 by the stream's own times; NaN where it has none."""
    end: float
    status: str = OPEN
    severity: str = LOOK
    p_value: float = 1.0
    """The smallest of its rows; 0 for what no p-value was computed for."""
    n_alarms: int = 1
    """Rows that raised an alarm."""
    sensors: tuple[Blame, ...] = ()
    """The sensor to blame first."""
    sentence: str = ""
    mark: str = ""
    """What a person said about it: "normal", "fault", "seen", or nothing."""
    device: str = ""
    """The device that it belongs to, where several are watched."""

    @property
    def is_open(self) -> bool:
        """Whether it lasts."""
        return self.status == OPEN

    @property
    def blamed(self) -> list[str]:
        """Names of the sensors, the one to blame first."""
        return [blame.sensor for blame in self.sensors]

    def record(self) -> dict[str, Any]:
        """As JSON values: null where there is no number."""
        fields = self._asdict()
        fields["sensors"] = [{key: _plain(value) for key, value in b._asdict().items()} for b in self.sensors]
        return {key: _plain(value) for key, value in fields.items()}

    @classmethod
    def of(cls, record: Any) -> Self:
        """The episode of a record; raises StateFileError for anything else."""
        try:
            fields: dict[str, Any] = {key: record[key] for key in cls._fields if key != "device"}
            fields["device"] = str(record.get("device", ""))
            for key in ("begin", "end", "p_value"):
                fields[key] = math.nan if fields[key] is None else float(fields[key])
            for key in ("number", "first_row", "last_row", "n_alarms"):
                fields[key] = int(fields[key])
            for key in ("kind", "status", "severity", "sentence", "mark"):
                fields[key] = str(fields[key])
            fields["sensors"] = tuple(_blame(part) for part in fields["sensors"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise StateFileError(f"a record of an episode is damaged ({error!r}).") from error


def _blame(record: Any) -> Blame:
    numbers = [math.nan if record[key] is None else float(record[key]) for key in Blame._fields[1:]]
    return Blame(str(record["sensor"]), *numbers)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
