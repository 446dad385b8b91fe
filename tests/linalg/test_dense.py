"""Small dense linear algebra against NumPy and SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from everlearn.linalg import dense


def definite(rng, m):
    A = rng.normal(size=(m, m))
    return A @ A.T + 0.1 * np.eye(m)


@given(seed=st.integers(0, 10**6), m=st.integers(1, 9), room=st.integers(0, 3))
def test_the_factor_and_the_inverse_of_a_leading_block(seed, m, room):
    rng = np.random.default_rng(seed)
    A, kept = np.full((m + room, m + room), np.nan), definite(rng, m)
    A[:m, :m] = kept
    L = A.copy()
    assert dense.cholesky(L, m, 0.0) == pytest.approx(np.linalg.slogdet(kept)[1], rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(np.tril(L[:m, :m]), np.linalg.cholesky(kept), rtol=1e-8, atol=1e-10)
    log_det = dense.spd_inverse(A, m, np.empty((m, m)))
    assert log_det == pytest.approx(np.linalg.slogdet(kept)[1], rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(A[:m, :m] @ kept, np.eye(m), atol=1e-7)
    np.testing.assert_array_equal(A[:m, :m], A[:m, :m].T)
    assert np.isnan(A[m:]).all()


def test_a_matrix_that_is_not_definite_has_neither_and_stays():
    A = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert np.isnan(dense.cholesky(A.copy(), 2, 0.0))
    assert np.isnan(dense.spd_inverse(A, 2, np.empty((2, 2))))
    np.testing.assert_array_equal(A, [[1.0, 2.0], [2.0, 1.0]])


def test_a_pivot_that_is_all_rounding_can_be_refused():
    A = np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-52]])
    assert np.isfinite(dense.cholesky(A.copy(), 2, 0.0))
    assert np.isnan(dense.cholesky(A.copy(), 2, 2 * 2.0**-52))


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), size=st.sampled_from([1.0, 1e3, 1e6]))
def test_log_sum_exp_and_softmax(seed, n, size):
    rng = np.random.default_rng(seed)
    values, out = np.append(rng.normal(0, size, n), np.nan), np.full(n + 1, -1.0)
    values[rng.integers(n)] = -np.inf if n > 1 else values[0]
    expected = logsumexp(values[:n])
    assert dense.log_sum_exp(values, n) == pytest.approx(expected)
    assert dense.softmax(values, n, out) == pytest.approx(expected)
    np.testing.assert_allclose(out[:n], np.exp(values[:n] - expected), rtol=1e-9)
    assert out[n] == -1.0


def test_nothing_and_impossible_values():
    nothing, out = np.full(3, -np.inf), np.ones(3)
    assert dense.log_sum_exp(nothing, 3) == dense.log_sum_exp(nothing, 0) == -np.inf
    assert dense.softmax(nothing, 3, out) == -np.inf
    np.testing.assert_array_equal(out, 0.0)
