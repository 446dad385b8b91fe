"""Constants of a stream, the table of the background density, and learning batch by batch."""

import math

import numpy as np
import pytest

from everlearn.variational import learn
from everlearn.variational.kernels import paper
from everlearn.variational.state import Posterior, init, init_paper
from naive.variational import PaperVB, log_background


@pytest.mark.parametrize(("n", "m"), [(3, 1), (20, 4)])
def test_the_background_is_the_integral_over_the_unknown_loadings(n, m):
    """At some knots, against adaptive quadrature: to 1e-3 nats, and to 1e-4 of them at rows thousands of nats away."""
    table, first, step, _ = learn.background_table(n, m)
    for i in (0, 300, 700, 1000):
        expected = log_background(math.exp(first + i * step), n, m, learn.K0)
        assert table[i] == pytest.approx(expected, rel=1e-4, abs=1e-3)
    assert (np.diff(table) < 1e-12).all()


def test_the_prior_of_the_noise_has_its_first_variance():
    found = learn.settings(4, 2, forgetting=None, tau=0.0, sigma2=2.5)
    assert found.b0 / found.a0 == pytest.approx(2.5)
    assert found.fixed < 0.0
    assert learn.settings(4, 2, forgetting=0.9, tau=3.0, sigma2=1.0)[:2] == (0.9, 3.0)


@pytest.mark.parametrize("forgetting", [None, 0.98])
def test_any_split_learns_the_same(forgetting):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(120, 4))
    known = Posterior(rng.normal(size=(4, 2)), 12.0 * np.eye(2), np.zeros(4), 12.0, 10.0, 10.0, np.full(4, 12.0))
    constants = learn.settings(4, 2, forgetting=forgetting, tau=0.0, sigma2=1.0)
    states = [init(known, adaptive=forgetting is None, stream_row=0) for _ in range(2)]
    whole, info = learn.learn(states[0], X, constants)
    factors = []
    for start, stop in ((0, 1), (1, 50), (50, 120)):
        parts, seen = learn.learn(states[1], X[start:stop], constants)
        factors.append(seen.forgetting)
    np.testing.assert_array_equal(parts.B, whole.B)
    np.testing.assert_array_equal(parts.K, whole.K)
    np.testing.assert_array_equal(np.concatenate(factors), info.forgetting)
    if forgetting:
        np.testing.assert_array_equal(info.forgetting, forgetting)


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_the_paper_is_learned_by_its_equations(keep):
    """Forgetting by the odds of lambda = 1 and 0 (eq. 10), with a prior other than one half, too."""
    rng = np.random.default_rng(1)
    W, tau, k0 = rng.normal(size=(5, 2)), 2.0, 0.1
    X = rng.normal(size=(40, 2)) @ W.T + rng.normal(size=(40, 5)) / math.sqrt(tau)
    M = rng.normal(size=(5, 2))
    constants = learn.paper_settings(2, 5, forgetting="adaptive", k0=k0, tau=tau, keep_probability=keep)
    state, info = learn.learn_paper(init_paper(M, 1.0), X, constants)
    twin = PaperVB(M, tau * np.eye(2), tau * k0 * np.eye(2), tau, keep)
    np.testing.assert_allclose(info.forgetting, [twin.learn(x) for x in X], rtol=1e-7)
    np.testing.assert_allclose(np.linalg.solve(state.K, state.B).T, twin.M, rtol=1e-7, atol=1e-9)


def test_rules_of_the_paper_are_named():
    rule = lambda forgetting: learn.paper_settings(2, 3, forgetting=forgetting, k0=1.0, tau=1.0)  # noqa: E731
    assert (rule("adaptive").rule, rule("posterior").rule) == (paper.END_POINTS, paper.POSTERIOR)
    assert (rule(0.9).rule, rule(0.9).fixed, rule(0.9).prior_odds) == (paper.FIXED, 0.9, 0.0)
    mean = np.arange(6.0).reshape(3, 2)
    found = learn.paper_settings(2, 3, forgetting=1.0, k0=1.0, tau=1.0, prior_mean=mean)
    assert found.has_mean
    np.testing.assert_array_equal(found.M0, mean.T)
    assert not rule(1.0).has_mean
