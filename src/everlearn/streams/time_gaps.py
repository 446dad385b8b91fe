"""Gaps in time: rows that are missing from a stream that otherwise comes at a steady pace."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

# A step is a gap when it is this many times the median of the latest ones: ten lets jitter and single lost rows pass.
GAP_FACTOR = 10.0
STEPS_KEPT = 101
MIN_STEPS = 20


class TimeGap(NamedTuple):
    """A step in time that is much longer than usual."""

    offset: int
    """The row after the gap, counted from the beginning of the batch."""
    seconds: float


class TimeGapDetector:
    """Finds gaps in the times of a stream; rows without a time are passed over."""

    def __init__(self) -> None:
        self._last = math.nan
        self._steps: deque[float] = deque(maxlen=STEPS_KEPT)

    def find(self, times: Iterable[float]) -> list[TimeGap]:
        """Gaps before the rows of the next batch."""
        found = []
        for i, time in enumerate(times):
            if math.isnan(time):
                continue
            step = time - self._last
            self._last = time
            if math.isnan(step) or step <= 0:
                continue  # the first row, rows of one moment, or a clock that was set back
            # A gap is not added to the steps: the median stays that of the usual pace after a night without rows.
            if len(self._steps) >= MIN_STEPS and step > GAP_FACTOR * statistics.median(self._steps):
                found.append(TimeGap(i, step))
            else:
                self._steps.append(step)
        return found

    def memory(self) -> list[float | None]:
        """The latest time and steps, as JSON values."""
        return [None if math.isnan(self._last) else self._last, *self._steps]

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave; raises TypeError or ValueError for anything else."""
        last, *steps = memory
        self._last = math.nan if last is None else float(last)
        self._steps.extend(map(float, steps))
