"""The check for slow drift: one sensor against what was learned an hour or two ago."""

from __future__ import annotations

import json

import numpy as np
import pytest

from everlearn.watch.drift import LEAST_PROBES, DriftCheck

EVERY = 180


def probes(n=3000, seed=0):
    """Slow common temperature, three sensors that follow it."""
    rng = np.random.default_rng(seed)
    common = np.cumsum(rng.normal(0, 0.05, n))
    return np.column_stack([common, 2 * common, -common]) + rng.normal(0, 0.2, (n, 3))


def first_found(X, check=None, start=0):
    check = check or DriftCheck(3)
    for i in range(start, len(X)):
        check.renew(EVERY)
        column = check.take(X[i], learns=True)
        if column is not None:
            return i, column
    return None


def test_a_slow_drift_is_found_in_its_own_sensor():
    X = probes()
    X[2000:, 1] += np.linspace(0.0, 12.0, 1000)
    row, column = first_found(X)
    assert column == 1
    assert 2000 < row < 2900


@pytest.mark.parametrize("seed", range(3))
def test_sensors_that_move_together_do_not_drift(seed):
    assert first_found(probes(seed=seed)) is None


def test_nothing_is_found_before_enough_was_seen():
    X = probes(LEAST_PROBES - 1)
    X[300:, 1] += 10.0
    assert first_found(X) is None


def test_departures_are_exact_conditional_z_values():
    check, X = DriftCheck(3), probes(1000)
    first_found(X, check)
    mean, covariance = check._old
    covariance = covariance + np.diag(1e-3 * np.diag(covariance))
    x = X[-1] + np.array([0.0, 0.5, 0.0])
    others = [0, 2]
    gain = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, 1])
    expected = mean[1] + gain @ (x[others] - mean[others])
    variance = covariance[1, 1] - gain @ covariance[others, 1]
    assert check.departures(x)[1] == pytest.approx((x[1] - expected) / np.sqrt(variance), rel=1e-6)
    x[2] = np.nan
    assert check.departures(x)[2] == 0.0


def test_it_goes_on_after_a_restart():
    X = probes()
    X[2000:, 1] += np.linspace(0.0, 12.0, 1000)
    whole = first_found(X)
    first, second = DriftCheck(3), DriftCheck(3)
    assert first_found(X[:1500], first) is None
    second.restore(json.loads(json.dumps(first.memory())))
    assert first_found(X, second, start=1500) == whole
