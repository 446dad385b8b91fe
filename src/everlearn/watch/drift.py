"""What the sensors say of each other in the long run: how wrong that is, and a slow drift of one against the others.

A model that learns follows a slow drift and finds nothing unusual in it. A reference that is one to two hours old does
not. It is one Gaussian of all that was usual: a mixture describes each hour so closely that the next one departs from
it in any case, while a linear relation between sensors holds beyond the values from which it was learned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everlearn.streams.prequential import restored_count
from everlearn.typing import Array

SMOOTHED = 30.0  # probes over which values are averaged: ten minutes, in which lags between sensors even out
LEAST_PROBES = 720  # usual ones, four hours of them, before a reference is trusted
LASTING = 15  # probes for which a departure must last
# Probes that count as one observation: slow temperatures forget within a quarter of an hour.
CORRELATED = 45.0
# The prior of the covariance: two observations of uncorrelated columns with this share of their variances.
PRIOR_OBSERVATIONS, PRIOR_VARIANCE = 2.0, 0.02
# Chosen on 16 other seeds of the pump without faults, on which averaged departures reached 6.0 standard deviations from
# the fifth hour on; benchmarks/pump.py judges it on seeds of its own.
LEAST_SIZE = 6.3


class Relation(NamedTuple):
    """One Gaussian of all columns, with what is not known about it."""

    n: int
    """Probes that were learned."""
    mean: Array  # (D,)
    scatter: Array  # (D, D), sum of squares about the mean

    def learned(self, x: Array) -> Relation:
        """The relation after one more probe, in which no value is missing."""
        n, away = self.n + 1, x - self.mean
        mean = self.mean + away / n
        return Relation(n, mean, self.scatter + np.outer(away, x - mean))

    @property
    def dof(self) -> float:
        """Degrees of freedom of the errors: observations that are independent of each other, and the prior's."""
        return PRIOR_OBSERVATIONS + self.n / CORRELATED

    def errors(self, x: Array) -> Array:
        """Each value less what the others predict, in standard errors of that prediction; 0 for a gap.

        By the posterior predictive of a Gaussian with an inverse Wishart prior (A. Gelman and others, Bayesian Data
        Analysis, 3.6), a Student t: with the precision P of the observed columns' scatter, d = x - mean and n
        observations, that of column j is t_j^2 = dof (P d)_j^2 / P_jj / (1 + 1/n + d'Pd - (P d)_j^2 / P_jj). The last
        terms widen it where the other values lie outside of what was learned.
        """
        found = np.zeros(len(x))
        seen = np.flatnonzero(~np.isnan(x))
        if self.n <= len(x) or len(seen) < 2:
            return found
        block = self.scatter[np.ix_(seen, seen)]
        # `scatter` is a sum over n correlated probes: divided by CORRELATED it is one over independent observations.
        prior = PRIOR_OBSERVATIONS * PRIOR_VARIANCE * np.diag(block) / self.n
        P = np.linalg.inv(block / CORRELATED + np.diag(prior + 1e-300))
        d = x[seen] - self.mean[seen]
        Pd = P @ d
        # The part of the squared distance that column j adds given all others; what is left is that of the others
        # alone.
        own = Pd**2 / np.diag(P)
        others = np.maximum(d @ Pd - own, 0.0)
        found[seen] = np.sign(Pd) * np.sqrt(self.dof * own / (1.0 + CORRELATED / self.n + others))
        return found


def no_relation(n_columns: int) -> Relation:
    """The relation before the first probe."""
    return Relation(0, np.zeros(n_columns), np.zeros((n_columns, n_columns)))


class DriftCheck:
    """Averaged probes beside a relation that is one to two hours old.

    Parameters
    ----------
    n_columns : int
        Number of sensors.

    Attributes
    ----------
    relation : Relation
        What the usual probes say, averaged as they are.
    departure : ndarray of shape (D,)
        How far each column is from what the others predict, as the standard deviations of a Gaussian that are as
        improbable.
    """

    def __init__(self, n_columns: int) -> None:
        self.relation = no_relation(n_columns)
        self._slow = no_relation(n_columns)  # of averaged probes
        # Two references in turn: the young one becomes the old one when the next is taken, so that what is compared
        # with is always between one and two periods old.
        self._old: Relation | None = None
        self._young: Relation | None = None
        self._age = self._lasting = self._suspended = 0
        self._average, self._averaged = np.full(n_columns, np.nan), np.zeros(n_columns, np.int64)
        self.departure = np.zeros(n_columns)

    @property
    def n_columns(self) -> int:
        """Number of sensors that are compared, the first ones; those that appeared later are not among them."""
        return len(self.departure)

    @property
    def is_ready(self) -> bool:
        """Whether a drift would be found."""
        return self._old is not None and self._slow.n >= LEAST_PROBES

    def suspend(self, probes: int) -> None:
        """Find nothing for a while: what is usual has just changed, and the reference does not know it."""
        self._suspended, self._lasting = probes, 0
        # Averages that span the change are neither of the old normal nor of the new one.
        self._averaged[:] = 0

    def restart_averages(self) -> None:
        """Average anew: what was averaged until now was disturbed."""
        self._averaged[:] = 0

    def renew(self, every: int) -> None:
        """Take what is usual now as the next reference, if the latest was taken so many probes ago."""
        self._age += 1
        if self._age >= every and self._slow.n > self.n_columns:
            self._old, self._young, self._age = self._young, self._slow, 0

    def take(self, x: Array, *, learns: bool) -> int | None:
        """Take the mean of a few rows, which is usual if `learns`; returns the column that drifts, or None."""
        average = self._averages(x)
        if learns and not np.isnan(x).any():
            self.relation = self.relation.learned(x)
        if learns and not np.isnan(average).any():
            self._slow = self._slow.learned(average)
        self._suspended = max(0, self._suspended - 1)
        if self._old is None or self._suspended:
            self.departure[:] = 0.0
            return None
        self.departure = gaussian_equivalent(self._old.errors(average), self._old.dof)
        # One sensor drifts against all others; what they do together is the business of the mixture.
        column = int(np.argmax(np.abs(self.departure)))
        found = self.is_ready and self.is_off(column)
        self._lasting = self._lasting + 1 if found else 0
        return column if self._lasting >= LASTING else None

    def is_off(self, column: int, share: float = 1.0) -> bool:
        """Whether a column departs by this share of what makes a drift, or more."""
        return abs(float(self.departure[column])) > share * LEAST_SIZE

    def _averages(self, x: Array) -> Array:
        """Running means of the columns; NaN for one that was not observed long enough."""
        seen = ~np.isnan(x)
        # A gap begins the average anew: a mean over a longer time would not be comparable with those of the reference.
        self._averaged = np.where(seen, self._averaged + 1, 0)
        first = self._averaged <= 1
        weight = 1.0 / np.clip(self._averaged, 1, SMOOTHED)
        self._average = np.where(first, x, self._average + weight * (x - self._average))
        return np.where(self._averaged >= SMOOTHED, self._average, np.nan)

    def memory(self) -> dict[str, Any]:
        """All of it as JSON values."""
        relations = (self.relation, self._slow, self._old, self._young)
        return {
            "columns": self.n_columns,
            "relations": [None if r is None else [r.n, r.mean.tolist(), r.scatter.tolist()] for r in relations],
            "averages": [[None if x != x else x for x in self._average.tolist()], self._averaged.tolist()],
            "departure": self.departure.tolist(),
            "counts": [self._age, self._lasting, self._suspended],
        }

    def restore(self, memory: Any) -> None:
        """Go on from what `memory` gave; raises TypeError, ValueError or KeyError for anything else."""
        D = self.n_columns
        relation, slow, self._old, self._young = (
            None if r is None
            else Relation(restored_count(r[0]), np.array(r[1], np.float64).reshape(D),
                          np.array(r[2], np.float64).reshape(D, D))
            for r in memory["relations"]
        )  # fmt: skip
        if relation is None or slow is None:
            raise ValueError("a check for drift has no relation")
        self.relation, self._slow = relation, slow
        average, averaged = memory["averages"]
        self._average = np.array(average, np.float64).reshape(D)
        self._averaged = np.array([restored_count(n) for n in averaged], np.int64).reshape(D)
        self.departure = np.array(memory["departure"], np.float64).reshape(D)
        self._age, self._lasting, self._suspended = map(restored_count, memory["counts"])


def gaussian_equivalent(t: Array, dof: float) -> Array:
    """Values of a Gaussian that are as improbable as those of a Student t; at most 37, where a tail underflows."""
    from scipy.special import ndtri, stdtr  # slow to import, and needed here only

    tail = np.maximum(stdtr(dof, -np.abs(t)), 1e-300)
    return np.asarray(-np.sign(t) * ndtri(tail))
