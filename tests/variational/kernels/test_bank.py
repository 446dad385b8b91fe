"""Variational PPCA in O(nm + m^3) against the same formulas with n x m matrices and explicit inverses."""

import math

import numpy as np
import pytest
from numba import config

import naive
from everlearn.forgetting import bank as forgetting
from everlearn.variational import ask, learn
from everlearn.variational.kernels import bank as kernels
from everlearn.variational.state import Posterior, init, warmup_rows


def rows_of(rng, n_rows, W, mean=0.0, noise=1.0):
    return rng.standard_normal((n_rows, W.shape[1])) @ W.T + mean + noise * rng.standard_normal((n_rows, len(W)))


def start(rng, n, m, N=12.0):
    """A posterior of some rows, and the twin that begins with it."""
    W, mu, a = 3.0 * rng.standard_normal((n, m)), rng.standard_normal(n), 6.0 * max(n - m, 1)
    known = Posterior(W, N * np.eye(m), mu, N, a, 1.3 * a, np.full(n, N))
    prior = (learn.NOISE_PRIOR, learn.NOISE_PRIOR * known.sigma2)
    twin = naive.VariationalPPCA(np.column_stack([W, mu]), N, a, known.b, prior, warmup_rows(m))
    return known, twin


def assert_same_model(state, slot, k, twin, rtol=1e-8):
    """Loadings, mean, precision and noise; the kernel's rows are relative to its origin."""
    M = (state.K_inv[slot, k] @ state.B[slot, k]).T
    M[:, -1] += state.origin
    scale = np.abs(twin.M).max()
    np.testing.assert_allclose(M, twin.M, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(state.K[slot, k], twin.K, rtol=rtol, atol=rtol * np.abs(twin.K).max())
    np.testing.assert_allclose([state.a[slot, k, 0], state.b[slot, k, 0]], [twin.a, twin.b], rtol=rtol)


@pytest.mark.parametrize(
    ("n", "m", "lam", "gaps"), [(2, 1, 1.0, 0.0), (5, 2, 0.97, 0.0), (6, 3, 0.9, 0.3), (3, 3, 1.0, 0.2)]
)
def test_one_model_is_its_twin(n, m, lam, gaps):
    rng = np.random.default_rng(n)
    known, twin = start(rng, n, m)
    X = rows_of(rng, 250, known.M, known.mu)
    X[rng.random(X.shape) < gaps] = np.nan
    state = init(known, adaptive=False, stream_row=0)
    constants = learn.settings(n, m, forgetting=lam, tau=0.0, sigma2=known.sigma2)
    for t, x in enumerate(X):
        if not np.isnan(x).all():
            twin.learn(x, lam, whole=(state.learned[0] + 1) % kernels.EXPANSION == 0)
        learn.learn(state, X[t : t + 1], constants)
    assert_same_model(state, 0, 0, twin)


def test_known_noise_is_left_alone():
    rng = np.random.default_rng(0)
    known, twin = start(rng, 4, 2)
    twin.tau = 0.8
    X = rows_of(rng, 100, known.M, known.mu)
    state = init(known, adaptive=False, stream_row=0)
    learn.learn(state, X, learn.settings(4, 2, forgetting=0.95, tau=0.8, sigma2=1.0))
    for t, x in enumerate(X):
        twin.learn(x, 0.95, whole=(t + 1) % kernels.EXPANSION == 0)
    assert (state.a[0, 0, 0], state.b[0, 0, 0]) == (known.a, known.b)
    twin.a, twin.b = known.a, known.b
    assert_same_model(state, 0, 0, twin)
    assert ask.model_of(state, 0.8).sigma2 == 1 / 0.8


def changing_stream(rng, gaps):
    """An outlier, a turn of the axis with another one soon after, a jump of the mean, a drift."""
    X = rows_of(rng, 60, np.array([[8.0], [-1.0], [1.0]]))
    X[40] = [30.0, 40.0, -20.0]
    turned = np.array([[0.0], [4.0], [7.0]])
    drift = np.concatenate([rows_of(rng, 1, turned, 25.0 + 0.3 * t) for t in range(40)])
    X = np.concatenate([X, rows_of(rng, 60, turned), rows_of(rng, 60, turned, 25.0), drift])
    X[65] = [-30.0, 25.0, 30.0]
    X[rng.random(X.shape) < gaps] = np.nan
    X[100] = np.nan
    return X


@pytest.mark.parametrize("gaps", [0.0, pytest.param(0.15, marks=pytest.mark.slow)])
def test_the_compiled_bank_is_the_policy_driving_twins(gaps):
    """One implementation of the decisions, two of everything else."""
    rng = np.random.default_rng(5)
    known, twin = start(rng, 3, 1, N=10.0)
    X = changing_stream(rng, gaps)
    hooks = forgetting.Hooks(
        lambda model, x, lam: model.learn(x, lam, whole=state.learned[0] % kernels.EXPANSION == 0),
        lambda model, x, lam: model.score(x, lam),
        lambda model, lam: model.reset(lam),
        lambda model: naive.copied(model),
        lambda model, x: model.background(x),
    )
    bank = forgetting.init(known.N)
    models = forgetting.start(twin, bank, hooks)
    state = init(known, adaptive=True, stream_row=0)
    constants = learn.settings(3, 1, forgetting=None, tau=0.0, sigma2=known.sigma2)
    for t, x in enumerate(X):
        learn.learn(state, X[t : t + 1], constants)
        if np.isnan(x).all():
            bank.n_rows[0] += 1  # counted, though the policy does not see them
            continue
        forgetting.step(bank, models, x, hooks)
        assert forgetting.best_member(bank) == forgetting.best_member(state.bank), t
        np.testing.assert_allclose(state.bank.log_weights, bank.log_weights, atol=2e-3)
    assert state.bank.active[0] == bank.active[0]
    found = forgetting.accepted_changes(state.bank)
    assert len(found) >= 2
    assert list(found) == list(forgetting.accepted_changes(bank))
    slot, k = forgetting.best_member(bank)
    assert_same_model(state, slot, k, models[slot][k], rtol=1e-6)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 1), (25, 3), (784, 10)])
def test_background_is_the_integral(n, m):
    table, first, step, nodes = learn.background_table(n, m)
    for s in [0.0, 1e-4, 0.3, 2.0, n, 3.0 * n, 1e4, 1e9]:
        exact = naive.log_background(s, n, m, learn.K0)
        assert kernels.log_background(s, n, nodes) == pytest.approx(exact, abs=2e-3)
        assert kernels.look_up(s, table, first, step) == pytest.approx(exact, abs=2e-2)
    assert math.isnan(kernels.look_up(1e13, table, first, step))


def test_the_origin_moves_without_changing_the_model():
    """3,000 rows whose mean walks far away: three moves of the origin, and the twin that has none."""
    rng = np.random.default_rng(7)
    known, twin = start(rng, 3, 1)
    X = rows_of(rng, 3000, known.M, known.mu) + 0.5 * np.arange(3000)[:, None]
    state = init(known, adaptive=False, stream_row=0)
    learn.learn(state, X, learn.settings(3, 1, forgetting=0.95, tau=0.0, sigma2=known.sigma2))
    for t, x in enumerate(X):
        twin.learn(x, 0.95, whole=(t + 1) % kernels.EXPANSION == 0)
    assert abs(state.origin - X[-1]).max() < 1000.0
    assert_same_model(state, 0, 0, twin, rtol=1e-6)


def test_what_is_kept_beside_the_statistics_does_not_drift():
    rng = np.random.default_rng(8)
    known, _ = start(rng, 4, 2)
    X = rows_of(rng, 2000 if config.DISABLE_JIT else 100_000, known.M, known.mu)
    state = init(known, adaptive=False, stream_row=1)
    learn.learn(state, X, learn.settings(4, 2, forgetting=1.0, tau=0.0, sigma2=known.sigma2))
    B, K = state.B[0, 0], state.K[0, 0]
    np.testing.assert_allclose(state.C[0, 0], B @ B.T, rtol=1e-9, atol=1e-9 * np.abs(B @ B.T).max())
    np.testing.assert_allclose(state.K_inv[0, 0] @ K, np.eye(3), atol=1e-9)
    assert np.linalg.eigvalsh(K).min() > 0
