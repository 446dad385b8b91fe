"""The check for slow drift: one sensor against what was learned an hour or two ago."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

from everlearn.watch.drift import (
    CORRELATED,
    LEAST_PROBES,
    PRIOR_OBSERVATIONS,
    PRIOR_VARIANCE,
    DriftCheck,
    gaussian_equivalent,
    no_relation,
)

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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sensors_that_move_together_do_not_drift(seed):
    assert first_found(probes(seed=seed)) is None


def test_nothing_is_found_before_enough_was_seen():
    X = probes(LEAST_PROBES - 1)
    X[300:, 1] += 10.0
    assert first_found(X) is None


@pytest.mark.parametrize("gap", [None, 2])
def test_errors_are_those_of_a_bayesian_regression_on_the_other_columns(gap):
    """Column by column by elimination: coefficients, what is left, and how far the others are from what was learned."""
    X = probes(1000)
    relation = no_relation(3)
    for row in X:
        relation = relation.learned(row)
    x = X[-1] + np.array([0.0, 0.5, 4.0])
    others = [0, 2]
    if gap is not None:
        x[gap] = np.nan
        others.remove(gap)
    scatter = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0)) / CORRELATED
    scatter += PRIOR_OBSERVATIONS * PRIOR_VARIANCE * np.diag(X.var(axis=0))
    n, away = 1000 / CORRELATED, x - X.mean(axis=0)
    coefficients = np.linalg.solve(scatter[np.ix_(others, others)], scatter[others, 1])
    left = scatter[1, 1] - coefficients @ scatter[others, 1]
    leverage = away[others] @ np.linalg.solve(scatter[np.ix_(others, others)], away[others])
    scale = np.sqrt(left / (PRIOR_OBSERVATIONS + n) * (1.0 + 1.0 / n + leverage))
    found = relation.errors(x)
    assert found[1] == pytest.approx((away[1] - coefficients @ away[others]) / scale, rel=1e-9)
    if gap is not None:
        assert found[gap] == 0.0


def test_a_gaussian_is_as_improbable_as_the_student_t():
    t = np.array([-6.0, -1.0, 0.5, 3.0])
    np.testing.assert_allclose(scipy.stats.norm.sf(gaussian_equivalent(t, 7.0)), scipy.stats.t.sf(t, 7.0), rtol=1e-9)
    assert gaussian_equivalent(np.array([1e9]), 100.0)[0] < 38.0


def test_the_whole_range_moving_on_is_no_error_and_one_sensor_alone_is():
    """A machine that gets warmer than it ever was: the mixture knows nothing of it, the relation holds on."""
    relation = no_relation(3)
    for row in probes(1500):
        relation = relation.learned(row)
    beyond = relation.mean + 10.0 * np.array([1.0, 2.0, -1.0])
    assert np.abs(relation.errors(beyond)).max() < 2.0
    alone = relation.errors(relation.mean + np.array([0.0, 20.0, 0.0]))
    assert np.abs(alone).argmax() == 1
    assert alone[1] > 6.0


def test_it_goes_on_after_a_restart():
    X = probes()
    X[2000:, 1] += np.linspace(0.0, 12.0, 1000)
    whole = first_found(X)
    first, second = DriftCheck(3), DriftCheck(3)
    assert first_found(X[:1500], first) is None
    second.restore(json.loads(json.dumps(first.memory())))
    assert first_found(X, second, start=1500) == whole
