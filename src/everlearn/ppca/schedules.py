"""Learning rates and other weights that follow the number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from everlearn.errors import InputError


@dataclass(frozen=True)
class PowerSchedule:
    """scale * k^-exponent at row k = 1, 2, ...

    As a learning rate, `PowerSchedule(1.0, 1.0)` weighs all rows alike, exponents between 0.5 and 1 forget the early
    ones slowly (Cappe and Moulines, 2009), and exponent 0 is a constant rate with a memory of 1/scale rows.

    Parameters
    ----------
    scale : float, default=0.9
        Value at the first row.
    exponent : float, default=0.9
        Rate of decay, at least 0.

    Examples
    --------
    >>> from everlearn import PowerSchedule
    >>> PowerSchedule(scale=1.0, exponent=0.5)(4)
    0.5
    """

    scale: float = 0.9
    exponent: float = 0.9

    def __call__(self, k: int) -> float:
        """Value at row k."""
        return float(self.scale * k**-self.exponent)


def as_schedule(value: Any, name: str, most: float = np.inf) -> PowerSchedule:
    """Schedule that `value`, a number or a PowerSchedule, stands for; its scale is positive and at most `most`."""
    schedule = PowerSchedule(float(value), 0.0) if isinstance(value, Real) else value
    if isinstance(schedule, PowerSchedule):
        numbers: list[Any] = [schedule.scale, schedule.exponent]
        valid = all(isinstance(number, Real) and np.isfinite(float(number)) for number in numbers)
        if valid and 0 < schedule.scale <= most and schedule.exponent >= 0:
            return schedule
    limit = "" if most == np.inf else f" and at most {most:g}"
    raise InputError(
        f"{name} must be a number, or PowerSchedule(scale, exponent) with exponent >= 0, above 0{limit}; got {value!r}."
    )
