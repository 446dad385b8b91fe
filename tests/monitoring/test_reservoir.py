"""Reservoir sampling: uniform, bounded, and the same for any split of the stream."""

import numpy as np

from everlearn.monitoring.kernels.reservoir import reservoir_slots, sample_rows


def test_any_split_keeps_the_same_rows():
    whole = reservoir_slots(0, 500, 20)
    parts = np.concatenate([reservoir_slots(0, 123, 20), reservoir_slots(123, 377, 20)])
    np.testing.assert_array_equal(parts, whole)


def test_early_and_late_rows_are_kept_alike():
    """Of 20,000 rows 1,000 stay: about 100 of each tenth of the stream (standard deviation 9)."""
    holder = np.full(1000, -1)
    for row, slot in enumerate(reservoir_slots(0, 20_000, 1000)):
        if slot >= 0:
            holder[slot] = row
    tenths = np.bincount(holder // 2000, minlength=10)
    assert tenths.sum() == 1000
    assert np.abs(tenths - 100).max() <= 36


def test_rows_without_a_value_are_passed_over():
    X = np.arange(30.0).reshape(10, 3)
    X[4] = np.nan
    sample = np.zeros((20, 3))
    assert sample_rows(X, sample, 0) == 9
    np.testing.assert_array_equal(sample[:9], X[~np.isnan(X).any(axis=1)])
