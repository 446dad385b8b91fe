"""Passes over cells, in parts and in one, against NumPy."""

import numpy as np
import pytest

from everlearn.base.scaling import column_spread
from everlearn.linalg import chunked as sweeps
from everlearn.linalg import parallel as threads


@pytest.fixture(params=[2**20, 40, 3])
def parts(request, monkeypatch):
    monkeypatch.setattr(sweeps, "PART", request.param)


def table(seed=0, n=50):
    return np.random.default_rng(seed).normal(size=(n, 7)) * 10.0 ** np.arange(-3, 4) + 5.0


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("allow_nan", [True, False])
def test_the_first_invalid_cell_is_found(value, allow_nan):
    X = table()
    assert sweeps.first_invalid(X, allow_nan=allow_nan) == -1
    X[17, 3] = X[17, 5] = X[40, 0] = value
    accepted = allow_nan and np.isnan(value)
    assert sweeps.first_invalid(X, allow_nan=allow_nan) == (-1 if accepted else 17 * 7 + 3)


@pytest.mark.usefixtures("parts")
def test_gaps_are_found_wherever_they_are():
    X = table()
    assert not sweeps.has_gaps(X)
    for row in (0, 20, 49):
        gap = X.copy()
        gap[row, 6] = np.nan
        assert sweeps.has_gaps(gap)


@pytest.mark.usefixtures("parts")
def test_rows_are_scaled_and_kept_within_limits():
    X = table()
    X[3, 2], X[5, 1], X[30, 6] = np.nan, 1e300, -1e300
    scale = np.arange(1.0, 8.0)
    rows, gaps = sweeps.to_internal_with_gaps(X, scale, 1e5)
    np.testing.assert_array_equal(rows, np.clip(X * scale, -1e5, 1e5))
    assert gaps
    assert not sweeps.to_internal_with_gaps(X[6:], scale, 1e5)[1]


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("size", [1e-150, 1.0, 1e150])
def test_spread_of_the_columns(size):
    X = size * table()
    X[::3, 1] = np.nan
    X[:, 4] = np.nan
    X[:, 5] = 3.7 * size
    std, mean = column_spread(X)
    seen = [0, 1, 2, 3, 5, 6]
    expected = size * np.nanstd(X[:, seen] / size, axis=0)
    expected[4] = 0.0
    np.testing.assert_allclose(std[seen], expected, rtol=1e-10)
    np.testing.assert_allclose(mean[seen], size * np.nanmean(X[:, seen] / size, axis=0), rtol=1e-12)
    assert std[4] == mean[4] == 0.0


def test_parts_are_all_rows_of_an_array_of_any_shape(monkeypatch):
    monkeypatch.setattr(sweeps, "PART", 100)
    A = np.empty((7, 9, 9))
    assert sweeps.sweep(lambda rows: rows, A) == [slice(j, j + 1) for j in range(7)]
    assert sweeps.sweep(lambda rows: rows, A[:, 0, 0]) == [slice(0, 7)]
    monkeypatch.setattr(sweeps, "PART", 300)
    assert sweeps.sweep(lambda rows: rows, A) == [slice(0, 3), slice(3, 6), slice(6, 7)]


def test_answers_do_not_depend_on_the_number_of_cores(monkeypatch):
    monkeypatch.setattr(sweeps, "PART", 100)
    X = table(1, 500)
    found = []
    for cores in (1, 5):
        monkeypatch.setattr(threads, "available", lambda cores=cores: cores)
        found.append(column_spread(X))
    np.testing.assert_array_equal(*found)
