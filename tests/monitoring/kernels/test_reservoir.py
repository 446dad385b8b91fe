"""Reservoir sampling: uniform, bounded, and the same for any split of the stream."""

import numpy as np
import pytest

from everlearn.monitoring.kernels.reservoir import reservoir_slots, sample_rows


@pytest.fixture(autouse=True)
def _products_modulo_two_to_the_64():
    """Where nothing is compiled, NumPy warns of them."""
    with np.errstate(over="ignore"):
        yield


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


def splitmix64(number):
    """Steele, Lea and Flood's generator seeded with 0, its output number `number`, in whole numbers of Python."""
    z = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def test_slots_are_those_of_the_published_generator():
    """The first output for the seed 0 is that of the reference implementation (Vigna, splitmix64.c)."""
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    first, n, size = 2**40, 200, 2**39
    expected = [splitmix64(row) % (row + 1) for row in range(first, first + n)]
    found = reservoir_slots(first, n, size)
    assert found.tolist() == [slot if slot < size else -1 for slot in expected]


def test_a_sample_holds_the_last_row_of_each_slot():
    X, sample = np.arange(300.0).reshape(100, 3), np.zeros((8, 3))
    slots = reservoir_slots(0, 100, 8)
    assert sample_rows(X[60:], sample, sample_rows(X[:60], sample, 0)) == 100
    for slot in range(8):
        np.testing.assert_array_equal(sample[slot], X[np.flatnonzero(slots == slot)[-1]])
