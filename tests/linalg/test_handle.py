"""Arguments of a kernel that are unpacked once."""

import gc
import sys
import weakref
from typing import NamedTuple

import numba
import numpy as np
import pytest

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.handle import hold, lent


class Content(NamedTuple):
    values: np.ndarray
    factor: float
    nothing: None = None


@kernel
def handle_of(content):
    return hold(content)


@kernel
def scale(handle):
    handle.content.values[:] *= handle.content.factor


@inner
def scaled_in_place(handle):
    values = lent(handle).values
    for i in range(len(values)):
        values[i] *= lent(handle).factor
    return values[0]


@kernel
def scale_lent(handle):
    return scaled_in_place(handle)


def test_kernels_and_python_see_the_same_array():
    values = np.arange(3.0)
    handle = handle_of(Content(values, 2.0))
    scale(handle)
    np.testing.assert_array_equal(values, [0.0, 2.0, 4.0])
    values[0] = 5.0
    scale(handle)
    np.testing.assert_array_equal(values, [10.0, 4.0, 8.0])


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="a plain object then")
def test_a_handle_keeps_its_arrays_and_lets_them_go():
    values = np.arange(4.0)
    gone = weakref.ref(values)
    handle = handle_of(Content(values, 3.0))
    del values
    gc.collect()
    assert gone() is not None
    scale(handle)
    np.testing.assert_array_equal(gone(), [0.0, 3.0, 6.0, 9.0])
    del handle
    gc.collect()
    assert gone() is None


def test_what_is_lent_is_the_content_and_is_not_counted():
    values = np.arange(1.0, 4.0)
    handle = handle_of(Content(values, 2.0))
    before = sys.getrefcount(values)
    for _ in range(100):
        scale_lent(handle)
    assert sys.getrefcount(values) == before
    np.testing.assert_array_equal(values, np.arange(1.0, 4.0) * 2.0**100)
    gone = weakref.ref(values)
    del values
    assert scale_lent(handle) == 2.0**101
    del handle
    gc.collect()
    assert gone() is None
