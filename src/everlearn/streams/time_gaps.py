"""Gaps in time: rows that are missing from a stream that otherwise comes at a steady pace."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from everlearn.typing import Array

# A step is a gap when it is this many times the median of the latest ones: ten lets jitter and single lost rows pass.
GAP_FACTOR = 10.0
STEPS_KEPT = 101
MIN_STEPS = 20
# A time so many seconds and so many steps ahead of the one before is believed once the next row confirms it.
FAR_SECONDS, FAR_STEPS = 600.0, 10.0


class StampCheck:
    """Takes time stamps that run far ahead for none, until the next row confirms them.

    One wrong stamp would otherwise be a gap of years, and the end of every chart. The first row behind a real gap has
    no time either, however rows come in batches.
    """

    def __init__(self) -> None:
        self._last = self._ahead = self._step = math.nan

    def checked(self, times: Array | None) -> Array | None:
        """Times of the next rows, NaN where they are not believed."""
        if times is None:
            return None
        kept = np.array(times, dtype=np.float64)
        for i, time in enumerate(kept.tolist()):
            if math.isnan(time):
                continue
            confirmed = time >= self._ahead
            step = time - (self._ahead if confirmed else self._last)
            self._ahead = math.nan
            # A confirmed one is taken whatever its step: rows may come once an hour from now on.
            if not confirmed and step > FAR_SECONDS and step > FAR_STEPS * self._step:
                kept[i], self._ahead = math.nan, time
            elif not step < 0:  # a row that comes late moves nothing; the first row has no step
                self._last, self._step = time, step if step > 0 else self._step
        return kept

    def memory(self) -> list[float | None]:
        """All that is remembered, as JSON values."""
        return [None if math.isnan(x) else x for x in (self._last, self._ahead, self._step)]

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave; raises TypeError or ValueError for anything else."""
        self._last, self._ahead, self._step = (math.nan if x is None else float(x) for x in memory)


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
