"""What a density does not see: sensors that are frozen or gone, rows that are missing, a sampling rate that changed."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.streams.prequential import restored_count
from everlearn.typing import Array
from everlearn.watch import state as states
from everlearn.watch.kernels import sensors as kernels
from everlearn.watch.state import Runs, RunSettings, SensorMarks, SensorState

LEAST_REPEATS = 5
# A step is a gap when it is this many times the usual one: jitter and single lost rows pass.
LATE_ROWS = 5  # one after the other, from which on a clock was set back
GAP_FACTOR = 10.0
# The rate has changed when the median of the latest steps differs by this factor.
RATE_FACTOR = 1.5
STEPS_KEPT = 31
FIRST_STEPS = 10
LAGS = (1, 15)  # probes over which changes are measured
STEPS_LEARNED, LEAST_STEPS = 4000, 10  # changes that are averaged, and from how many on they count
MOST_GAPS = 3  # long steps one after the other that are gaps


class SensorChecks:
    """Frozen and missing values of each column, by how long runs of them usually last.

    Parameters
    ----------
    n_columns : int
        Number of columns.

    Attributes
    ----------
    n_rows : int
        Rows seen.
    """

    def __init__(self, n_columns: int) -> None:
        self.n_rows = 0
        self._state = states.init(n_columns)

    def check(self, X: Array, rate: float, *, learns: bool = True) -> SensorMarks:
        """Take the next rows; returns which values belong to an unusually long run.

        Parameters
        ----------
        X : ndarray of shape (n, D)
            Rows, NaN where a value was not observed.
        rate : float
            Share of rows that may raise a false alarm.
        learns : bool, default=True
            Whether rows that are usual are counted.
        """
        marks = SensorMarks(np.zeros(X.shape, np.bool_), np.zeros(X.shape, np.bool_), np.zeros(X.shape, np.int64))
        # A run is unusual when its probability is below the share of rows that may raise a false alarm.
        settings = RunSettings(-math.log(rate), float(LEAST_REPEATS), learns)
        kernels.check_rows(np.ascontiguousarray(X), self._state, self.n_rows, settings, marks)
        self.n_rows += len(X)
        return marks

    def grow(self, n_columns: int) -> None:
        """Add columns behind the others, of which nothing is known."""
        fresh = states.init(n_columns)
        repeats, gaps = (
            Runs(*(np.concatenate([old, new]) for old, new in zip(*pair, strict=True)))
            for pair in ((self._state.repeats, fresh.repeats), (self._state.gaps, fresh.gaps))
        )
        self._state = SensorState(repeats, gaps, np.concatenate([self._state.last, fresh.last]))

    def forgive(self, column: int) -> None:
        """Take the run of a column that lasts now as usual."""
        for runs in (self._state.repeats, self._state.gaps):
            # The next run as long as this one raises nothing, and this one is counted when it ends.
            runs.longest[column] = max(runs.longest[column], runs.length[column])
            runs.unusual[column] = False

    def memory(self) -> dict[str, Any]:
        """All that is remembered, as JSON values."""
        runs = [[field.tolist() for field in part] for part in (self._state.repeats, self._state.gaps)]
        return {"rows": self.n_rows, "runs": runs, "last": [None if x != x else x for x in self._state.last.tolist()]}

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave; raises TypeError, ValueError or KeyError for anything else."""
        D = len(self._state.last)
        repeats, gaps = (_restored_runs(part, D) for part in memory["runs"])
        last = np.array([math.nan if x is None else float(x) for x in memory["last"]]).reshape(D)
        self._state, self.n_rows = SensorState(repeats, gaps, last), restored_count(memory["rows"])


def _restored_runs(fields: Any, n_columns: int) -> Runs:
    empty = states.no_runs(n_columns)
    return Runs(*(np.array(f, like.dtype).reshape(like.shape) for f, like in zip(fields, empty, strict=True)))


class Steps:
    """How much each sensor usually changes from a probe to the next, and within some minutes.

    Parameters
    ----------
    n_columns : int
        Number of sensors.
    stride : int, default=1
        Rows from one probe to the next.
    """

    def __init__(self, n_columns: int, stride: int = 1) -> None:
        self.stride = stride
        self._n_rows = 0
        self._probes = np.full((max(LAGS), n_columns), np.nan)  # the latest rows that were probes
        self._squares, self._n = np.zeros((len(LAGS), n_columns)), np.zeros((len(LAGS), n_columns))

    def _changes(self, X: Array) -> tuple[Array, NDArray[np.int64]]:
        """Each value of the next rows less those of probes before it (lags, n, D), and which of the rows are probes."""
        # Multiples of the stride in the whole stream, whatever the batches are.
        places = np.arange(-self._n_rows % self.stride, len(X), self.stride)
        probes = np.concatenate([self._probes, X[places]])
        before = len(self._probes) + np.searchsorted(places, np.arange(len(X)))  # probes before each row
        return np.stack([X - probes[before - lag] for lag in LAGS]), places

    def take(self, X: Array, *, learns: bool) -> None:
        """Take the next rows, whose changes are usual ones if `learns`."""
        changes, places = self._changes(X)
        squares = changes[:, places] ** 2
        some = np.isfinite(squares) & learns
        # The count is capped: from there on it is a moving average, which follows a sensor that becomes noisier.
        self._n = np.minimum(self._n + some.sum(axis=1), STEPS_LEARNED)
        gained = np.where(some, squares - self._squares[:, None], 0.0).sum(axis=1)
        self._squares = self._squares + gained / np.maximum(self._n, 1.0)
        self._probes = np.concatenate([self._probes, X[places]])[len(places) :]
        self._n_rows += len(X)

    def sizes(self, X: Array) -> Array:
        """How far the values of the next rows are from those of probes before, in usual changes (lags, n, D); 0 while
        nothing is known.
        """
        changes, _ = self._changes(X)
        usual, n = np.sqrt(self._squares)[:, None], self._n[:, None]
        known = (n >= LEAST_STEPS) & (usual > 0) & np.isfinite(changes)
        return np.asarray(np.where(known, np.abs(changes), 0.0) / np.where(usual > 0, usual, 1.0))

    def grow(self, n_columns: int) -> None:
        """Add columns behind the others, of which nothing is known."""
        self._probes = np.column_stack([self._probes, np.full((len(self._probes), n_columns), np.nan)])
        zeros = np.zeros((len(LAGS), n_columns))
        self._squares, self._n = (np.column_stack([x, zeros]) for x in (self._squares, self._n))

    def memory(self) -> list[Any]:
        """All of it as JSON values."""
        rows = [[None if x != x else x for x in row] for row in self._probes.tolist()]
        return [self._n_rows, rows, self._squares.tolist(), self._n.tolist()]

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave; raises TypeError or ValueError for anything else."""
        n_rows, *parts = memory
        self._n_rows = restored_count(n_rows)
        likes = (self._probes, self._squares, self._n)
        self._probes, self._squares, self._n = (
            np.array(part, np.float64).reshape(like.shape) for part, like in zip(parts, likes, strict=True)
        )


class Step(NamedTuple):
    """What the time of one row says about the pace of the stream."""

    missing: bool
    """Whether rows are missing before it."""
    off_pace: bool
    """Whether the sampling rate is another one than usual."""


class PaceCheck:
    """The seconds between rows: gaps, and a sampling rate that changed.

    Attributes
    ----------
    interval : float
        Usual seconds from a row to the next; NaN while unknown.
    last : float
        Time of the latest row, in seconds since 1970; NaN before the first.
    """

    def __init__(self) -> None:
        self.interval = self.last = math.nan
        self._n_missed = self._n_late = 0
        self._steps: deque[float] = deque(maxlen=STEPS_KEPT)

    @property
    def present(self) -> float:
        """Seconds from a row to the next by the latest steps."""
        return statistics.median(self._steps) if self._steps else math.nan

    def step(self, time: float) -> Step:
        """Take the time of the next row; NaN for a row without one."""
        if math.isnan(time):
            return Step(False, False)
        step = time - self.last
        # A row that comes late says nothing about the pace, and the next one is no gap; a clock that was set back stays
        # behind.
        self._n_late = self._n_late + 1 if step < 0 else 0
        if 0 < self._n_late < LATE_ROWS:
            self._n_missed = 0
            return Step(False, False)
        self.last, self._n_late = time, 0
        if math.isnan(step) or step <= 0:
            return Step(False, False)  # the first row, rows of one moment, or a clock that was set back
        self._n_missed = self._n_missed + 1 if step > GAP_FACTOR * self.interval else 0
        # Long steps one after the other are not gaps: rows come at another pace now.
        if 0 < self._n_missed <= MOST_GAPS:
            return Step(True, False)
        self._steps.append(step)
        if math.isnan(self.interval):
            if len(self._steps) >= FIRST_STEPS:
                self.interval = self.present
            return Step(False, False)
        # A change must fill more than half of the window before the median follows it.
        full = len(self._steps) == STEPS_KEPT
        ratio = self.present / self.interval if full else 1.0
        return Step(False, not 1 / RATE_FACTOR < ratio < RATE_FACTOR)

    def accept(self) -> None:
        """Take the present pace as the usual one."""
        self.interval = self.present

    def memory(self) -> list[float | None]:
        """All that is remembered, as JSON values."""
        # Late rows one after the other are below zero in the place of missed ones, which do not count beside them.
        return [
            None if x != x else x for x in (self._n_missed or -self._n_late, self.interval, self.last, *self._steps)
        ]

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave; raises TypeError or ValueError for anything else."""
        n_missed, self.interval, self.last, *steps = (math.nan if x is None else float(x) for x in memory)
        self._n_missed, self._n_late = (restored_count(max(0, sign * int(n_missed))) for sign in (1, -1))
        self._steps.extend(steps)
