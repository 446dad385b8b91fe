"""The operations of the host's backend against NumPy."""

import numpy as np
import pytest

from everlearn.linalg.backend import HOST, LARGE
from states import mixture


@pytest.mark.parametrize("D", [7, LARGE + 9])
@pytest.mark.parametrize("m", [1, 5, 70])
def test_operations_of_the_host(D, m):
    rng = np.random.default_rng(12)
    k, state = 2, mixture(rng, D, 3, room=0)
    X, whole = rng.normal(size=(m, D)), slice(1, 3)
    precisions = state.precisions.copy()
    matrices = HOST.matrices(state.precisions)
    E, Y = HOST.project(X, state.means[whole], matrices, whole)
    np.testing.assert_array_equal(E, X[None] - state.means[whole][:, None])
    np.testing.assert_allclose(Y, E @ precisions[whole], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(HOST.squares(E, Y), np.einsum("kmd,kmd->km", E, Y), rtol=1e-12)
    P, expected = np.full((k, m, m), np.nan), 1.0 + E @ precisions[whole] @ np.swapaxes(E, 1, 2)
    HOST.gram(E, Y, P)
    np.testing.assert_allclose(np.triu(P), np.triu(expected), rtol=1e-10, atol=1e-10)
    P = expected
    R = np.swapaxes(np.linalg.cholesky(P + 5.0 * np.eye(m)), 1, 2)
    learned = np.ones((k, m), dtype=bool)
    Z = HOST.solve(np.ascontiguousarray(R), Y.copy(), learned)
    np.testing.assert_allclose(np.swapaxes(R, 1, 2) @ Z, Y, rtol=1e-9, atol=1e-9)
    HOST.rank_update(matrices, whole, Z, np.array([0.5, 0.25]))
    matrices.release(3)
    expected = (precisions[whole] - np.swapaxes(Z, 1, 2) @ Z) / np.array([0.5, 0.25])[:, None, None]
    np.testing.assert_allclose(state.precisions[whole], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(state.precisions[0], precisions[0])
