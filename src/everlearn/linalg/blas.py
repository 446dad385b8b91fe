"""SciPy's BLAS for kernels: matrix products without the interpreter lock.

SciPy's own wrappers of level 3 hold the lock (their signatures do not say `threadsafe`), so that the components of a
mixture could not be worked on side by side; NumPy has neither `syrk` nor `trmm`.

Matrices are stored by rows, which are contiguous, as in a C-contiguous array or a part of it. Seen in Fortran's order
such a matrix is transposed, and its upper triangle is the lower one. BLAS takes the address of every argument: numbers
and letters go into an array of 64-bit numbers, the low bytes of which serve for integers of any length.
"""

import ctypes

import numpy as np
from scipy.linalg import cython_blas

from everlearn.linalg.compile import external, inner, kernel
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


_dgemm, _dsymm, _dsyrk, _dtrmm = (_routine(name) for name in ("dgemm", "dsymm", "dsyrk", "dtrmm"))
# Bounds on distances are products in single precision, at twice the speed (figmn/bounds.py); nothing else is.
_sgemm, _strmm = _routine("sgemm"), _routine("strmm")


@inner
def leading(A):
    """Numbers from one row of a matrix to the next."""
    return A.strides[0] // A.itemsize


@kernel
def _gemm(trans_a, trans_b, alpha, A, B, beta, C):
    """C = alpha op(A) op(B) + beta C."""
    # Seen in Fortran's order all three are transposed, so that C' = op(B)' op(A)' is asked for.
    m, n = C.shape
    k = A.shape[1] if trans_a == NORMAL else A.shape[0]
    numbers = np.array([trans_b, trans_a, n, m, k, leading(B), leading(A), leading(C)], np.int64)
    scalars = np.array([alpha, beta]).astype(C.dtype)
    i, s = numbers.ctypes.data, scalars.ctypes.data
    b, a, c = B.ctypes.data, A.ctypes.data, C.ctypes.data
    if C.itemsize == 8:
        _dgemm(i, i + 8, i + 16, i + 24, i + 32, s, b, i + 40, a, i + 48, s + 8, c, i + 56)
    else:
        _sgemm(i, i + 8, i + 16, i + 24, i + 32, s, b, i + 40, a, i + 48, s + 4, c, i + 56)
    # BLAS was given addresses, which numba does not count as uses: without this one it may free the arrays before.
    return numbers[0] + scalars[0]


@kernel
def _symm(A, B, C):
    """C = B A for a symmetric A, of which the upper triangle is read."""
    m, n = C.shape
    numbers = np.array([LEFT, LOWER, n, m, leading(A), leading(B), leading(C)], np.int64)
    scalars = np.array([1.0, 0.0])
    i, s = numbers.ctypes.data, scalars.ctypes.data
    a, b, c = A.ctypes.data, B.ctypes.data, C.ctypes.data
    _dsymm(i, i + 8, i + 16, i + 24, s, a, i + 32, b, i + 40, s + 8, c, i + 48)
    return numbers[0] + scalars[0]  # kept alive until here, see `_gemm`


@kernel
def _syrk(alpha, Z, beta, C):
    """C = alpha Z'Z + beta C, the upper triangle only."""
    k, n = Z.shape
    numbers = np.array([LOWER, NORMAL, n, k, leading(Z), leading(C)], np.int64)
    scalars = np.array([alpha, beta])
    i, s = numbers.ctypes.data, scalars.ctypes.data
    _dsyrk(i, i + 8, i + 16, i + 24, s, Z.ctypes.data, i + 32, s + 8, C.ctypes.data, i + 40)
    return numbers[0] + scalars[0]  # kept alive until here, see `_gemm`


@kernel
def _trmm(side, trans, U, B):
    """B = op(U) B or, on the right, B = B op(U), for an upper triangle U."""
    m, n = B.shape
    other = LEFT if side == RIGHT else RIGHT
    numbers = np.array([other, LOWER, trans, NORMAL, n, m, leading(U), leading(B)], np.int64)
    scalars = np.ones(1, B.dtype)
    i, s, u, b = numbers.ctypes.data, scalars.ctypes.data, U.ctypes.data, B.ctypes.data
    if B.itemsize == 8:
        _dtrmm(i, i + 8, i + 16, i + 24, i + 32, i + 40, s, u, i + 48, b, i + 56)
    else:
        _strmm(i, i + 8, i + 16, i + 24, i + 32, i + 40, s, u, i + 48, b, i + 56)
    return numbers[0] + scalars[0]  # kept alive until here, see `_gemm`


@kernel
def add_product(alpha, A, B, C):
    """C += alpha A B'."""
    _gemm(NORMAL, TRANSPOSED, alpha, A, B, 1.0, C)


@kernel
def multiply_by_upper(B, U):
    """B = B U for an upper triangle U."""
    _trmm(RIGHT, NORMAL, U, B)


@kernel
def project_columns(E, A, start, stop, Y):
    """Columns start to stop of Y = E A, for a stack of symmetric matrices A, of which the upper triangles are read."""
    # The columns left and right of the diagonal block stand in the upper triangle as A[:start, here] and its mirror.
    for j in range(E.shape[0]):
        e, a, y = E[j], A[j], Y[j, :, start:stop]
        _symm(a[start:stop, start:stop], e[:, start:stop], y)
        if start > 0:
            _gemm(NORMAL, NORMAL, 1.0, e[:, :start], a[:start, start:stop], 1.0, y)
        if stop < e.shape[1]:
            _gemm(NORMAL, TRANSPOSED, 1.0, e[:, stop:], a[start:stop, stop:], 1.0, y)


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
    for j in range(k):
        y = Y[j, :, start:stop]
        for step in range(inverses.shape[1]):
            i, n = step * SOLVE_ROWS, min(SOLVE_ROWS, m - step * SOLVE_ROWS)
            if i > 0:
                # A copy, because BLAS needs contiguous rows, and R may be the transpose of a lower triangle.
                across = np.ascontiguousarray(R[j, :i, i : i + n])
                _gemm(TRANSPOSED, NORMAL, -1.0, across, y[:i], 1.0, y[i : i + n])
            _trmm(LEFT, TRANSPOSED, inverses[j, step, :n, :n], y[i : i + n])


@kernel
def square_rows(alpha, Z, beta, start, stop, C):
    """Rows start to stop of the upper triangle of C = alpha Z'Z + beta C; where beta is zero C need not be set."""
    _syrk(alpha, Z[:, start:stop], beta, C[start:stop, start:stop])
    if stop < Z.shape[1]:
        _gemm(TRANSPOSED, NORMAL, alpha, Z[:, start:stop], Z[:, stop:], beta, C[start:stop, stop:])


@kernel
def downdate_rows(A, Z, scale, start, stop):
    """Rows start to stop of the upper triangles of A = scale (A - Z'Z), for a stack of symmetric matrices."""
    for j in range(Z.shape[0]):
        square_rows(-scale[j], Z[j], scale[j], start, stop, A[j])
