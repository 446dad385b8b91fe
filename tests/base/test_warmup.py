"""The buffer of first rows."""

import numpy as np
import pytest

from everlearn.base.warmup import WarmupBuffer
from everlearn.errors import ModelFileError

X = np.random.default_rng(0).normal(size=(9, 2))


def test_it_takes_what_it_has_room_for():
    buffer = WarmupBuffer.empty(5, 2)
    first, taken = buffer.add(X[:3])
    assert (taken, first.n, first.is_full, first.capacity) == (3, 3, False, 5)
    full, taken = first.add(X[3:], weights=np.arange(1.0, 7.0), labels=np.arange(6))
    assert (taken, full.n, full.is_full) == (2, 5, True)
    np.testing.assert_array_equal(full.seen, X[:5])
    np.testing.assert_array_equal(full.seen_weights, [1, 1, 1, 1, 2])
    np.testing.assert_array_equal(full.seen_labels, [0, 0, 0, 0, 1])
    assert full.add(X)[1] == 0


def test_the_buffer_before_keeps_its_rows():
    first, _ = WarmupBuffer.empty(5, 2).add(X[:3])
    first.add(X[3:5])
    assert first.n == 3
    np.testing.assert_array_equal(first.seen, X[:3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 9}, "more rows than room"),
        ({"weights": np.full(5, 1e308)}, "weight that cannot be"),
        ({"weights": np.zeros(5)}, "weight that cannot be"),
        ({"weights": np.ones(4)}, "N should be 5"),
        ({"rows": np.full((5, 2), np.inf)}, "infinite"),
        ({"rows": np.zeros((5, 3))}, "D should be 2"),
        ({"labels": np.zeros(5)}, "int64"),
    ],
)
def test_a_buffer_from_a_file_is_checked(changes, message):
    buffer, _ = WarmupBuffer.empty(5, 2).add(X[:3])
    buffer.check(2, 5)
    with pytest.raises(ModelFileError, match=message):
        buffer._replace(**changes).check(2)
    with pytest.raises(ModelFileError, match="N should be 7"):
        buffer.check(2, 7)
