"""Copies of states."""

from typing import NamedTuple

import numpy as np

from everlearn.base.snapshot import copied
from toys import fitted


class Pair(NamedTuple):
    a: np.ndarray
    b: object


def test_nothing_is_shared():
    inner = Pair(np.zeros(3), None)
    value = Pair(np.ones(2), [inner, (1, 2.5, "x"), {"k": np.zeros(1)}, np.array([[1], "a"], dtype=object)])
    twin = copied(value)
    assert type(twin) is Pair
    assert type(twin.b[0]) is Pair
    for array in (value.a, inner.a, value.b[2]["k"]):
        array += 7
    value.b[3][0].append(2)
    assert twin.a.tolist() == [1, 1]
    assert twin.b[0].a.tolist() == [0, 0, 0]
    assert twin.b[2]["k"].tolist() == [0]
    assert twin.b[3].tolist() == [[1], "a"]


def test_models_and_memory_order():
    model = fitted()
    assert copied(model) is not model
    assert copied(np.asfortranarray(np.ones((3, 2)))).flags.f_contiguous
