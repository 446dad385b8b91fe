"""Regimes of a stream: the groups of rows in which it stays for a while, and when each of them was active."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from everlearn.gaussian.mixture import Mixture
from everlearn.typing import Array

Labels = NDArray[np.int64]

# A group is a regime if at least half of the rows around one of its rows, in a window this wide, are its own.
_WINDOW, _OWN = 51, 0.5
# Groups of fewer rows than this share are not looked at.
_LEAST_SHARE = 0.01
# A shorter stay is noise in another one.
_LEAST_STAY = 25
# Rows after a switch in which a stream may still be on its way; a component is a way between regimes if at least half
# of its rows are among them.
# The rule was chosen among three on seeds 0 to 4 of the demonstration with 20,000 rows (`everlearn learn --demo --rows
# 20000 --seed 0`), where it finds 259 of 267 faults with 65 false alarms in 100,000 rows. On seeds 5 to 7, kept aside:
# 156 of 164, 26 in 60,000.
_WAY_ROWS, _WAY_SHARE = 25, 0.5
# Family-wise error: the share of streams of usual Gaussian rows in which any row is found outside.
_FAMILY_WISE = 0.05


class Stay(NamedTuple):
    """Rows in which a stream is in one regime."""

    regime: int  # from 1 on, the one with most rows first
    first: int
    end: int  # the row after the last


def stays_in_regimes(labels: Labels) -> list[Stay]:
    """When a stream was in which regime, by the group (component or mode) of each of its rows.

    Groups through which the stream only passes, such as rows between two regimes or rows of a fault, are no regimes:
    their rows count to the next regime.
    """
    regimes = [k for k in np.unique(labels) if _is_regime(labels == k)]
    if not regimes:
        return []
    regimes.sort(key=lambda k: -int((labels == k).sum()))
    number = np.zeros(len(labels), dtype=np.int64)
    for i, k in enumerate(regimes):
        number[labels == k] = i + 1
    stays: list[Stay] = []
    for stay in _runs(_filled_backwards(number)):
        short = stay.end - stay.first < _LEAST_STAY
        # Joined from left to right: a short stay is swallowed by the one before, and the next of the same regime joins
        # it.
        if stays and (short or stays[-1].regime == stay.regime):
            stays[-1] = stays[-1]._replace(end=stay.end)
        else:
            stays.append(stay)
    return _renumbered(stays)


def _renumbered(stays: list[Stay]) -> list[Stay]:
    """The stays with regimes numbered by the rows that they have now: rows on the way to a regime count to it, and may
    change the order.
    """
    rows = Counter[int]()
    for stay in stays:
        rows[stay.regime] += stay.end - stay.first
    numbers = {regime: i for i, (regime, _) in enumerate(rows.most_common(), start=1)}
    return [stay._replace(regime=numbers[stay.regime]) for stay in stays]


def _is_regime(own: NDArray[np.bool_]) -> bool:
    if own.mean() < _LEAST_SHARE:
        return False
    # Counts by differences of a cumulative sum: linear in the rows, whatever the window.
    rows, before = np.flatnonzero(own), np.concatenate([[0], np.cumsum(own)])
    first, end = np.maximum(rows - _WINDOW // 2, 0), np.minimum(rows + _WINDOW // 2 + 1, len(own))
    return bool(((before[end] - before[first]) / (end - first)).mean() >= _OWN)


def _filled_backwards(number: Labels) -> Labels:
    """Zeros become the next number; those at the end the last one."""
    known = np.flatnonzero(number)
    following = np.minimum(np.searchsorted(known, np.arange(len(number))), len(known) - 1)
    return number[known[following]]


def _runs(number: Labels) -> list[Stay]:
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
    return [Stay(int(number[a]), a, b) for a, b in itertools.pairwise(edges)]


def active(stays: list[Stay], n_rows: int) -> Labels:
    """Regime of every row."""
    out = np.zeros(n_rows, dtype=np.int64)
    for stay in stays:
        out[stay.first : stay.end] = stay.regime
    return out


class Usual(NamedTuple):
    """What is usual in a stream: the components of its regimes, and of the ways between them."""

    regimes: Mixture
    regimes_and_ways: Mixture
    on_the_way: NDArray[np.bool_]
    """Whether each row comes soon after a switch, when ways are usual too."""


def usual_of(mixture: Mixture, components: Labels, modes: Labels, stays: list[Stay]) -> Usual | None:
    """What is usual, by the component and the mode of each row; None where no regime is known.

    A mixture that learns every row gives components to faults that keep coming. These are left out: they are neither
    of a regime nor mostly among the rows after its switches.
    """
    on_the_way = np.zeros(len(modes), dtype=bool)
    for stay in stays[1:]:
        on_the_way[stay.first : stay.first + _WAY_ROWS] = True
    in_regime = np.isin(modes, [k for k in np.unique(modes) if _is_regime(modes == k)])
    regimes, ways = [], []
    for k in np.unique(components):
        own = components == k
        # All rows of a component have the mode that it leads to.
        if in_regime[own].mean() >= _OWN:
            regimes.append(k)
        elif on_the_way[own].mean() >= _WAY_SHARE:
            ways.append(k)
    if not regimes:
        return None
    settled, all_usual = (Mixture._make(part[chosen] for part in mixture) for chosen in (regimes, regimes + ways))
    return Usual(settled, all_usual, on_the_way)


def outside(X: Array, usual: Usual) -> NDArray[np.bool_]:
    """Rows that are outside of every regime and, soon after a switch, of the ways between them."""
    p = np.where(usual.on_the_way, tail_probability(X, usual.regimes_and_ways), tail_probability(X, usual.regimes))
    # Bonferroni's bound: with this level the number of rows does not matter.
    return np.asarray(p < _FAMILY_WISE / len(X))


def tail_probability(X: Array, mixture: Mixture) -> Array:
    """Probability of a row at least as far from the component that is nearest by this measure; gaps are left out.

    The squared Mahalanobis distance of a Gaussian row of d observed columns has a chi-squared law with d degrees of
    freedom.
    """
    p = np.ones(len(X))
    patterns, of_row = np.unique(~np.isnan(X), axis=0, return_inverse=True)
    for i, seen in enumerate(patterns):
        rows = np.flatnonzero(of_row.ravel() == i)
        if not seen.any():
            continue
        away = X[np.ix_(rows, seen)] - mixture.means[:, None, seen]  # (K, rows, d)
        factors = np.linalg.inv(np.linalg.cholesky(mixture.covariances[:, seen][:, :, seen]))
        squared = ((away @ factors.swapaxes(1, 2)) ** 2).sum(axis=2)
        p[rows] = gammaincc(seen.sum() / 2, squared.min(axis=0) / 2)
    return p
