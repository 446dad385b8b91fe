"""Eigenproblems of few rows against LAPACK, also where eigenvalues are zero, equal or far apart."""

import numpy as np
import pytest

from everlearn.linalg.eigen import eigen


def gram(n, kind):
    rng = np.random.default_rng(n)
    Z = rng.normal(size=(n, 300)) * np.geomspace(1.0, {"graded": 1e-8}.get(kind, 0.1), n)[:, None]
    if kind == "zero":
        Z[n // 2 :] = 0.0
    if kind == "equal":
        Z = np.repeat(Z[:1], n, axis=0)
    return np.eye(n) * 3.0 if kind == "unit" else Z @ Z.T


@pytest.mark.parametrize("n", [1, 2, 3, 17, 65])
@pytest.mark.parametrize("kind", ["plain", "graded", "zero", "equal", "unit"])
def test_eigenvalues_and_vectors_are_those_of_lapack(n, kind):
    G = gram(n, kind)
    values, R = eigen(G)
    size = max(np.linalg.eigvalsh(G)[-1], 1e-300)
    np.testing.assert_allclose(values / size, np.linalg.eigvalsh(G)[::-1] / size, rtol=0, atol=1e-13)
    np.testing.assert_allclose(R @ R.T, np.eye(n), rtol=0, atol=1e-13)
    np.testing.assert_allclose((R.T * values) @ R / size, G / size, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_matrices_of_few_directions_at_any_scale(rank, scale):
    """What is left of them after the first steps is so small that its squares are zero or hardly more."""
    rng = np.random.default_rng(rank)
    for n in (8, 17, 24, 40):
        B = rng.normal(size=(rank, 3 * n))[np.arange(n) % rank]
        G = scale * B @ B.T
        values, R = eigen(G)
        np.testing.assert_allclose(values / values[0], np.linalg.eigvalsh(G)[::-1] / values[0], rtol=0, atol=1e-13)
        np.testing.assert_allclose(R @ R.T, np.eye(n), rtol=0, atol=1e-13)
        np.testing.assert_allclose((R.T * values) @ R / values[0], G / values[0], rtol=0, atol=1e-13)
