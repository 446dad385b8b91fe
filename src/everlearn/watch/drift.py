"""Slow drift of one sensor against the others: the rows of now, asked of what was learned an hour or two ago.

A model that learns follows a slow drift and finds nothing unusual in it. A reference that is one to two hours old does
not. It is one Gaussian of all that was usual: a mixture describes each hour so closely that the next one departs from
it in any case, while a linear relation between sensors holds beyond the values from which it was learned. The column
that departs most, in standard deviations given the others, is the one that drifts: the others depart only by their
partial correlation with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.streams.prequential import restored_count
from everlearn.typing import Array

SMOOTHED = 15.0  # probes over which departures are averaged
LEAST_PROBES = 720  # usual ones, four hours of them, before a reference is trusted
LARGEST = 50.0  # standard deviations that one probe counts with
LASTING = 15  # probes for which a departure must last
# Chosen on five seeds of the pump, with the faults taken out by their labels: from the fifth hour on, averaged
# departures of healthy hours reach 8 standard deviations, those of a drift of six degrees an hour 8 to 15. Earlier they
# reach 10, and 23 once.
LEAST_SIZE = 8.0
BEYOND_PEAK = 1.3  # times the largest departure of the hours before
PEAK_DECAY = 0.98  # an hour
SHRINKAGE = 1e-3  # of the variances, so that a reference of columns that move together can be inverted


class DriftCheck:
    """Averages of the departures of probes from an older Gaussian, beside the largest of the hours before.

    Parameters
    ----------
    n_columns : int
        Number of sensors.

    Attributes
    ----------
    average : ndarray of shape (D,)
        Departures in standard deviations given the other sensors, averaged over the latest probes.
    """

    def __init__(self, n_columns: int) -> None:
        D = n_columns
        self._n, self._mean, self._scatter = 0, np.zeros(D), np.zeros((D, D))
        self._old: tuple[Array, Array] | None = None
        self._young: tuple[Array, Array] | None = None
        self._age = self._lasting = self._suspended = 0
        self._peak, self._recent_peak = np.zeros(D), np.zeros(D)
        self.average = np.zeros(D)

    @property
    def n_columns(self) -> int:
        """Number of sensors that are compared, the first ones; those that appeared later are not among them."""
        return len(self.average)

    def suspend(self, probes: int) -> None:
        """Find nothing for a while: what is usual has just changed, and the reference does not know it."""
        self._suspended, self._lasting = probes, 0

    def renew(self, every: int) -> None:
        """Take what is usual now as the next reference, if the latest was taken so many probes ago."""
        self._age += 1
        if self._age < every or self._n <= len(self._mean):
            return
        self._old, self._young, self._age = self._young, (self._mean.copy(), self._scatter / self._n), 0
        self._peak = np.maximum(PEAK_DECAY * self._peak, self._recent_peak)
        self._recent_peak = np.zeros(len(self._mean))

    def take(self, x: Array, *, learns: bool) -> int | None:
        """Take the mean of a few rows, which is usual if `learns`; returns the column that drifts, or None."""
        if learns and not np.isnan(x).any():
            self._learn(x)
        if self._old is None:
            return None
        z = np.clip(self.departures(x), -LARGEST, LARGEST)
        self.average += (z - self.average) / SMOOTHED
        if self._suspended:
            self._suspended -= 1
            self.average[:] = 0.0
            return None
        size = np.abs(self.average)
        column = int(np.argmax(size))
        if learns:
            self._recent_peak = np.maximum(self._recent_peak, size)
        found = self._n >= LEAST_PROBES and self.is_off(column)
        self._lasting = self._lasting + 1 if found else 0
        return column if self._lasting >= LASTING else None

    def is_off(self, column: int, share: float = 1.0) -> bool:
        """Whether a column departs by this share of what makes a drift, or more."""
        return abs(float(self.average[column])) > share * max(LEAST_SIZE, BEYOND_PEAK * float(self._peak[column]))

    def departures(self, x: Array) -> Array:
        """Departure of each value from its conditional mean under the reference, in standard deviations; 0 for a gap.

        With the precision P of the observed columns and e = x - mean, that of column j is (P e)_j / sqrt(P_jj).
        """
        found = np.zeros(len(x))
        seen = np.flatnonzero(~np.isnan(x))
        if self._old is None or len(seen) < 2:
            return found
        mean, covariance = self._old
        block = covariance[np.ix_(seen, seen)]
        P = np.linalg.inv(block + np.diag(SHRINKAGE * np.diag(block) + 1e-300))
        found[seen] = P @ (x[seen] - mean[seen]) / np.sqrt(np.diag(P))
        return found

    def _learn(self, x: Array) -> None:
        self._n += 1
        away = x - self._mean
        self._mean = self._mean + away / self._n
        self._scatter = self._scatter + np.outer(away, x - self._mean)

    def memory(self) -> dict[str, Any]:
        """All of it as JSON values."""
        references = [None if r is None else [part.tolist() for part in r] for r in (self._old, self._young)]
        arrays = [part.tolist() for part in (self._mean, self._scatter, self._peak, self._recent_peak, self.average)]
        return {
            "columns": self.n_columns, "references": references, "arrays": arrays,
            "counts": [self._n, self._age, self._lasting, self._suspended],
        }  # fmt: skip

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave; raises TypeError, ValueError or KeyError for anything else."""
        D = len(self.average)
        self._old, self._young = (
            None if r is None else (np.array(r[0], np.float64).reshape(D), np.array(r[1], np.float64).reshape(D, D))
            for r in memory["references"]
        )
        mean, scatter, *others = (np.array(part, np.float64) for part in memory["arrays"])
        self._mean, self._scatter = mean.reshape(D), scatter.reshape(D, D)
        self._peak, self._recent_peak, self.average = (part.reshape(D) for part in others)
        self._n, self._age, self._lasting, self._suspended = map(restored_count, memory["counts"])
