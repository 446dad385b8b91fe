"""The R-step of NAT-oEM: it minimises the objective that it names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from everlearn.ppca import keep
from everlearn.ppca.kernels import constraint
from everlearn.ppca.kernels.density import row_scratch
from everlearn.ppca.kernels.online_em import Scratch
from everlearn.ppca.state import PPCA, init


def setting(seed, *, expanded):
    """A state in the middle of a step, with a reference, and -Q + beta/2 |theta - theta*|^2 as a function."""
    rng = np.random.default_rng(seed)
    d, q = 3, 2
    state = init(PPCA(rng.normal(size=d), rng.normal(size=(d, q)), 0.5), 10, constrained=True)
    other = init(PPCA(rng.normal(size=d), rng.normal(size=(d, q)), 0.8), 10, constrained=True)
    keep.take_reference(other)
    state = state._replace(reference=other.reference)
    if not expanded:
        A = rng.normal(size=(q, q))
        state.S2[:] = A @ A.T + np.diag([0.05, 3.0])
        state.S1[:] = rng.normal(size=(d, q))
    state.S0[0] = np.sum(state.S1 @ np.linalg.inv(state.S2) * state.S1) + rng.uniform(0.5, 5.0)
    held = state.reference

    def objective(mu, W, v, beta):
        A = state.S0[0] + np.sum((state.m - mu) ** 2) - 2 * np.sum(state.S1 * W) + np.trace(state.S2 @ W.T @ W)
        far = np.sum(held.F_mu * (mu - held.mu) ** 2) + np.sum(held.F_W * (W - held.W) ** 2)
        far += held.F_sigma2[0] * (v - held.sigma2[0]) ** 2
        return 0.5 * (d * np.log(v) + A / v + beta * far)

    return state, objective


def scratch_for(state):
    d, q = state.W.shape
    return Scratch(row_scratch(d, q, False), np.empty((q, q)), np.empty((q, q)), np.empty(q), np.empty((d, q)))


@pytest.mark.parametrize("expanded", [True, False])
@given(seed=st.integers(0, 10**6), beta=st.floats(0.01, 100.0))
def test_the_proximal_step_minimises_its_objective(expanded, seed, beta):
    """BFGS over mu and W at the last noise variance, and other values of the noise variance, find nothing smaller."""
    state, objective = setting(seed, expanded=expanded)
    s, (d, q) = float(state.sigma2[0]), state.W.shape
    found = constraint.proximal_step(beta, expanded, state, scratch_for(state))
    least = objective(state.mu, state.W, s, beta)
    best = minimize(lambda p: objective(p[:d], p[d:].reshape(d, q), s, beta), np.zeros(d + d * q), method="BFGS")
    assert least == pytest.approx(best.fun, rel=1e-6, abs=1e-6)
    assert least <= best.fun + 1e-9 * abs(best.fun)
    least = objective(state.mu, state.W, found, beta)
    for factor in (0.9, 0.999, 1.001, 1.1):
        assert objective(state.mu, state.W, factor * found, beta) > least


def test_a_constraint_of_any_strength_stays_finite():
    for beta in (1e-300, 1e200):
        state, _ = setting(0, expanded=False)
        s = constraint.proximal_step(beta, False, state, scratch_for(state))
        assert np.isfinite(state.W).all()
        assert s > 0
    np.testing.assert_allclose(state.W, state.reference.W, rtol=1e-9)
