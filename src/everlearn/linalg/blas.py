"""SciPy's BLAS for kernels: matrix products without the interpreter lock, in double and single precision.

Matrices are stored by rows, which are contiguous, as in a C-contiguous array or a part of it. Seen in Fortran's order
such a matrix is transposed, and its upper triangle is the lower one. BLAS takes the address of every argument: numbers
and letters go into a list of 64-bit numbers, the low bytes of which serve for integers of any length.
"""

import ctypes

import numpy as np
from scipy.linalg import cython_blas

from everlearn.linalg.compile import external, kernel
from everlearn.linalg.dense import invert_upper

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
def _gemm(trans_a, trans_b, m, n, k, alpha, a, stride_a, b, stride_b, beta, c, stride_c, itemsize):
    """C = alpha op(A) op(B) + beta C, for the matrices at addresses a, b and c, with strides in bytes."""
    numbers = np.array(
        [trans_b, trans_a, n, m, k, stride_b // itemsize, stride_a // itemsize, stride_c // itemsize], np.int64
    )
    double = np.array([alpha, beta])
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
def _trmm(side, trans, m, n, u, stride_u, b, stride_b, itemsize):
    """B = op(U) B or, on the right, B = B op(U), for an upper triangle U."""
    numbers = np.array(
        [LEFT if side == RIGHT else RIGHT, LOWER, trans, NORMAL, n, m, stride_u // itemsize, stride_b // itemsize],
        np.int64,
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
        1.0, C.ctypes.data, C.strides[0], C.itemsize,
    )  # fmt: skip


@kernel
def multiply_by_upper(B, U):
    """B = B U for an upper triangle U."""
    m, n = B.shape
    _trmm(RIGHT, NORMAL, m, n, U.ctypes.data, U.strides[0], B.ctypes.data, B.strides[0], B.itemsize)


@kernel
def project_columns(E, A, start, stop, Y):
    """Columns start to stop of Y = E A, for a stack of symmetric matrices A, of which the upper triangles are read."""
    k, m, D = E.shape
    size, n = Y.itemsize, stop - start
    row, across = E.strides[1], A.strides[1]
    for j in range(k):
        e, a, y = E[j].ctypes.data, A[j].ctypes.data, Y[j].ctypes.data + start * size
        here, beside = a + start * (across + size), a + start * across + stop * size
        _symm(m, n, here, across, e + start * size, row, y, Y.strides[1], size)
        if start > 0:
            _gemm(
                NORMAL, NORMAL, m, n, start, 1.0, e, row, a + start * size, across, 1.0, y, Y.strides[1], size
            )  # fmt: skip
        if stop < D:
            _gemm(
                NORMAL, TRANSPOSED, m, n, D - stop, 1.0, e + stop * size, row, beside, across, 1.0, y, Y.strides[1],
                size,
            )  # fmt: skip


@kernel
def gram_rows(E, Y, start, stop, P):
    """Rows start to stop of P = 1 + E Y', from the diagonal on."""
    for j in range(E.shape[0]):
        P[j, start:stop, start:] = 1.0
        add_product(1.0, E[j, start:stop], Y[j, start:], P[j, start:stop, start:])


@kernel
def invert_steps(R):
    """Inverses of the triangles of SOLVE_ROWS rows along the diagonals of a stack of upper triangles."""
    k, m, _ = R.shape
    out = np.zeros((k, (m + SOLVE_ROWS - 1) // SOLVE_ROWS, SOLVE_ROWS, SOLVE_ROWS))
    for step in range(out.shape[1]):
        i, n = step * SOLVE_ROWS, min(SOLVE_ROWS, m - step * SOLVE_ROWS)
        out[:, step, :n, :n] = invert_upper(R[:, i : i + n, i : i + n])
    return out


@kernel
def solve_columns(R, inverses, start, stop, Y):
    """Solve R'Z = Y in place for a stack of upper triangles R, in columns start to stop of Y.

    `inverses` are those of `invert_steps`: after each step the solved rows leave the next in one product.
    """
    k, m, _ = Y.shape
    row, D = Y.strides[1], stop - start
    for j in range(k):
        y = Y[j].ctypes.data + start * Y.itemsize
        for step in range(inverses.shape[1]):
            i, n = step * SOLVE_ROWS, min(SOLVE_ROWS, m - step * SOLVE_ROWS)
            across, inverse = R[j, :i, i : i + n].astype(Y.dtype), inverses[j, step].astype(Y.dtype)
            if i > 0:
                _gemm(
                    TRANSPOSED, NORMAL, n, D, i, -1.0, across.ctypes.data, across.strides[0], y, row, 1.0, y + i * row,
                    row, Y.itemsize,
                )  # fmt: skip
            _trmm(LEFT, TRANSPOSED, n, D, inverse.ctypes.data, inverse.strides[0], y + i * row, row, Y.itemsize)
            across[:1], inverse[:1] = 0.0, 0.0  # used up, not before


@kernel
def square_rows(alpha, Z, beta, start, stop, C):
    """Rows start to stop of the upper triangle of C = alpha Z'Z + beta C; where beta is zero C need not be set."""
    m, D = Z.shape
    size, n = C.itemsize, stop - start
    z, c = Z.ctypes.data, C.ctypes.data + start * C.strides[0]
    _syrk(n, m, alpha, z + start * size, Z.strides[0], beta, c + start * size, C.strides[0], size)
    if stop < D:
        _gemm(
            TRANSPOSED, NORMAL, n, D - stop, m, alpha, z + start * size, Z.strides[0], z + stop * size, Z.strides[0],
            beta, c + stop * size, C.strides[0], size,
        )  # fmt: skip


@kernel
def downdate_rows(A, Z, scale, start, stop):
    """Rows start to stop of the upper triangles of A = scale (A - Z'Z), for a stack of symmetric matrices."""
    for j in range(Z.shape[0]):
        square_rows(-scale[j], Z[j], scale[j], start, stop, A[j])
