"""What the model that answers knows."""

import math

import numpy as np

from everlearn.ppca.state import PPCA, factor
from everlearn.variational import ask
from everlearn.variational.state import Posterior, init


def some_posterior(rng, n=5, m=2, N=40.0, W=None, gaps=False):
    A = 0.2 * rng.standard_normal((m, m))
    M = (3.0 * rng.standard_normal((n, m)) if W is None else W) + 0.1 * rng.standard_normal((n, m))
    seen = N * rng.uniform(0.3, 1.0, n) if gaps else np.full(n, N)
    return Posterior(M, N * (np.eye(m) + A @ A.T), rng.standard_normal(n), N, 30.0, 33.0, seen)


def test_the_model_is_the_posterior_ready_to_score():
    rng = np.random.default_rng(1)
    known = Posterior(
        rng.standard_normal((5, 2)), 7.0 * np.eye(2), rng.standard_normal(5), 7.0, 9.0, 4.5, np.full(5, 7.0)
    )
    state = init(known, adaptive=True, stream_row=0)
    found, wanted = ask.model_of(state), factor(PPCA(known.mu, known.M, 0.5))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    for a, b in zip(ask.posterior(state), known, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_loadings_are_less_certain_where_a_column_had_gaps():
    known = some_posterior(np.random.default_rng(6))._replace(seen=np.array([40.0, 40.0, 10.0, 40.0, 40.0]))
    std = ask.loadings_std(known, np.eye(2))
    np.testing.assert_allclose(std[0], np.sqrt(np.diag(np.linalg.inv(known.K)) * known.sigma2))
    np.testing.assert_allclose(std[2], std[0] * math.sqrt(43 / 13))
