"""SciPy's BLAS for kernels: matrix products without the interpreter lock, in double and single precision.

Matrices are stored by rows, which are contiguous, as in a C-contiguous array or a part of it. Seen in Fortran's order
such a matrix is transposed, and its upper triangle is the lower one. BLAS takes the address of every argument: numbers
and letters go into a list of 64-bit numbers, the low bytes of which serve for integers of any length.
"""

import ctypes

import numpy as np
from scipy.linalg import cython_blas

from everlearn.kernels.jit import external, kernel
from everlearn.kernels.linalg import invert_upper

# Triangular systems are solved in steps of so many rows, with a matrix product between the steps.
SOLVE_ROWS = 32

NORMAL, TRANSPOSED, LOWER, LEFT, RIGHT = (ord(letter) for letter in "NTLLR")


def _routine(name):
    """A routine of SciPy's BLAS."""
    signature, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    signature.restype, signature.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = cython_blas.__pyx_capi__[name]
    return external(f"everlearn_{name}", pointer(capsule, signature(capsule)), signature(capsule).count(b"*"))


_dgemm, _sgemm = _routine("dgemm"), _routine("sgemm")
_dsymm, _ssymm = _routine("dsymm"), _routine("ssymm")
_dsyrk, _ssyrk = _routine("dsyrk"), _routine("ssyrk")
_dtrmm, _strmm = _routine("dtrmm"), _routine("strmm")


@kernel
def _gemm(trans_a, trans_b, m, n, k, alpha, a, stride_a, b, stride_b, c, stride_c, itemsize):
    """C += alpha op(A) op(B), for the matrices at addresses a, b and c, with strides in bytes."""
    numbers = np.array(
        [trans_b, trans_a, n, m, k, stride_b // itemsize, stride_a // itemsize, stride_c // itemsize], np.int64
    )
    double = np.array([alpha, 1.0])
    single = double.astype(np.float32)
    at = numbers.ctypes.data
    if itemsize == 8:
        s = double.ctypes.data
        _dgemm(at, at + 8, at + 16, at + 24, at + 32, s, b, at + 40, a, at + 48, s + 8, c, at + 56)
    else:
        s = single.ctypes.data
        _sgemm(at, at + 8, at + 16, at + 24, at + 32, s, b, at + 40, a, at + 48, s + 4, c, at + 56)
    return numbers[0] + double[0] + single[0]  # which must live until here


@kernel
def _symm(m, n, a, stride_a, b, stride_b, c, stride_c, itemsize):
    """C = B A for a symmetric A."""
    numbers = np.array(
        [LEFT, LOWER, n, m, stride_a // itemsize, stride_b // itemsize, stride_c // itemsize], np.int64
    )  # fmt: skip
    double = np.array([1.0, 0.0])
    single = double.astype(np.float32)
    at = numbers.ctypes.data
    if itemsize == 8:
        s = double.ctypes.data
        _dsymm(at, at + 8, at + 16, at + 24, s, a, at + 32, b, at + 40, s + 8, c, at + 48)
    else:
        s = single.ctypes.data
        _ssymm(at, at + 8, at + 16, at + 24, s, a, at + 32, b, at + 40, s + 4, c, at + 48)
    return numbers[0] + double[0] + single[0]


@kernel
def _syrk(n, k, alpha, z, stride_z, beta, c, stride_c, itemsize):
    """C = alpha Z'Z + beta C."""
    numbers = np.array([LOWER, NORMAL, n, k, stride_z // itemsize, stride_c // itemsize], np.int64)
    double = np.array([alpha, beta])
    single = double.astype(np.float32)
    at = numbers.ctypes.data
    if itemsize == 8:
        s = double.ctypes.data
        _dsyrk(at, at + 8, at + 16, at + 24, s, z, at + 32, s + 8, c, at + 40)
    else:
        s = single.ctypes.data
        _ssyrk(at, at + 8, at + 16, at + 24, s, z, at + 32, s + 4, c, at + 40)
    return numbers[0] + double[0] + single[0]


@kernel
def _trmm(m, n, u, stride_u, b, stride_b, itemsize):
    """B = U'B for an upper triangle U."""
    numbers = np.array(
        [RIGHT, LOWER, TRANSPOSED, NORMAL, n, m, stride_u // itemsize, stride_b // itemsize], np.int64
    )  # fmt: skip
    double = np.ones(1)
    single = double.astype(np.float32)
    at = numbers.ctypes.data
    if itemsize == 8:
        s = double.ctypes.data
        _dtrmm(at, at + 8, at + 16, at + 24, at + 32, at + 40, s, u, at + 48, b, at + 56)
    else:
        s = single.ctypes.data
        _strmm(at, at + 8, at + 16, at + 24, at + 32, at + 40, s, u, at + 48, b, at + 56)
    return numbers[0] + double[0] + single[0]


@kernel
def add_product(alpha, A, B, C):
    """C += alpha A B'."""
    m, n = C.shape
    _gemm(
        NORMAL, TRANSPOSED, m, n, A.shape[1], alpha, A.ctypes.data, A.strides[0], B.ctypes.data, B.strides[0],
        C.ctypes.data, C.strides[0], C.itemsize,
    )  # fmt: skip


@kernel
def project_stack(E, A):
    """E A for a stack of symmetric matrices A, of which the upper triangles are read."""
    Y = np.empty_like(E)
    k, m, D = E.shape
    for j in range(k):
        _symm(
            m, D, A[j].ctypes.data, A.strides[1], E[j].ctypes.data, E.strides[1], Y[j].ctypes.data, Y.strides[1],
            Y.itemsize,
        )  # fmt: skip
    return Y


@kernel
def gram_stack(E, Y, P):
    """P = 1 + E Y' where that is symmetric: the upper triangle, and some more."""
    m = E.shape[1]
    half = (m + 1) // 2
    P[:] = 1.0
    for j in range(E.shape[0]):
        for start, stop in ((0, half), (half, m)):
            if start < stop:
                add_product(1.0, E[j, start:stop], Y[j, start:], P[j, start:stop, start:])


@kernel
def solve_stack(R, Y):
    """Solve R'Z = Y in place for a stack of upper triangles R: the solved rows leave the next in one product."""
    k, m, D = Y.shape
    row = Y.strides[1]
    for j in range(k):
        y = Y[j].ctypes.data
        for i in range(0, m, SOLVE_ROWS):
            n = min(SOLVE_ROWS, m - i)
            across = R[j, :i, i : i + n].astype(Y.dtype)
            triangle = invert_upper(R[j : j + 1, i : i + n, i : i + n])[0].astype(Y.dtype)
            if i > 0:
                _gemm(
                    TRANSPOSED, NORMAL, n, D, i, -1.0, across.ctypes.data, across.strides[0], y, row, y + i * row, row,
                    Y.itemsize,
                )  # fmt: skip
            _trmm(n, D, triangle.ctypes.data, triangle.strides[0], y + i * row, row, Y.itemsize)
            across[:1], triangle[:1] = 0.0, 0.0  # used up, not before


@kernel
def square_upper(alpha, Z, beta, C):
    """C = alpha Z'Z + beta C, of which the upper triangle is written; where beta is zero C need not be set."""
    m, D = Z.shape
    _syrk(D, m, alpha, Z.ctypes.data, Z.strides[0], beta, C.ctypes.data, C.strides[0], C.itemsize)


@kernel
def downdate_upper_stack(A, Z, scale):
    """A = scale (A - Z'Z) for a stack of symmetric matrices, of which the upper triangles are written."""
    for j in range(Z.shape[0]):
        square_upper(-scale[j], Z[j], scale[j], A[j])
