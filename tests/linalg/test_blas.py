"""Matrix products for kernels against NumPy's, on parts of larger arrays."""

import itertools

import numpy as np
import pytest

from everlearn.linalg import blas

RTOL = 1e-13


@pytest.fixture
def made():
    """Random arrays as parts of larger ones; and what their products may err by."""
    rng = np.random.default_rng(0)

    def make(*shape):
        larger = rng.normal(size=(*shape[:-1], shape[-1] + 3))
        return larger[..., : shape[-1]]

    return make, RTOL


def symmetric(make, k, D):
    A = make(k, D, D)
    return A @ np.swapaxes(A, 1, 2)


def assert_close(got, expected, rtol):
    np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 4, 7), (40, 3, 33)])
def test_add_product(made, m, n, k):
    make, rtol = made
    A, B, C = make(m, k), make(n, k), make(m, n)
    expected = C + 0.5 * A @ B.T
    blas.add_product(0.5, A, B, C)
    assert_close(C, expected, rtol)


@pytest.mark.parametrize("cuts", [(0, 21), (0, 8, 13, 21)])
def test_projections_read_upper_triangles(made, cuts):
    make, rtol = made
    A, E = symmetric(make, 3, 21), make(3, 10, 21)
    expected = E @ A
    A[:, *np.tril_indices(21, -1)] = np.nan
    Y = np.empty_like(E)
    for start, stop in itertools.pairwise(cuts):
        blas.project_columns(E, A, start, stop, Y)
    assert_close(Y, expected, rtol)


@pytest.mark.parametrize("cuts", [(0, 1), (0, 9), (0, 1, 17, 40)])
def test_gram_matrices_are_right_in_their_upper_triangles(made, cuts):
    make, rtol = made
    m = cuts[-1]
    E = make(2, m, 30)
    Y = E @ symmetric(make, 2, 30)
    P = np.full((2, m, m), np.nan, dtype=E.dtype)
    for start, stop in itertools.pairwise(cuts):
        blas.gram_rows(E, Y, start, stop, P)
    expected = 1.0 + E @ np.swapaxes(Y, 1, 2)
    upper = (..., *np.triu_indices(m))
    assert_close(P[upper], expected[upper], rtol)


@pytest.mark.parametrize("m", [1, blas.SOLVE_ROWS, 2 * blas.SOLVE_ROWS + 5])
def test_triangular_systems(made, m):
    make, rtol = made
    R = np.triu(np.random.default_rng(1).normal(size=(2, m, m))) + 8.0 * np.eye(m)
    Y = np.ascontiguousarray(make(2, m, 12))
    expected = np.linalg.solve(np.swapaxes(R, 1, 2), Y.astype(np.float64))
    inverses = blas.invert_steps(R)
    for start, stop in ((0, 5), (5, 12)):
        blas.solve_columns(R, inverses, start, stop, Y)
    assert_close(Y, expected, rtol)


@pytest.mark.parametrize("cuts", [(0, 17), (0, 4, 9, 17)])
def test_downdates_write_upper_triangles_only(made, cuts):
    make, rtol = made
    A, Z, scale = symmetric(make, 2, 17), make(2, 6, 17), np.array([0.5, 3.0])
    expected = scale[:, None, None] * (A - np.swapaxes(Z, 1, 2) @ Z)
    lower = (..., *np.tril_indices(17, -1))
    A[lower] = 7.0
    for start, stop in itertools.pairwise(cuts):
        blas.downdate_rows(A, Z, scale, start, stop)
    np.testing.assert_array_equal(A[lower], 7.0)
    assert_close(np.triu(A), np.triu(expected), rtol)


def test_products_with_an_upper_triangle(made):
    make, rtol = made
    B, U = make(7, 11), make(11, 11)
    expected = B @ np.triu(U)
    blas.multiply_by_upper(B, U)
    assert_close(B, expected, rtol)


def test_a_square_needs_no_start(made):
    make, rtol = made
    Z, C = make(5, 8), np.full((8, 8), np.nan, dtype=make(1).dtype)
    blas.square_rows(1.0, Z, 0.0, 0, 3, C)
    blas.square_rows(1.0, Z, 0.0, 3, 8, C)
    assert_close(np.triu(C, 0)[np.triu_indices(8)], (Z.T @ Z)[np.triu_indices(8)], rtol)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (40, 3, 33)])
def test_products_in_single_precision(m, n, k):
    """What bounds on distances are made of."""
    rng = np.random.default_rng(0)
    A, B, C = (rng.normal(size=shape).astype(np.float32) for shape in ((m, k), (n, k), (m, n)))
    expected = C + 0.5 * A @ B.T
    blas.add_product(0.5, A, B, C)
    assert_close(C, expected, 2e-6)
    U = np.triu(rng.normal(size=(n, n))).astype(np.float32)
    expected = C @ U
    blas.multiply_by_upper(C, U)
    assert_close(C, expected, 2e-6)
