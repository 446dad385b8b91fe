"""The compiled loop of online EM against its twin; short enough to run as plain Python too."""

import numpy as np
import pytest

import naive
from everlearn.ppca import ask, learn
from everlearn.ppca.keep import NaturalConstraint, OnChange
from everlearn.ppca.schedules import PowerSchedule
from everlearn.ppca.state import PPCA, init


@pytest.mark.parametrize("policy", [None, "step", "class", OnChange()])
@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_the_loop_equals_its_twin(policy, gaps):
    rng = np.random.default_rng(0)
    model = PPCA(rng.normal(size=4), rng.normal(size=(4, 2)), 0.5)
    X = ask.sample(model, 40, rng)
    X[rng.random(X.shape) < gaps] = np.nan
    X[5] = np.nan
    gain, strength = PowerSchedule(0.9, 0.9), PowerSchedule(1.0, 0.5)
    con = None if policy is None else NaturalConstraint(strength, policy)
    twin = naive.OnlineEM(*model, 10, gain, form="proximal" if con else None, strength=strength)
    state = init(model, 10, constrained=True)
    ends = np.arange(40) == 20 if policy == "class" else np.zeros(40, dtype=bool)
    state, info = learn.learn(state, X, learn.settings(gain, con), ends)
    for x, taken in zip(X, info.taken, strict=True):
        if taken:
            twin.take_reference()
        twin.learn(x)
    np.testing.assert_allclose(state.W, twin.W, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(state.mu, twin.mu, rtol=1e-9, atol=1e-10)
    assert state.sigma2[0] == pytest.approx(twin.sigma2, rel=1e-9)
    assert (info.taken.sum() > 0) == (policy in ("step", "class"))
