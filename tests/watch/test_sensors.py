"""Checks of sensors: frozen, gone, rows missing, another pace."""

from __future__ import annotations

import json

import numpy as np
import pytest

from everlearn.watch.sensors import PaceCheck, SensorChecks, Steps

RATE = 1e-5


def noise(n, D=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D))


def test_a_frozen_sensor_is_marked_soon_and_only_while_it_lasts():
    X = noise(1000)
    X[600:700, 1] = X[600, 1]
    marks = SensorChecks(2).check(X, RATE)
    found = np.flatnonzero(marks.frozen[:, 1])
    assert 600 < found[0] <= 615
    assert found[-1] == 699
    assert set(marks.begin[found, 1]) == {601}
    assert not marks.frozen[:, 0].any()
    assert not marks.gone.any()


def test_a_sensor_that_is_gone_is_marked():
    X = noise(1000)
    X[500:550, 0] = np.nan
    marks = SensorChecks(2).check(X, RATE)
    found = np.flatnonzero(marks.gone[:, 0])
    assert 500 <= found[0] <= 515
    assert found[-1] == 549
    assert not marks.frozen.any()


def test_a_display_of_few_digits_is_not_frozen():
    X = np.round(np.cumsum(noise(5000, seed=1), axis=0) * 0.05, 0)
    assert SensorChecks(2).check(X, RATE).frozen.mean() < 1e-3


def test_gaps_that_are_usual_raise_no_alarm():
    X = noise(5000, seed=2)
    X[np.random.default_rng(3).random(X.shape) < 0.3] = np.nan
    assert not SensorChecks(2).check(X, RATE).gone.any()


def test_a_column_that_was_never_there_is_not_gone():
    X = noise(1000)
    X[:, 1] = np.nan
    assert not SensorChecks(2).check(X, RATE).gone.any()


def test_a_run_that_was_forgiven_is_not_marked_again():
    X = noise(1000)
    X[600:, 1] = 1.0
    checks = SensorChecks(2)
    assert checks.check(X, RATE).frozen[-1, 1]
    checks.forgive(1)
    assert not checks.check(np.full((50, 2), 1.0), RATE).frozen[:, 1].any()


@pytest.mark.parametrize("cut", [1, 603, 650])
def test_packaging_and_memory_do_not_matter(cut):
    X = noise(1000)
    X[600:700, 1] = X[600, 1]
    whole = SensorChecks(2).check(X, RATE)
    first, second = SensorChecks(2), SensorChecks(2)
    parts = [first.check(X[:cut], RATE)]
    second.restore(json.loads(json.dumps(first.memory())))
    parts.append(second.check(X[cut:], RATE))
    for name in whole._fields:
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


def paced(times):
    pace = PaceCheck()
    return [pace.step(float(t)) for t in times], pace


def test_missing_rows_are_seen_once():
    steps, _ = paced([*range(100), *range(160, 260)])
    assert [i for i, step in enumerate(steps) if step.missing] == [100]
    assert not any(step.off_pace for step in steps)


@pytest.mark.parametrize("every", [0.25, 3.0, 30.0])
def test_another_sampling_rate_is_seen(every):
    steps, pace = paced([*range(100), *(99 + every * np.arange(1, 100))])
    found = [i for i, step in enumerate(steps) if step.off_pace]
    assert 100 < found[0] <= 125
    assert found[-1] == len(steps) - 1
    assert sum(step.missing for step in steps) <= 3
    assert pace.present == pytest.approx(every)
    pace.accept()
    assert not pace.step(pace.last + every).off_pace


def test_jitter_is_no_change_of_pace():
    rng = np.random.default_rng(0)
    steps, _ = paced(np.cumsum(rng.uniform(0.6, 1.4, 2000)))
    assert not any(step.off_pace or step.missing for step in steps)


# -- changes between probes ------------------------------------------------------------------------


def naive_changes(X, stride):
    """For each row its departure from the latest probe before it, and from the fifteenth latest."""
    found = np.full((2, *X.shape), np.nan)
    for i in range(len(X)):
        probes = [k for k in range(i) if k % stride == 0]
        for lag, before in enumerate((1, 15)):
            if len(probes) >= before:
                found[lag, i] = X[i] - X[probes[-before]]
    return found


@pytest.mark.parametrize("batch", [1, 7, 400])
def test_changes_are_measured_in_usual_ones_whatever_the_batches(batch):
    X = np.cumsum(np.random.default_rng(0).normal(size=(400, 2)), axis=0)
    X[50:60, 1] = np.nan
    steps = Steps(2, 3)
    for i in range(0, 399, batch):
        steps.take(X[i : min(i + batch, 399)], learns=True)
    changes = naive_changes(X, 3)
    usual = np.sqrt(np.nanmean(changes[:, :399:3] ** 2, axis=1))
    np.testing.assert_allclose(steps.sizes(X[399:])[:, 0], np.abs(changes[:, 399]) / usual, rtol=1e-9)


def test_changes_go_on_from_memory_and_take_new_sensors():
    X = np.random.default_rng(1).normal(size=(200, 2))
    whole, other = Steps(2, 4), Steps(2, 4)
    whole.take(X, learns=True)
    other.restore(json.loads(json.dumps(whole.memory())))
    whole.grow(1)
    row = np.array([[8.0, 0.0, 5.0]])
    np.testing.assert_array_equal(whole.sizes(row)[:, :, :2], other.sizes(row[:, :2]))
    assert (whole.sizes(row)[:, 0, 2] == 0.0).all()


def test_a_row_that_comes_late_is_no_gap_and_a_clock_that_was_set_back_is_followed():
    pace = PaceCheck()
    times = [*range(100), 20, *range(100, 150)]  # one row of eighty seconds ago, as brokers deliver it
    assert not any(pace.step(float(time)).missing for time in times)
    assert pace.last == 149.0
    back = [*range(90, 200)]  # the hour in which summer time ends
    found = [pace.step(float(time)) for time in back]
    assert not any(step.missing or step.off_pace for step in found)
    assert pace.last == 199.0
    assert pace.step(260.0).missing


def test_late_rows_are_remembered():
    one, other = PaceCheck(), PaceCheck()
    for time in [*range(100), 20, 21]:
        one.step(float(time))
    other.restore(one.memory())
    assert other.memory() == one.memory()
    for time in (22, 23, 24, 25, 26):
        assert one.step(float(time)) == other.step(float(time))
    assert one.last == other.last == 26.0
