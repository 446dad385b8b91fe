"""The evidence of an episode of unusual rows: which sensors are to blame, how far they are off, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everlearn.typing import Array
from everlearn.watch.episodes import Blame, Episode
from everlearn.watch.expectation import departures
from everlearn.watch.json_arrays import array_of, json_list, json_value

MOST_BLAMED = 4
MOST_NATS = 50.0
LEAST_SHARE = 0.1  # of the blame that a sensor must have to be told of first
# A drift: one sensor alone departs steadily (correlation with time) and ever farther.
LEAST_COURSE, MOST_COURSE = 8, 64
ALONE, STEADY, DRIFT_GROWTH = 0.8, 0.7, 1.3
# Usual errors that a sensor must be off by (chosen on three seeds of the pump, not on other machines), and the share of
# them that keeps an episode open.
LEAST_SIZE, STILL_OFF = 5.0, 0.5
# Standard errors of the long-run relation between the sensors by which an episode must be off: beyond what was learned
# the mixture knows nothing, while the relation holds on.
LEAST_ERROR = 4.0
# Usual errors that are off whatever the relation says: where two sensors leave their range together, as those of a
# bearing that fails slowly, it knows too little of either to say so. On fifteen seeds of the pump usual rows were off
# by 19 at most (12 without the hour after a change of regime), the failing bearing by 23 to 62.
FAR_OFF = 25.0
BEYOND_DOUBT, UNKNOWN = 1e9, 1e12  # standard errors of a jump, and of a sensor of which too little is known


class Unusual:
    """The episode of unusual rows that lasts, with the evidence about its sensors.

    Attributes
    ----------
    episode : Episode
        What is known so far.
    blame : ndarray of shape (D,)
        Sum over the explained rows of each column's blame in nats, of which a row has 50 at most.
    worst : float
        Score of the row that stood out most.
    values, low, high : ndarray of shape (D,)
        What its columns were, and where they were expected.
    sizes : ndarray of shape (D,)
        How far each column was from what was expected at most, in usual errors.
    errors : ndarray of shape (D,)
        How far it was from its long-run relation to the others at most, in standard errors, in rows in which it was
        also far from what was expected; huge after a jump.
    course : list of (row, departures)
        How far each column was from what was expected, in widths of the interval; every second point is dropped when
        there are too many.
    """

    def __init__(self, episode: Episode, n_columns: int) -> None:
        self.episode = episode
        self.blame = np.zeros(n_columns)
        self.worst = 0.0
        self.values, self.low, self.high = (np.full(n_columns, np.nan) for _ in range(3))
        self.course: list[tuple[int, list[float]]] = []
        self.sizes, self.errors = np.zeros(n_columns), np.zeros(n_columns)

    def take(self, explanation: Any, row: int, score: float, sizes: Array, errors: Array) -> None:
        """Add the explanation of one row, and how far off its columns were in usual and in standard errors."""
        blame = explanation.blame[0]
        # Both must be off in the same row: each may have been at another time, by chance.
        both = np.where((sizes > LEAST_SIZE) | (errors >= UNKNOWN), errors, 0.0)
        self.sizes, self.errors = np.fmax(self.sizes, sizes), np.fmax(self.errors, both)
        # One row counts with 50 nats at most, and rows that hardly stand out count less than those that do.
        largest = max(float(blame.max()), 1e-12)
        self.blame += blame * min(1.0, MOST_NATS / largest)
        if score <= self.worst:
            self.worst = score
            self.values, self.low, self.high = explanation.values[0], explanation.low[0], explanation.high[0]
        self.course.append((row, departures(explanation).tolist()))
        if len(self.course) > MOST_COURSE:
            # Every second point: what is left still spans the whole episode, at half the resolution.
            del self.course[1::2]

    def drifting(self) -> int | None:
        """The column that departs from what is expected of it slowly and steadily, alone; None if there is none."""
        order = np.argsort(-self.blame, kind="stable")
        if len(self.course) < LEAST_COURSE or self.blame[order[1]] > ALONE * self.blame[order[0]]:
            return None
        column = int(order[0])
        rows = np.array([row for row, _ in self.course], dtype=np.float64)
        away = np.array([found[column] for _, found in self.course])
        known = np.isfinite(away)
        if known.sum() < LEAST_COURSE:
            return None
        rows, away = rows[known], away[known]
        # Medians of the first and the last third: single rows of either end do not decide.
        third = len(away) // 3
        grows = abs(np.median(away[-third:])) > DRIFT_GROWTH * abs(np.median(away[:third]))
        steady = abs(float(np.corrcoef(rows, away)[0, 1])) > STEADY if np.ptp(away) > 0 else False
        return column if grows and steady else None

    @property
    def off(self) -> Any:
        """Columns with a part in the blame that were off by more than their expectations usually are."""
        shared = self.blame > LEAST_SHARE * self.blame.sum()
        return shared & _off(self.sizes, self.errors)

    @property
    def size(self) -> float:
        """How far the column that is off most was from what was expected, in usual errors; 0 if none is off."""
        return float(self.sizes[self.off].max(initial=0.0))

    def lasts(self, explanation: Any, sizes: Array, errors: Array) -> bool:
        """Whether an unusual row belongs to it: a column that was off still is, or another one is now.

        Rows may be unusual for other reasons, such as an afternoon that is warmer than all before. They must not keep
        an episode open until it is accepted, with all that happens meanwhile, as the new normal.
        """
        shared = explanation.blame[0] > LEAST_SHARE * explanation.blame[0].sum()
        still = self.off & (sizes > STILL_OFF * LEAST_SIZE)
        return bool((shared & (still | _off(sizes, errors))).any())

    def order(self) -> Any:
        """Numbers of the columns, the one to blame first: those that were off come before all others.

        So do those of which too little is known to say how far they are off.
        """
        # The last key is the first one that is sorted by.
        return np.lexsort((-self.blame, ~(self.off | (self.errors >= UNKNOWN))))

    def sensors(self, columns: Sequence[str]) -> tuple[Blame, ...]:
        """The columns to blame, the first first."""
        total = max(float(self.blame.sum()), 1e-12)
        return tuple(
            Blame(columns[j], float(self.blame[j] / total), *(float(x[j]) for x in (self.values, self.low, self.high)))
            for j in self.order()[:MOST_BLAMED]
        )

    def _arrays(self) -> tuple[Array, ...]:
        return self.blame, self.values, self.low, self.high, self.sizes, self.errors

    def memory(self) -> dict[str, Any]:
        """All of it as JSON values."""
        arrays = [json_list(a) for a in self._arrays()]
        course = [[row, [json_value(x) for x in away]] for row, away in self.course]
        return {"episode": self.episode.record(), "worst": self.worst, "arrays": arrays, "course": course}

    @classmethod
    def of(cls, memory: Any, n_columns: int) -> Unusual:
        """What `memory` gave."""
        found = cls(Episode.of(memory["episode"]), n_columns)
        arrays = [array_of(a) for a in memory["arrays"]]
        found.blame, found.values, found.low, found.high, found.sizes, found.errors = (
            a.reshape(n_columns) for a in arrays
        )
        found.worst = float(memory["worst"])
        found.course = [(int(row), array_of(away).tolist()) for row, away in memory["course"]]
        return found


def _off(sizes: Array, errors: Array) -> Any:
    """Columns that are off, by their sizes in usual errors and in standard errors of their long-run relation."""
    return (sizes > FAR_OFF) | ((sizes > LEAST_SIZE) & (errors > LEAST_ERROR))
