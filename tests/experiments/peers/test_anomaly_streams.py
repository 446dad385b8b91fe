"""Streams with labelled anomalies: what is labelled is strange, and no two streams are one."""

import itertools

import numpy as np
import pytest

from everlearn.experiments.peers.anomaly_streams import FAULTS, machine, machines, rare, synthetic
from everlearn.experiments.peers.data import Context


def largest_correlation(A, B):
    """Of equal columns of two streams, before any fault; units do not matter."""
    return max(abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(A[:600].T, B[:600].T, strict=True))


def test_no_two_kinds_of_a_machine_share_random_numbers():
    """Streams of the same numbers are equal up to the units of their columns outside of the faults."""
    streams = list(machines(12, 2000, seed=77))
    assert [stream.name.split()[-1] for stream in streams] == ["ramp", "stuck", "noise", "shift"]
    for one, other in itertools.combinations(streams, 2):
        assert largest_correlation(one.X, other.X) < 0.95, (one.name, other.name)
    twice = [machine("shift", 12)(np.random.default_rng(0), 2000)[0] for _ in range(2)]
    assert largest_correlation(*twice) == pytest.approx(1.0)


def test_a_stream_is_the_same_every_time():
    for one, again in zip(machines(12, 1000, seed=77), machines(12, 1000, seed=77), strict=True):
        np.testing.assert_array_equal(one.X, again.X)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_few_rows_of_each_fault_are_labelled(kind):
    X, y = FAULTS[kind](np.random.default_rng(0), 3000)
    assert len(X) == len(y) == 3000
    assert 0.003 < y.mean() < 0.3
    assert np.isfinite(X).all()


@pytest.mark.parametrize("columns", [6, 12])
def test_a_stuck_sensor_does_not_move_and_only_one_is(columns):
    X, y = machine("stuck", columns)(np.random.default_rng(1), 3000)
    still = (np.diff(X, axis=0) == 0.0).sum(axis=1)
    inside = (y[1:] == 1) & (y[:-1] == 1)
    assert (still[inside] == 1).mean() > 0.98
    assert (still[~inside] == 0).all()


def test_a_rare_class_has_its_share_and_the_label_of_an_anomaly():
    X, classes = np.arange(1000.0)[:, None], np.repeat(np.arange(4), 250)
    rows, y = rare(X, classes, [2], 0.05)
    assert y.mean() == pytest.approx(0.05, abs=0.01)
    np.testing.assert_array_equal((rows[:, 0] >= 500) & (rows[:, 0] < 750), y == 1)
    assert not (np.diff(rows[:, 0]) > 0).all()


def test_every_kind_of_fault_is_in_the_synthetic_streams():
    found = [stream.name for stream in synthetic(Context(rows=1500, quick=False))]
    kinds = [f"{kind} #{seed}" for kind in FAULTS for seed in range(2)]
    assert found == kinds + [f"machine of 12, {kind}" for kind in ("ramp", "stuck", "noise", "shift")]
