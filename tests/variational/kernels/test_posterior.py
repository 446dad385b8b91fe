"""The score of a row under one model of variational PPCA."""

import math

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

from everlearn.variational import learn
from everlearn.variational.kernels.posterior import Member, evaluate, plan_at, plan_stack, read_row


def score_of(M, N, a, b, *, tau=0.0, lam=1.0):
    """Log predictive density of a model with loadings and mean in the columns of M, as a function of a row."""
    n, p = M.shape
    K = N * np.eye(p)
    B = np.ascontiguousarray((M @ K).T)
    member = Member(B, K, B @ B.T, np.linalg.inv(K), np.array([a]), np.array([b]))
    settings = learn.settings(n, p - 1, forgetting=lam, tau=tau, sigma2=1.0)
    plan, x = plan_at(plan_stack(1, 1, p, n), 0, 0), np.empty(n)

    def score(*values):
        row = read_row(np.array(values), np.zeros(n), x)
        return evaluate(row, member, lam, 1.0, settings, 0.0, plan)[0]

    return score


@pytest.mark.parametrize("N", [0.5, 5.0, 50.0])
@pytest.mark.parametrize("tau", [0.0, 1.7])
def test_the_predictive_density_integrates_to_one(N, tau):
    score = score_of(np.array([[2.0, 0.5]]), N, 8.0, 9.0, tau=tau, lam=0.9)
    total = sum(quad(lambda v: math.exp(score(v)), a, b, limit=200)[0] for a, b in ((-np.inf, 0.5), (0.5, np.inf)))
    assert total == pytest.approx(1.0, abs=1e-7)


def test_the_predictive_density_of_two_columns_integrates_to_one():
    score = score_of(np.array([[2.0, 0.5], [-1.0, 0.2]]), 3.0, 8.0, 9.0, tau=1.3)
    total = dblquad(lambda u, v: math.exp(score(u, v)), -25, 25, -25, 25, epsabs=1e-8)[0]
    assert total == pytest.approx(1.0, abs=1e-6)


def test_its_variance_is_that_of_the_exact_predictive_distribution():
    """Draws of the loadings, the latent variable and the noise, for a known noise."""
    M, N, tau, lam = np.array([[2.0, 0.5]]), 4.0, 1.7, 0.8
    score = score_of(M, N, 1.0, 1.0, tau=tau, lam=lam)
    variance = quad(lambda v: (v - 0.5) ** 2 * math.exp(score(v)), -60, 60, limit=200)[0]
    rng, n = np.random.default_rng(0), 400_000
    loadings = M + rng.normal(size=(n, 2)) / math.sqrt(tau * lam * N)
    x = loadings[:, 0] * rng.normal(size=n) + loadings[:, 1] + rng.normal(size=n) / math.sqrt(tau)
    assert variance == pytest.approx(x.var(), rel=0.01)
