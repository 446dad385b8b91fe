"""Units of columns: powers of two near their standard deviations, exact and of any size."""

import numpy as np
import pytest

from everlearn.base.scaling import column_spread, frame_of_rows, frame_of_spread, nearest_power_of_two


@pytest.mark.parametrize("size", [1e-150, 1e-9, 1.0, 1e9, 1e150])
def test_spreads_agree_with_numpy_at_any_size(size):
    rng = np.random.default_rng(0)
    X = rng.normal([3.0, -50.0], [1.0, 0.1], size=(300, 2))
    X[rng.random(X.shape) < 0.2] = np.nan
    std, mean = column_spread(X * size)
    np.testing.assert_allclose(std / size, np.nanstd(X, axis=0), rtol=1e-9)
    np.testing.assert_allclose(mean / size, np.nanmean(X, axis=0), rtol=1e-12)


def test_constant_and_empty_columns_do_not_vary():
    X = np.column_stack([np.full(100, 0.1), np.full(100, np.nan), np.arange(100.0)])
    std, mean = column_spread(X)
    assert std[:2].tolist() == [0.0, 0.0]
    assert mean[0] == pytest.approx(0.1)
    # They take the unit of the column that varies most; where none varies, one.
    frame = frame_of_rows(X)
    assert frame.scale.tolist() == [32.0, 32.0, 32.0]
    assert frame_of_spread(np.zeros(2)).scale.tolist() == [1.0, 1.0]
    assert frame_of_spread(np.zeros(0)).scale.shape == (0,)


def test_a_frame_holds_variance_and_centre_in_its_own_units():
    std, mean = np.array([3.0, 1e-5]), np.array([12.0, -2e-5])
    frame = frame_of_spread(std, mean)
    np.testing.assert_allclose(np.sqrt(frame.variance) * frame.scale, std, rtol=1e-15)
    np.testing.assert_array_equal(frame.centre * frame.scale, mean)
    assert not frame_of_spread(std).centre.any()


def test_scales_are_powers_of_two_nearest_in_the_logarithm():
    values = np.exp(np.random.default_rng(1).uniform(-500, 500, 2000))
    scale = nearest_power_of_two(values)
    assert (np.frexp(scale)[0] == 0.5).all()
    assert (np.abs(np.log2(values / scale)) <= 0.5 + 1e-9).all()
    # Division by them is exact, and their inverses are normal numbers, too.
    np.testing.assert_array_equal(values / scale * scale, values)
    limits = nearest_power_of_two(np.array([5e-324, 1.7e308]))
    assert limits.tolist() == [2.0**-1000, 2.0**1000]
