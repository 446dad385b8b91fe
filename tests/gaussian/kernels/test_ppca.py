"""The compiled linear algebra and loops of PPCA; short enough to run as plain Python too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.gaussian import ppca
from everlearn.gaussian.kernels import ppca as kernels
from everlearn.gaussian.ppca import PPCA
from everlearn.ppca import keep as constraint
from everlearn.ppca import learn as online_em
from everlearn.ppca.keep import NaturalConstraint, OnChange
from everlearn.ppca.schedules import PowerSchedule


@given(seed=st.integers(0, 10**6), q=st.integers(1, 8))
def test_inverse_and_determinant(seed, q):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(q, q + 2))
    A = A @ A.T + 0.1 * np.eye(q)
    B = A.copy()
    log_det = kernels.invert_spd(B, np.empty(q))
    np.testing.assert_allclose(B @ A, np.eye(q), atol=1e-9)
    np.testing.assert_array_equal(B, B.T)
    assert log_det == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("size", [1.0, 1e-100, 1e100])
def test_a_singular_matrix_still_has_a_definite_inverse(size):
    v = np.array([1.0, 2.0, -1.0])
    A = size * np.outer(v, v)
    kernels.invert_spd(A, np.empty(3))
    assert np.all(np.isfinite(A))
    assert np.linalg.eigvalsh(A / np.abs(A).max())[0] > -1e-12


def test_the_noise_floor_follows_variance_mean_and_zero():
    zero = np.zeros(3)
    assert kernels.least_noise(4.0, zero) == pytest.approx(4e-6)
    assert kernels.least_noise(0.0, np.array([0.0, -8.0, 1.0])) == pytest.approx(64 * 2.0**-104)
    assert kernels.least_noise(0.0, zero) > 0


@pytest.mark.parametrize("policy", [None, "step", "class", OnChange()])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_the_loop_equals_its_twin(policy, gaps):
    rng = np.random.default_rng(0)
    model = PPCA(rng.normal(size=4), rng.normal(size=(4, 2)), 0.5)
    X = ppca.sample(model, 40, rng)
    X[rng.random(X.shape) < gaps] = np.nan
    X[5] = np.nan
    gain, strength = PowerSchedule(0.9, 0.9), PowerSchedule(1.0, 0.5)
    con = None if policy is None else NaturalConstraint(strength, policy)
    twin = naive.OnlineEM(*model, 10, gain, form="proximal" if con else None, strength=strength)
    state, reference = online_em.init(model, 10), constraint.no_reference(4, 2)
    marks = np.arange(40) == 20 if policy == "class" else np.zeros(40, dtype=bool)
    state, info = online_em.learn(state, X, online_em.settings(gain, con), reference, marks, np.zeros(4))
    for x, taken in zip(X, info.taken, strict=True):
        if taken:
            twin.take_reference()
        twin.learn(x)
    np.testing.assert_allclose(state.W, twin.W, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(state.mu, twin.mu, rtol=1e-9, atol=1e-10)
    assert state.sigma2 == pytest.approx(twin.sigma2, rel=1e-9)
    assert (info.taken.sum() > 0) == (policy in ("step", "class"))
