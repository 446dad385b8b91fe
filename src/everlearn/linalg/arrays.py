"""New arrays inside kernels.

As `np.empty` and `np.zeros`, for which numba compiles a function for every shape of shape: 70 ms each, 25 of them in a
mixture's kernels. These are written into the kernel that asks for them.
"""

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

ALIGNMENT = 32


def _new(context, builder, kind, shape, zeros):
    """A contiguous array."""
    number = context.get_constant
    size = number(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [size]
    for length in reversed(shape):
        strides.insert(0, builder.mul(strides[0], length))
    n_bytes = strides.pop(0)
    memory = context.nrt.meminfo_alloc_aligned(builder, n_bytes, number(types.uint32, ALIGNMENT))
    data = context.nrt.meminfo_data(builder, memory)
    if zeros:
        cgutils.memset(builder, data, n_bytes, 0)
    array = make_array(kind)(context, builder)
    populate_array(
        array, builder.bitcast(data, context.get_data_type(kind.dtype).as_pointer()),
        cgutils.pack_array(builder, shape), cgutils.pack_array(builder, strides), size, memory,
    )  # fmt: skip
    return array._getvalue()


def _allocation(kind, zeros, plain):
    """What a kernel calls with the lengths of the axes; without the JIT it is `plain`."""

    def typed(signature):
        def code(context, builder, signature, lengths):
            return _new(context, builder, kind, list(lengths), zeros)

        return signature, code

    def vector(typing, n):
        return typed(kind(types.intp))

    def matrix(typing, n, m):
        return typed(kind(types.intp, types.intp))

    def stack(typing, k, n, m):
        return typed(kind(types.intp, types.intp, types.intp))

    return plain if numba.config.DISABLE_JIT else intrinsic((vector, matrix, stack)[kind.ndim - 1])


def _floats(dimensions):
    return types.Array(types.float64, dimensions, "C")


empty_vector = _allocation(_floats(1), False, lambda n: np.empty(n))
empty_matrix = _allocation(_floats(2), False, lambda n, m: np.empty((n, m)))
empty_stack = _allocation(_floats(3), False, lambda k, n, m: np.empty((k, n, m)))
zero_vector = _allocation(_floats(1), True, lambda n: np.zeros(n))
zero_matrix = _allocation(_floats(2), True, lambda n, m: np.zeros((n, m)))
zero_stack = _allocation(_floats(3), True, lambda k, n, m: np.zeros((k, n, m)))
empty_indices = _allocation(types.Array(types.int64, 1, "C"), False, lambda n: np.empty(n, np.int64))
