"""How a state of online EM starts: statistics that agree with a model, and the paper's start."""

import numpy as np
import pytest

from everlearn.ppca.state import PPCA, factor, init, init_paper, parameters


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    return PPCA(rng.normal(size=5), rng.normal(size=(5, 2)), 0.3)


def test_the_factored_model_has_the_inverse_and_the_determinant_of_m(model):
    M = model.W.T @ model.W + model.sigma2 * np.eye(2)
    found = factor(model)
    np.testing.assert_allclose(found.M_inv @ M, np.eye(2), atol=1e-12)
    assert found.log_det == pytest.approx(np.linalg.slogdet(M)[1])
    # |C| = sigma2^(d - q) |M|: the determinant of the covariance of a row.
    C = model.W @ model.W.T + model.sigma2 * np.eye(5)
    assert found.log_det + 3 * np.log(model.sigma2) == pytest.approx(np.linalg.slogdet(C)[1])
    back = parameters(found)
    for part, expected in zip(back, model, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_statistics_are_expectations_under_the_model(model):
    """Against draws of latent variables and rows."""
    state = init(model, 100)
    rng, n = np.random.default_rng(1), 400_000
    z = rng.normal(size=(n, 2))
    away = z @ model.W.T + np.sqrt(model.sigma2) * rng.normal(size=(n, 5))
    assert state.S0[0] == pytest.approx((away**2).sum(axis=1).mean(), rel=0.01)
    np.testing.assert_allclose(state.S1, away.T @ z / n, atol=0.03)
    np.testing.assert_allclose(state.S2, z.T @ z / n, atol=0.01)
    np.testing.assert_array_equal(state.m, model.mu)
    assert state.k[0] == 100
    # sigma2 and W are what the M-step makes of them.
    W = state.S1 @ np.linalg.inv(state.S2)
    assert (state.S0[0] - np.trace(W.T @ state.S1)) / 5 == pytest.approx(model.sigma2)


def test_a_state_shares_no_memory_with_its_model(model):
    state = init(model, 1)
    before = model.W.copy(), model.mu.copy()
    for array in (state.W, state.mu, state.S1, state.m):
        array[:] = 7.0
    np.testing.assert_array_equal(model.W, before[0])
    np.testing.assert_array_equal(model.mu, before[1])
    assert not np.shares_memory(state.W, state.S1)
    assert not np.shares_memory(state.mu, state.m)


def test_columns_that_were_never_observed_are_counted(model):
    seen = np.array([True, False, True, False, True])
    state = init(model, 3, seen)
    assert state.n_unseen[0] == 2
    np.testing.assert_array_equal(state.seen, seen)
    assert init(model, 3).n_unseen[0] == 0


def test_room_for_a_reference_is_only_made_for_a_constraint(model):
    assert init(model, 1).reference.W.shape == (0, 0)
    reference = init(model, 1, constrained=True).reference
    assert reference.F_W.shape == (5, 2)
    assert not reference.is_active[0]


@pytest.mark.parametrize("scale", [2.0**-200, 0.25, 8.0, 2.0**200])
def test_the_paper_starts_with_orthonormal_axes_in_the_units_of_the_data(scale):
    """The unit is limited, so that the noise variance, its square, is a normal number."""
    state = init_paper(6, 3, np.random.default_rng(2), scale)
    unit = np.clip(1.0 / scale, 2.0**-90, 2.0**90)
    np.testing.assert_allclose(state.W.T @ state.W / unit**2, np.eye(3), atol=1e-12)
    assert state.sigma2[0] == unit**2
    assert not any(statistic.any() for statistic in (state.S0, state.S1, state.S2, state.mu))
    assert state.k[0] == 0


def test_the_model_of_a_state_shares_its_memory(model):
    """Answers follow what is learned without a copy."""
    state = init(model, 10)
    state.mu[:] = 4.0
    assert (state.model.mu == 4.0).all()
    assert state.model.sigma2 == model.sigma2
