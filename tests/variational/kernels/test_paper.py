"""The paper's rule: its evidence against integrals, its loop against eq. 7 to 10."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import dblquad, quad

import naive
from everlearn.variational import ask, learn
from everlearn.variational.kernels import paper
from everlearn.variational.kernels.posterior import Row, plan_at, plan_stack
from everlearn.variational.state import PaperState, init_paper

LOG_2PI = math.log(2 * math.pi)


def log_evidence(x, M, K, lam, k0, tau, ybar, S, prior_mean=None):
    """The kernel's ln L for a given q(y)."""
    m, n = M.shape[1], len(x)
    plan = plan_at(plan_stack(1, 1, m, n), 0, 0)
    plan.S[:], plan.ybar[:] = S, ybar
    B = np.ascontiguousarray((M @ K).T)
    settings = learn.paper_settings(m, n, forgetting=1.0, k0=k0, tau=tau, prior_mean=prior_mean)
    past = paper.Weakened(np.empty((m, n)), np.empty((m, m)), np.empty((m, m)), np.empty((m, m)))
    row = Row(x, np.empty(0, dtype=np.int64), x @ x)
    return paper.log_evidence(row, PaperState(B, K, B @ B.T), lam, settings, past, plan)


def log_weakened(theta, M, G, G0, lam):
    """ln of q^lam p0^(1-lam) at loadings (n,) of one latent variable, not normalised."""
    log_q = 0.5 * np.sum(math.log(G) - LOG_2PI - G * (theta - M) ** 2)
    log_prior = 0.5 * np.sum(math.log(G0) - LOG_2PI - G0 * theta**2)
    return lam * log_q + (1 - lam) * log_prior


def expected_log_joint(theta, x, ybar, s, tau):
    """E[ln p(x, y | theta)] under q(y) = N(ybar, s)."""
    squares = np.sum((x - theta * ybar) ** 2 + theta**2 * s)
    return -0.5 * (len(x) * (LOG_2PI - math.log(tau)) + tau * squares + LOG_2PI + ybar**2 + s)


@pytest.mark.parametrize("lam", [0.0, 0.35, 1.0])
def test_log_evidence_and_its_normaliser_are_integrals_in_one_dimension(lam):
    x, M, G, G0, tau, ybar, s = np.array([1.3]), 0.7, 2.5, 0.4, 1.6, 0.8, 0.3
    normaliser = quad(lambda t: math.exp(log_weakened(np.array([t]), M, G, G0, lam)), -40, 40, epsabs=0)[0]
    total = quad(
        lambda t: math.exp(
            log_weakened(np.array([t]), M, G, G0, lam) + expected_log_joint(np.array([t]), x, ybar, s, tau)
        ),
        -40, 40, epsabs=0,
    )[0]  # fmt: skip
    found = log_evidence(
        x, np.array([[M]]), np.array([[G / tau]]), lam, G0 / tau, tau, np.array([ybar]), np.array([[s]])
    )
    assert found == pytest.approx(math.log(total / normaliser), rel=1e-11)
    G_t = lam * G + (1 - lam) * G0  # the normaliser that the paper calls intractable
    exponent = lam * G * M**2 - (lam * G * M) ** 2 / G_t
    closed = G ** (lam / 2) * G0 ** ((1 - lam) / 2) / math.sqrt(G_t) * math.exp(-0.5 * exponent)
    assert normaliser == pytest.approx(closed, rel=1e-11)


def test_log_evidence_is_an_integral_in_two_dimensions():
    x, M, G, G0, tau, ybar, s, lam = np.array([1.3, -0.4]), np.array([0.7, 0.2]), 2.5, 0.4, 1.6, -0.6, 0.3, 0.6

    def joint(b, a, with_data):
        theta = np.array([a, b])
        value = log_weakened(theta, M, G, G0, lam)
        return math.exp(value + (expected_log_joint(theta, x, ybar, s, tau) if with_data else 0.0))

    total, normaliser = (dblquad(joint, -12, 12, -12, 12, args=(flag,), epsabs=1e-13)[0] for flag in (True, False))
    found = log_evidence(x, M[:, None], np.array([[G / tau]]), lam, G0 / tau, tau, np.array([ybar]), np.array([[s]]))
    assert found == pytest.approx(math.log(total / normaliser), rel=1e-9)


@given(st.integers(0, 10**6), st.floats(0.0, 1.0))
def test_log_evidence_is_the_literal_form(seed, lam):
    rng = np.random.default_rng(seed)
    n, m, tau, k0 = 5, 2, 1.7, 1e-2
    M, A = rng.standard_normal((n, m)), rng.standard_normal((m, m))
    K, x = A @ A.T + np.eye(m), 3 * rng.standard_normal(n)
    ybar, S = naive.latent_posterior(x, M, K, tau, m)
    wanted = naive.log_evidence(x, M, K, ybar, S, lam, k0 * np.eye(m), tau)
    assert log_evidence(x, M, K, lam, k0, tau, ybar, S) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def rows_of(rng, n_rows, W, mean=0.0, noise=1.0):
    return rng.standard_normal((n_rows, W.shape[1])) @ W.T + mean + noise * rng.standard_normal((n_rows, len(W)))


@pytest.mark.parametrize(("lam", "gaps"), [(None, 0.0), (0.95, 0.0), (None, 0.2), (1.0, 0.2)])
def test_the_papers_loop_is_eq_7_to_10(lam, gaps):
    rng = np.random.default_rng(3)
    n, m, tau, G0 = 4, 2, 1.7, 1e-3
    M = rng.standard_normal((n, m))
    twin = naive.PaperVB(M.copy(), np.eye(m), G0 * np.eye(m), tau)
    state = init_paper(M, 1.0 / tau)
    X = np.concatenate([rows_of(rng, 40, 3.0 * rng.standard_normal((n, m))) for _ in range(2)])
    X[rng.random(X.shape) < gaps] = np.nan
    settings = learn.paper_settings(m, n, forgetting="adaptive" if lam is None else lam, k0=G0 / tau, tau=tau)
    for t, x in enumerate(X):
        if np.isnan(x).all():
            continue
        wanted = twin.learn(x, lam)
        state, info = learn.learn_paper(state, X[t : t + 1], settings)
        assert info.forgetting[0] == pytest.approx(wanted, abs=1e-9)
    known = ask.paper_posterior(state, tau)
    np.testing.assert_allclose(known.M, twin.M, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(known.K * tau, twin.G, rtol=1e-8, atol=1e-8)


# -- the posterior of lambda, and a prior mean -----------------------------------------------------


def some_model(seed, n, m, N):
    rng = np.random.default_rng(seed)
    M = 2.0 * rng.standard_normal((n, m))
    K = N * np.eye(m)
    B = np.ascontiguousarray((M @ K).T)
    return rng, M, K, PaperState(B, K.copy(), B @ B.T)


@pytest.mark.parametrize(
    ("n", "m", "N", "far"), [(2, 1, 30.0, 0.0), (2, 1, 300.0, 8.0), (25, 2, 100.0, 6.0), (60, 1, 50.0, 0.3)]
)
@pytest.mark.parametrize("p1", [0.5, 0.9])
def test_the_posterior_mean_of_lambda_is_the_integral_of_eq_9(n, m, N, far, p1):
    rng, M, K, state = some_model(n, n, m, N)
    tau, k0 = 1.3, 1e-3
    x = M @ rng.standard_normal(m) + rng.standard_normal(n) + far * rng.standard_normal(n)
    ybar, S = naive.latent_posterior(x, M, K, tau, m)
    odds = math.log(p1 / (1 - p1))

    def height(lam):
        return naive.log_evidence(x, M, K, ybar, S, lam, k0 * np.eye(m), tau) + odds * lam

    top = max(height(lam) for lam in np.geomspace(1e-10, 1.0, 200))
    edges = [0.0, *np.geomspace(1e-10, 1.0, 60)]
    parts = [
        [quad(lambda lam: lam**k * math.exp(height(lam) - top), a, b)[0] for k in (0, 1)]  # noqa: B023
        for a, b in itertools.pairwise(edges)
    ]
    total, mean = np.sum(parts, axis=0)
    settings = learn.paper_settings(m, n, forgetting="posterior", k0=k0, tau=tau, keep_probability=p1)
    _, info = learn.learn_paper(state, x[None], settings)
    assert info.forgetting[0] == pytest.approx(mean / total, rel=1e-5)


def test_the_posterior_of_lambda_forgets_at_a_change_and_keeps_on_in_a_quiet_stream():
    rng = np.random.default_rng(0)
    W = [3.0 * rng.standard_normal((8, 1)) for _ in range(2)]
    X = np.concatenate([rows_of(rng, 300, w) for w in W])
    settings = learn.paper_settings(1, 8, forgetting="posterior", k0=1e-3, tau=1.0)
    state, info = learn.learn_paper(init_paper(W[0] + rng.standard_normal((8, 1)), 1.0), X, settings)
    quiet = info.forgetting[100:300]
    assert np.median(quiet) > 0.5
    assert info.forgetting[300:305].min() < np.quantile(quiet, 0.05)
    M = ask.paper_posterior(state, 1.0).M[:, 0]
    assert abs(M @ W[1][:, 0]) > 0.98 * np.linalg.norm(M) * np.linalg.norm(W[1])


@given(st.integers(0, 10**6), st.floats(0.0, 1.0))
def test_a_prior_mean_is_what_forgetting_returns_to(seed, lam):
    """Eq. 7 with M0: the past is weakened towards it, by natural parameters."""
    rng, M, K, state = some_model(seed, 4, 2, 20.0)
    tau, k0, M0 = 1.7, 0.4, rng.standard_normal((4, 2))
    x = M @ rng.standard_normal(2) + rng.standard_normal(4)
    ybar, S = naive.latent_posterior(x, M, K, tau, 2)
    Y = S + np.outer(ybar, ybar)
    K_t = lam * K + (1 - lam) * k0 * np.eye(2)
    M_t = (lam * M @ K + (1 - lam) * k0 * M0) @ np.linalg.inv(K_t)
    wanted = M_t + (np.outer(x, ybar) - M_t @ Y) @ np.linalg.inv(K_t + Y)
    settings = learn.paper_settings(2, 4, forgetting=lam, k0=k0, tau=tau, prior_mean=M0)
    state, _ = learn.learn_paper(state, x[None], settings)
    np.testing.assert_allclose(ask.paper_posterior(state, tau).M, wanted, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(state.C, state.B @ state.B.T, rtol=1e-9, atol=1e-9)


def test_the_evidence_with_a_prior_mean_is_an_integral():
    x, M, M0, G, G0, tau, ybar, s, lam = np.array([1.3]), 0.7, -1.1, 2.5, 0.4, 1.6, 0.8, 0.3, 0.35

    def log_past(t):
        log_q = 0.5 * (math.log(G) - LOG_2PI - G * (t - M) ** 2)
        log_prior = 0.5 * (math.log(G0) - LOG_2PI - G0 * (t - M0) ** 2)
        return lam * log_q + (1 - lam) * log_prior

    normaliser = quad(lambda t: math.exp(log_past(t)), -40, 40, epsabs=0)[0]
    total = quad(
        lambda t: math.exp(log_past(t) + expected_log_joint(np.array([t]), x, ybar, s, tau)), -40, 40, epsabs=0
    )[0]
    found = log_evidence(
        x, np.array([[M]]), np.array([[G / tau]]), lam, G0 / tau, tau, np.array([ybar]), np.array([[s]]), [[M0]]
    )
    assert found == pytest.approx(math.log(total / normaliser), rel=1e-11)
