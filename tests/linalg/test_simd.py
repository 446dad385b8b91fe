"""Operations on eight numbers against NumPy's."""

import numba
import numpy as np
import pytest

from everlearn.linalg import simd as eights


@numba.njit
def work(source, factor, target):
    """Every operation, on eight numbers from each row."""
    v, u = eights.take(source, 0), eights.take(source, 9)
    eights.put(target, 0, eights.minus(v, factor, u))
    eights.put(target, 8, eights.minus(v, u, u))
    eights.put(target, 16, eights.times(v, factor))
    eights.put(target, 24, eights.times(v, u))
    eights.put(target, 32, eights.inverse(u))
    eights.put(target, 40, eights.smaller(v, u))
    eights.put(target, 48, eights.larger(v, u))
    eights.put(target, 56, eights.spread(factor))


@numba.njit
def take_a_number(array):
    eights.put(array, 0, eights.take(array, 0))


def test_operations_are_those_of_arrays():
    source, target = np.random.default_rng(0).normal(size=(2, 9)), np.empty((8, 8))
    work(source, 3.0, target)
    v, u = source[0, :8], source[1, :8]
    expected = [v - 3 * u, v - u * u, 3 * v, u * v, 1 / u, np.minimum(v, u), np.maximum(v, u), np.full(8, 3.0)]
    np.testing.assert_allclose(target, expected, rtol=1e-15, atol=1e-15)


def test_what_has_no_number_to_divide_by_is_infinite_without_a_warning():
    source, target = np.zeros((2, 9)), np.empty((8, 8))
    work(source, 1.0, target)
    assert np.isinf(target[4]).all()


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="NumPy takes any array")
def test_other_arrays_are_refused():
    for array in (np.zeros(16)[::2], np.zeros(8, np.float32)):
        with pytest.raises(numba.TypingError):
            take_a_number(array)
