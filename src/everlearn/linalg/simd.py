"""SIMD: eight float64 lanes as one value in a kernel, for loops that LLVM does not vectorise by itself.

It gives up on short loops over arrays that might overlap, such as the elimination of a few missing columns. Learning
5,000 rows of 34 columns takes 2.5 times as long without it when 30 % of the values are missing, and 1.4 times when 5 %
are (one thread; `benchmarks/mixture_sequential.py`, lines with missing values).
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

VECTOR = ir.VectorType(ir.DoubleType(), 8)
FLAGS = ("contract", "nsz")  # a product and a sum may be fused


class Eight(types.Type):
    """The type of eight numbers."""


EIGHT = Eight("Eight")


@register_model(Eight)
class _Registers(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, VECTOR)


def _operation(plain):
    """Decorate what tells numba the type and the code of an operation; without the JIT `plain` is the operation."""

    def decorate(function):
        return np.errstate(all="ignore")(plain) if numba.config.DISABLE_JIT else intrinsic(function)

    return decorate


def _is_contiguous(kind):
    return isinstance(kind, types.Array) and kind.layout == "C" and kind.dtype == types.float64


def _pointer(context, builder, kind, array, start):
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), VECTOR.as_pointer())


def _factor(kind):
    return EIGHT if kind == EIGHT else types.float64


def _spread(builder, kind, value):
    """A number eight times, or eight as they are."""
    if kind == EIGHT:
        return value
    undefined, zeros = ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), 8), None)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, zeros)


@_operation(lambda array, start: array.take(range(start, start + 8)))
def take(typing, array, start):
    """Eight numbers of a contiguous array, from its number `start` on."""

    def code(context, builder, signature, arguments):
        return builder.load(_pointer(context, builder, signature.args[0], *arguments), align=8)

    return (EIGHT(array, types.intp), code) if _is_contiguous(array) else None


@_operation(lambda array, start, v: array.put(range(start, start + 8), v))
def put(typing, array, start, v):
    """Put eight numbers into a contiguous array, from its number `start` on."""

    def code(context, builder, signature, arguments):
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]), align=8)

    return (types.void(array, types.intp, EIGHT), code) if _is_contiguous(array) else None


@_operation(lambda value: np.full(8, value))
def spread(typing, value):
    """Eight times the same number."""

    def code(context, builder, signature, arguments):
        return _spread(builder, signature.args[0], arguments[0])

    return EIGHT(types.float64), code


@_operation(lambda v, a, b: v - a * b)
def minus(typing, v, a, b):
    """v - a b, where a is a number or eight."""

    def code(context, builder, signature, arguments):
        a = _spread(builder, signature.args[1], arguments[1])
        return builder.fsub(arguments[0], builder.fmul(a, arguments[2], flags=FLAGS), flags=FLAGS)

    return EIGHT(EIGHT, _factor(a), EIGHT), code


@_operation(lambda v, a: v * a)
def times(typing, v, a):
    """v a, where a is a number or eight."""

    def code(context, builder, signature, arguments):
        return builder.fmul(arguments[0], _spread(builder, signature.args[1], arguments[1]), flags=FLAGS)

    return EIGHT(EIGHT, _factor(a)), code


@_operation(lambda v: 1.0 / v)
def inverse(typing, v):
    """One divided by each number."""

    def code(context, builder, signature, arguments):
        return builder.fdiv(ir.Constant(VECTOR, [1.0] * 8), arguments[0])

    return EIGHT(EIGHT), code


@_operation(np.minimum)
def smaller(typing, v, u):
    """The smaller one of each two numbers."""

    def code(context, builder, signature, arguments):
        # Of a NaN and a number the second argument is taken; a NaN among pivots shows in their product.
        return builder.select(builder.fcmp_ordered("<", *arguments), *arguments)

    return EIGHT(EIGHT, EIGHT), code


@_operation(np.maximum)
def larger(typing, v, u):
    """The larger one of each two numbers."""

    def code(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return EIGHT(EIGHT, EIGHT), code
