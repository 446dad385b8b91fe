"""Eigenvalues and noise of a sketch."""

import numpy as np
import pytest

from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.kernels.shape import shape, spiked_shape
from everlearn.low_rank.state import Settings, readout_of, squared_distances
from low_rank_toys import one
from naive import low_rank as naive

SETTINGS = Settings(8, 8, 50, 500, 16, 0, 64, 1.0, 2**60, 0)


@pytest.mark.parametrize(("N", "D"), [(30.0, 200), (400.0, 200), (50.0, 5), (5.0, 40)])
def test_the_spiked_answer_is_that_of_its_twin(N, D):
    scatter = np.array([80.0, 30.0, 6.0, 5.0])[: D - 1] * (N - 1.0)
    trace = scatter.sum() + (N - 1.0) * D * 0.9
    s, lam = spiked_shape(N, scatter, trace, D, 1.3)
    expected_s, expected = naive.spiked(N, scatter, trace, D, 1.3)
    assert s == pytest.approx(expected_s, rel=1e-10)
    np.testing.assert_allclose(lam, expected, rtol=1e-8)


def mean_log_density(X, mean, C):
    E = X - mean
    d2 = np.einsum("ni,ni->n", E @ np.linalg.inv(C), E)
    return -0.5 * (d2.mean() + np.linalg.slogdet(2.0 * np.pi * C)[1])


def test_few_rows_of_many_columns_have_no_overfitted_eigenvalues():
    """Maximum likelihood is far behind on new rows; the corrected shape is near the truth."""
    U, X = np.linalg.qr(np.random.default_rng(0).normal(size=(200, 3)))[0].T, one(np.random.default_rng(0), 250, 200)
    c = component_of_rows(X[:50], np.ones(50), SETTINGS)
    s, lam, rank = shape(c, 0, 1.2)
    assert 2 <= rank <= 4
    assert s == pytest.approx(1.0, abs=0.1)
    truth = mean_log_density(X[50:], 0.0, U.T @ np.diag([50.0, 20.0, 8.0]) @ U + np.eye(200))
    gaps = []
    for noise, variance in ((s, lam), ((c.trace[0] - c.scatter[0].sum()) / 192.0 / 49.0, c.scatter[0] / 49.0)):
        W = np.sqrt(np.maximum(variance - noise, 0.0))[:, None] * c.directions[0, : len(variance)]
        gaps.append(truth - mean_log_density(X[50:], c.mean[0], naive.covariance(W, np.full(200, noise))))
    assert 0.0 < gaps[0] < 10.0
    assert gaps[1] > gaps[0] + 5.0


@pytest.mark.parametrize("isotropic", [False, True])
def test_the_read_out_is_a_gaussian_by_dense_algebra(isotropic):
    rng = np.random.default_rng(1)
    X = one(rng, 60, 30)
    c = component_of_rows(X, np.ones(60), SETTINGS)
    out = readout_of(c, 1.0, isotropic)
    assert np.allclose(out.inverse_psi[0], 1.0 / out.noise[0]) is isotropic
    W = np.sqrt(out.loading[0])[:, None] * c.directions[0]
    C = naive.covariance(W, 1.0 / out.inverse_psi[0])
    E = X - c.mean[0]
    np.testing.assert_allclose(
        squared_distances(X, out)[:, 0], np.einsum("ni,ni->n", E @ np.linalg.inv(C), E), rtol=1e-9
    )
    assert out.log_det[0] == pytest.approx(np.linalg.slogdet(C)[1], rel=1e-10)


def test_one_row_and_equal_rows_have_a_density():
    for X in (np.ones((1, 5)), np.ones((20, 5))):
        out = readout_of(component_of_rows(X, np.ones(len(X)), SETTINGS), 1.0)
        assert np.isfinite(out.log_det).all()
        assert (out.inverse_psi > 0.0).all()
