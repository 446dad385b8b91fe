"""Alarms on clean streams are as many as were asked for, and p-values are uniform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import kstest

from everlearn import AnomalyDetector

pytestmark = pytest.mark.slow

ROWS, UNJUDGED = 10_000, 2000


def gaussian(rng):
    return rng.normal(size=(ROWS, 4))


def groups(rng):
    return 4.0 * np.random.default_rng(5).normal(size=(3, 4))[rng.integers(3, size=ROWS)] + rng.normal(size=(ROWS, 4))


def heavy_tails(rng):
    return rng.standard_t(3, size=(ROWS, 3))


def autocorrelated(rng):
    return lfilter([1.0], [1.0, -0.9], rng.normal(size=(ROWS, 3)), axis=0)


def seasonal(rng):
    t = np.arange(ROWS)[:, None]
    return np.sin(2 * np.pi * (t / 96 + np.array([0.0, 0.2]))) + 0.2 * rng.normal(size=(ROWS, 2))


def drifting(rng):
    return rng.normal(size=(ROWS, 3)) + np.cumsum(0.02 * rng.normal(size=(ROWS, 3)), axis=0)


def discrete(rng):
    return np.column_stack([rng.poisson(3, ROWS), rng.integers(0, 5, ROWS), rng.random(ROWS) < 0.1]).astype(float)


def on_and_off(rng):
    level = 5.0 * ((np.arange(ROWS) - 100) % 288 < 110)
    return level[:, None] * np.array([1.0, 0.5, -1.0]) + 0.3 * rng.normal(size=(ROWS, 3))


STREAMS = [gaussian, groups, heavy_tails, autocorrelated, seasonal, drifting, discrete, on_and_off]


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.__name__)
def test_false_alarms_are_as_many_as_asked_for(stream):
    """Between half and twice one in 100 and one in 1,000; the bounds leave room for twice the Poisson error."""
    scores = AnomalyDetector().prequential(stream(np.random.default_rng(0)))[UNJUDGED:]
    for rate in (1e-2, 1e-3):
        expected = rate * len(scores)
        found = (scores < np.log(rate)).sum()
        assert 0.5 * expected - 2 * np.sqrt(0.5 * expected) <= found <= 2 * expected + 2 * np.sqrt(2 * expected), rate


@pytest.mark.slow
@pytest.mark.parametrize("stream", [gaussian, heavy_tails, discrete], ids=lambda stream: stream.__name__)
def test_false_alarms_at_one_in_ten_thousand(stream):
    """Five runs of 40,000 rows after the first 10,000: 20 alarms are asked for, and half to twice as many may come.

    The bounds leave room for twice the Poisson error. The tail of the scores alone gave 5 times as many on heavy tails,
    and 3 times as many on counts.
    """
    long = [np.concatenate([stream(np.random.default_rng([2, run, part])) for part in range(5)]) for run in range(5)]
    found = sum((AnomalyDetector().prequential(X)[ROWS:] < np.log(1e-4)).sum() for X in long)
    assert 10 - 2 * np.sqrt(10) <= found <= 40 + 2 * np.sqrt(40)


@pytest.mark.parametrize("stream", [gaussian, groups, heavy_tails], ids=lambda stream: stream.__name__)
def test_p_values_are_uniform_on_rows_of_the_same_law(stream):
    X = stream(np.random.default_rng(1))
    detector = AnomalyDetector().fit(X[:3000])
    p = np.exp(detector.prequential(X[3000:]))
    assert kstest(p, "uniform").statistic < 0.05
