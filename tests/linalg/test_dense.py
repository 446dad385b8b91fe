"""Inverses of small definite matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.linalg import dense


@given(seed=st.integers(0, 10**6), q=st.integers(1, 8))
def test_inverse_and_determinant(seed, q):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(q, q + 2))
    A = A @ A.T + 0.1 * np.eye(q)
    B = A.copy()
    log_det = dense.invert_spd(B, np.empty(q))
    np.testing.assert_allclose(B @ A, np.eye(q), atol=1e-9)
    np.testing.assert_array_equal(B, B.T)
    assert log_det == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("size", [1.0, 1e-100, 1e100])
def test_a_singular_matrix_still_has_a_definite_inverse(size):
    v = np.array([1.0, 2.0, -1.0])
    A = size * np.outer(v, v)
    dense.invert_spd(A, np.empty(3))
    assert np.all(np.isfinite(A))
    assert np.linalg.eigvalsh(A / np.abs(A).max())[0] > -1e-12
