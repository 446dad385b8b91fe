"""What the checks of sensors remember between rows: NamedTuples of arrays, with their shapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.typing import Array


class Runs(NamedTuple):
    """Runs of one sort, equal values or gaps, in each column."""

    counts: Array  # (D, 4): rows after a change, repeats among them; rows after a repeat, repeats among them
    length: NDArray[np.int64]  # (D,), repeats in the run that lasts
    begin: NDArray[np.int64]  # (D,), row of its first repeat
    longest: NDArray[np.int64]  # (D,), repeats in the longest usual run
    unusual: NDArray[np.bool_]  # (D,), whether the run that lasts is unusually long


class SensorState(NamedTuple):
    """What is known of each sensor by itself."""

    repeats: Runs
    gaps: Runs
    last: Array  # (D,), the last value that was observed, NaN before the first


class RunSettings(NamedTuple):
    """From where on a run is unusual."""

    surprise: float
    """-log probability that a run must exceed."""
    least_rows: float
    """Repeats that it must have at least."""
    learns: bool
    """Whether usual rows are counted."""


class SensorMarks(NamedTuple):
    """What was found in each value of a batch."""

    frozen: NDArray[np.bool_]  # (n, D)
    gone: NDArray[np.bool_]  # (n, D)
    begin: NDArray[np.int64]  # (n, D), row at which the run began, where one of them is true


def no_runs(n_columns: int) -> Runs:
    """Runs before the first row."""
    length, begin, longest = (np.zeros(n_columns, np.int64) for _ in range(3))
    return Runs(np.zeros((n_columns, 4)), length, begin, longest, np.zeros(n_columns, np.bool_))


def init(n_columns: int) -> SensorState:
    """The state before the first row."""
    return SensorState(no_runs(n_columns), no_runs(n_columns), np.full(n_columns, np.nan))
