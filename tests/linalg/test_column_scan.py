"""Passes over the cells of a batch, against NumPy."""

import numpy as np
import pytest

from everlearn.linalg import column_scan as cells


@pytest.fixture
def gappy():
    X = np.random.default_rng(0).normal(3.0, [1.0, 100.0, 1e-3], size=(50, 3))
    X[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    X[7] = np.nan
    return X


@pytest.mark.parametrize("allow_nan", [True, False])
def test_the_first_invalid_cell_is_found(allow_nan):
    X = np.zeros((4, 3))
    assert cells.first_invalid(X, allow_nan) == -1
    X[3, 0], X[2, 2], X[2, 1] = np.inf, -np.inf, np.nan
    assert cells.first_invalid(X, allow_nan) == (8 if allow_nan else 7)
    assert cells.first_invalid(np.zeros((0, 3)), allow_nan) == -1


def test_gaps_are_noticed_wherever_they_are(gappy):
    assert cells.has_gaps(gappy)
    assert not cells.has_gaps(np.nan_to_num(gappy))
    last = np.zeros((5, 3))
    last[4, 2] = np.nan
    assert cells.has_gaps(last)


def test_rescaled_rows_stay_within_the_limit(gappy):
    inverse, out = np.array([0.5, 0.25, 1024.0]), np.empty_like(gappy)
    assert cells.rescale(gappy, inverse, 2.0, out)
    np.testing.assert_array_equal(out, np.clip(gappy * inverse, -2.0, 2.0))
    whole = np.nan_to_num(gappy)
    assert not cells.rescale(whole, inverse, 1e60, out)
    np.testing.assert_array_equal(out, whole * inverse)


def test_counts_sizes_sums_and_squares_pass_over_gaps(gappy):
    counts, sizes = cells.column_sizes(gappy)
    np.testing.assert_array_equal(counts, (~np.isnan(gappy)).sum(axis=0))
    np.testing.assert_array_equal(sizes, np.nanmax(np.abs(gappy), axis=0))
    unit = np.array([2.0, 0.125, 1.0])
    np.testing.assert_allclose(cells.column_sums(gappy, unit), np.nansum(gappy * unit, axis=0), rtol=1e-12)
    mean = np.nanmean(gappy * unit, axis=0)
    expected = np.nanvar(gappy * unit, axis=0) * counts
    np.testing.assert_allclose(cells.column_squares(gappy, unit, mean), expected, rtol=1e-9)


def test_squares_far_from_zero_keep_their_digits():
    """The sum of squares less the squared sum would lose all of them: 1e9 squared has 18 digits."""
    X = 1e9 + np.array([[-1.0], [0.0], [1.0]])
    assert cells.column_squares(X, np.ones(1), np.array([1e9]))[0] == 2.0


def test_log_scales_are_subtracted_for_the_observed_columns_only(gappy):
    values, before = np.log([2.0, 5.0, 0.1]), np.arange(50.0)
    out = before.copy()
    cells.subtract_observed(gappy, values, True, out)
    np.testing.assert_allclose(before - out, (~np.isnan(gappy)) @ values, atol=1e-12)
    out = before.copy()
    cells.subtract_observed(np.nan_to_num(gappy), values, False, out)
    np.testing.assert_allclose(before - out, values.sum(), atol=1e-12)
