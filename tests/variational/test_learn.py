"""The formulas of on-line variational Bayes against integrals, and the laws of merging posteriors."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import dblquad, quad

import naive
from everlearn.errors import InputError
from everlearn.ppca import learn as online_em
from everlearn.ppca.state import PPCA, factor
from everlearn.variational import learn as variational
from everlearn.variational.kernels import paper
from everlearn.variational.kernels import posterior as layout
from everlearn.variational.learn import Posterior

LOG_2PI = math.log(2 * math.pi)
NO_GAPS = np.empty(0, dtype=np.int64)


def log_evidence(x, M, K, lam, k0, tau, ybar, S):
    """The kernel's ln L for a given q(y)."""
    m, n = M.shape[1], len(x)
    P, V = np.zeros((layout.MATRICES, m, m)), np.zeros((layout.VECTORS, m))
    P[layout.S_Y], V[layout.Y_BAR] = S, ybar
    B = np.ascontiguousarray((M @ K).T)
    return paper.log_evidence(x, NO_GAPS, x @ x, B, K, B @ B.T, lam, k0, tau, np.empty((m, m)), P, V, np.empty(n))


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


def test_the_predictive_density_integrates_to_one():
    """It is the exact predictive but for the loadings' uncertainty, which is taken at the row's own latent mean."""
    for N, slack in ((5.0, 0.05), (50.0, 0.01)):
        twin = naive.VariationalPPCA(np.array([[2.0, 0.5]]), N, 40.0, 40.0, (1e-3, 1e-3), 10)
        total = quad(lambda v, model: math.exp(model.score(np.array([v]), 1.0)), -60, 60, args=(twin,), limit=200)[0]
        assert total == pytest.approx(1.0, abs=slack)


def test_zero_loadings_are_refused_because_they_never_move():
    with pytest.raises(InputError, match="stays for ever"):
        variational.init_paper(np.zeros((3, 1)), 1.0)
    twin = naive.PaperVB(np.zeros((3, 1)), np.eye(1), 1e-3 * np.eye(1), 1.0)
    for x in np.random.default_rng(0).standard_normal((20, 3)):
        twin.learn(x)
    assert not twin.M.any()


def test_a_start_from_rows_has_their_noise():
    """Unbiased: the residual of N rows has (N - 1 - m)(n - m) degrees of freedom."""
    rng = np.random.default_rng(0)
    W = 4.0 * rng.standard_normal((6, 2))
    ratios = []
    for _ in range(200):
        X = rng.standard_normal((15, 2)) @ W.T + rng.standard_normal((15, 6))
        known = variational.of_rows(online_em.fit_rows(X, 2), 15, np.full(6, 15.0))
        ratios.append(known.sigma2)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)
    assert known.a == 0.5 * (15 - 3) * (6 - 2)


def test_answer_is_the_posterior_ready_for_questions():
    rng = np.random.default_rng(1)
    known = Posterior(
        rng.standard_normal((5, 2)), 7.0 * np.eye(2), rng.standard_normal(5), 7.0, 9.0, 4.5, np.full(5, 7.0)
    )
    state = variational.init(known, adaptive=True, stream_row=0)
    found, wanted = variational.answer(state), factor(PPCA(known.mu, known.M, 0.5))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    for a, b in zip(variational.posterior(state), known, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


# -- merging ----------------------------------------------------------------------------------------


def some_posterior(rng, n=5, m=2, N=40.0, W=None, gaps=False):
    A = 0.2 * rng.standard_normal((m, m))
    M = (3.0 * rng.standard_normal((n, m)) if W is None else W) + 0.1 * rng.standard_normal((n, m))
    seen = N * rng.uniform(0.3, 1.0, n) if gaps else np.full(n, N)
    return Posterior(M, N * (np.eye(m) + A @ A.T), rng.standard_normal(n), N, 30.0, 33.0, seen)


def covariance(known):
    return known.M @ known.M.T + known.sigma2 * np.eye(len(known.M))


@given(st.integers(0, 10**6), st.booleans())
def test_merging_is_commutative(seed, gaps):
    rng = np.random.default_rng(seed)
    W = 3.0 * rng.standard_normal((5, 2))
    parts = [some_posterior(rng, N=N, W=W, gaps=gaps) for N in (40.0, 70.0, 25.0)]
    one = variational.merge(parts, np.ones(3))
    other = variational.merge(parts[::-1], np.ones(3))
    np.testing.assert_allclose(covariance(one), covariance(other), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.mu, other.mu, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.eigvalsh(one.K), np.linalg.eigvalsh(other.K), rtol=1e-6)


@given(st.integers(0, 10**6))
def test_latent_axes_are_turned_onto_each_other(seed):
    """A model and the same model with rotated axes know the same; together they know it twice."""
    rng = np.random.default_rng(seed)
    known = some_posterior(rng)
    R = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    turned = known._replace(M=known.M @ R, K=R.T @ known.K @ R)
    merged = variational.merge([known, turned], np.ones(2), K0=1e-9)
    np.testing.assert_allclose(covariance(merged), covariance(known), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.linalg.eigvalsh(merged.K), 2 * np.linalg.eigvalsh(known.K), rtol=1e-6)
    assert merged.N == 2 * known.N
    assert merged.a == 2 * known.a


def test_the_prior_is_counted_once_and_differences_become_noise():
    known = some_posterior(np.random.default_rng(0))
    same = variational.merge([known, known, known], np.ones(3), K0=2.0)
    np.testing.assert_allclose(same.K, 3 * known.K - 4.0 * np.eye(2))
    assert same.b > 3 * known.b  # loadings shrunk by the prior's three copies come back larger than each part's
    apart = variational.merge([known, known._replace(mu=known.mu + 1.0)], np.ones(2))
    np.testing.assert_allclose(apart.mu, known.mu + 0.5)
    flat = variational.merge([known, known], np.ones(2))
    assert apart.b - flat.b == pytest.approx(0.5 * 2 * known.N * 5 * 0.25, rel=1e-9)


def test_shares_multiply_what_a_part_knows():
    rng = np.random.default_rng(3)
    W = 3.0 * rng.standard_normal((5, 2))
    one, two = some_posterior(rng, W=W), some_posterior(rng, W=W)
    merged = variational.merge([one, two], np.array([1.5, 0.5]))
    np.testing.assert_allclose(merged.mu, 0.75 * one.mu + 0.25 * two.mu)
    assert merged.N == pytest.approx(1.5 * one.N + 0.5 * two.N)


def test_a_column_that_a_part_never_saw_comes_from_the_other():
    rng = np.random.default_rng(4)
    W = 3.0 * rng.standard_normal((5, 2))
    one, two = some_posterior(rng, W=W), some_posterior(rng, W=W)
    blind = two._replace(
        M=np.where(np.arange(5)[:, None] == 4, 0.0, two.M), seen=np.where(np.arange(5) == 4, 0.0, 40.0)
    )
    merged = variational.merge([one, blind], np.ones(2))
    assert merged.mu[4] == pytest.approx(one.mu[4])
    np.testing.assert_allclose(np.linalg.norm(merged.M[4]), np.linalg.norm(one.M[4]), rtol=1e-3)


@given(st.floats(1e-3, 1e3))
def test_rescaling_keeps_the_model(factor):
    known = some_posterior(np.random.default_rng(5))
    scaled = variational.rescale(known, factor)
    np.testing.assert_allclose(covariance(scaled), factor**2 * covariance(known), rtol=1e-9)


def test_loadings_are_less_certain_where_a_column_had_gaps():
    known = some_posterior(np.random.default_rng(6))._replace(seen=np.array([40.0, 40.0, 10.0, 40.0, 40.0]))
    std = variational.loadings_std(known, np.eye(2))
    np.testing.assert_allclose(std[0], np.sqrt(np.diag(np.linalg.inv(known.K)) * known.sigma2))
    np.testing.assert_allclose(std[2], std[0] * math.sqrt(43 / 13))
