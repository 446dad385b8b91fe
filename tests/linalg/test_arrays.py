"""New arrays inside kernels."""

import numpy as np
import pytest

from everlearn.linalg import arrays
from everlearn.linalg.compile import kernel


@kernel
def one_of_each(k, n, m):
    return (
        arrays.empty_vector(n), arrays.empty_matrix(n, m), arrays.empty_stack(k, n, m), arrays.zero_vector(n),
        arrays.zero_matrix(n, m), arrays.zero_stack(k, n, m), arrays.empty_indices(n),
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (3, 0, 2), (0, 5, 5)])
def test_arrays_are_those_of_numpy(shape):
    k, n, m = shape
    for _ in range(3):  # the memory of the arrays before is used again
        made = one_of_each(k, n, m)
        assert [a.shape for a in made] == [(n,), (n, m), shape, (n,), (n, m), shape, (n,)]
        assert [a.dtype for a in made] == [np.dtype(np.float64)] * 6 + [np.dtype(np.int64)]
        assert all(a.flags.c_contiguous and a.flags.writeable and a.flags.aligned for a in made)
        assert not any(a.any() for a in made[3:6])
        for a in made:
            a[...] = 7


def test_arrays_share_no_memory():
    made = one_of_each(2, 3, 4)
    for number, a in enumerate(made):
        a[...] = number
    assert all((a == number).all() for number, a in enumerate(made))
