"""Sato's form and the earlier scheduler, against the definitions they come from."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from tests.naive.variational import PaperVB

from everlearn.experiments.papers.online_vb.forms import (
    OUTLIER_SHARE,
    Posterior,
    latent,
    outlier_schedule,
    posterior_of,
    recursive_step,
    run,
    sato_schedule,
    sato_step,
    statistics_of,
)

N, M, TAU = 4, 2, 1.7


@pytest.fixture
def setting():
    rng = np.random.default_rng(0)
    prior = Posterior(0.3 * rng.normal(size=(N, M)), 0.5 * np.eye(M))
    first = Posterior(rng.normal(size=(N, M)), np.array([[2.0, 0.3], [0.3, 1.0]]))
    return rng.normal(size=(30, N)), prior, first


def test_statistics_are_the_weighted_sums_of_the_free_energy(setting):
    """Eq. 3b with the weights prod lambda(s) written out, over all rows that were kept."""
    X, prior, first = setting
    lam = np.random.default_rng(1).uniform(0.5, 1.0, len(X))
    known = statistics_of(first, prior, TAU)
    moments = []
    for x, factor in zip(X, lam, strict=True):
        moments.append((x, *latent(x, posterior_of(known, prior, TAU), TAU)))
        known = sato_step(x, known, prior, TAU, factor)
    weights = np.array([np.prod(lam[t + 1 :]) for t in range(len(X))])
    kept = np.prod(lam)
    start = statistics_of(first, prior, TAU)
    yy = kept * start.yy + sum(w * Y for w, (_, _, Y) in zip(weights, moments, strict=True))
    xy = kept * start.xy + sum(w * np.outer(x, y) for w, (x, y, _) in zip(weights, moments, strict=True))
    G = TAU * yy + prior.G
    found = posterior_of(known, prior, TAU)
    assert np.allclose(found.G, G)
    assert np.allclose(found.M @ G, TAU * xy + prior.M @ prior.G)
    assert known.rows == pytest.approx(kept + weights.sum())  # T of eq. 2, the first statistics as one row


def test_both_forms_agree_under_any_schedule(setting):
    X, prior, first = setting
    gap = run(X, lambda t, x, p: 0.2 + 0.8 * (t % 3 > 0), first, prior, TAU)[2]
    assert gap < 1e-10


def test_recursive_form_is_the_twins(setting):
    X, prior, first = setting
    prior = Posterior(np.zeros((N, M)), prior.G)
    twin = PaperVB(first.M, first.G, prior.G, TAU)
    posterior = first
    for x in X:
        twin.learn(x, 0.9)
        posterior = recursive_step(x, posterior, prior, TAU, 0.9)
    assert np.allclose(posterior.M, twin.M)
    assert np.allclose(posterior.G, twin.G)


def test_outlier_schedule_is_bayes_rule(setting):
    X, _, first = setting
    schedule = outlier_schedule(50.0, 0.4, TAU)
    uncertain = np.trace(np.linalg.inv(first.G))  # E[Theta Theta'] = M M' + tr(G^-1) I
    model = multivariate_normal(np.zeros(N), first.M @ first.M.T + (1 / TAU + uncertain) * np.eye(N))
    broad = multivariate_normal(np.zeros(N), 50.0 * np.eye(N))
    for x in (X[0], 30.0 * X[1]):
        share = OUTLIER_SHARE * broad.pdf(x) / (OUTLIER_SHARE * broad.pdf(x) + (1 - OUTLIER_SHARE) * model.pdf(x))
        assert schedule(1, x, first) == pytest.approx(1 - 0.6 * share)
    assert schedule(1, 30.0 * X[1], first) < 0.41 < 0.99 < schedule(1, 0.01 * X[0], first)


def test_satos_learning_rate_falls_like_one_over_t():
    """Its sum diverges and that of its squares does not, as stochastic approximation needs."""
    rows, rates = 0.0, []
    for t in range(1, 20_001):
        rows = 1.0 + sato_schedule(t, np.zeros(1), None) * rows
        rates.append(1.0 / rows)
    t = np.array([2_000, 20_000])
    assert np.allclose(t * np.array(rates)[t - 1], 3.0, rtol=0.1)  # (1 + 1/kappa) / t with kappa = 1/2
