"""Blame: the column of a fault comes first, over all kinds of faults that have one."""

import numpy as np
import pytest

from everlearn.experiments.peers.anomaly_clean import injected, spikes, with_gaps
from everlearn.experiments.peers.anomaly_streams import FAULTS, broken_columns, machine_columns

SEEDS = 2


@pytest.mark.slow
def test_the_column_of_a_fault_is_blamed():
    """In 95 % of all cases, and of each kind in at least 90 %, less twice the binomial error of its few cases."""
    found = {name: np.concatenate([make(seed) for seed in range(SEEDS)]) for name, make in injected().items()}
    assert np.concatenate(list(found.values())).mean() >= 0.95
    for name, right in found.items():
        assert right.mean() >= 0.9 - 2 * np.sqrt(0.09 / len(right)), name


def test_streams_with_columns_are_those_with_labels():
    for name, make in (("broken correlation", broken_columns), ("machine, stuck", machine_columns("stuck"))):
        X, y = FAULTS[name](np.random.default_rng(4), 1500)
        same, column = make(np.random.default_rng(4), 1500)
        np.testing.assert_array_equal(X, same)
        np.testing.assert_array_equal(y == 1, column >= 0)


def test_gaps_spare_the_faulty_columns():
    X, column = with_gaps(spikes)(np.random.default_rng(0), 1000)
    rows = np.flatnonzero(column >= 0)
    assert len(rows) == 25
    assert not np.isnan(X[rows, column[rows]]).any()
    assert 0.08 < np.isnan(X).mean() < 0.12
