"""Learning a planned row, against the formulas of `everlearn.variational.learn` with explicit inverses."""

import numpy as np
import pytest

from everlearn.linalg.compile import kernel
from everlearn.variational import learn
from everlearn.variational.kernels.commit import commit
from everlearn.variational.kernels.posterior import Member, evaluate, plan_at, plan_stack, read_row
from naive.variational import latent_posterior

n, m, N = 6, 2, 30.0
p = m + 1


@kernel
def learn_row(values, member, seen, lam, gappy, settings, plan):
    x = np.empty(len(values))
    row = read_row(values, np.zeros(len(values)), x)
    evaluate(row, member, lam, 1.0, settings, 0.0, plan)
    commit(row, member, seen, lam, gappy, plan)


def start(rng):
    M, A = rng.normal(size=(n, p)), rng.normal(size=(p, p))
    K = N * np.eye(p) + A @ A.T
    B = np.ascontiguousarray((M @ K).T)
    return M, K, Member(B, K.copy(), B @ B.T, np.linalg.inv(K), np.array([9.0]), np.array([8.0]))


def learned(x, member, lam, seen, gappy):
    settings = learn.settings(n, m, forgetting=lam, tau=1.4, sigma2=1.0)
    learn_row(x, member, seen, lam, gappy, settings, plan_at(plan_stack(1, 1, p, n), 0, 0))
    return member


def unmixed(K):
    """T of y = shift + scale y' that gives latent variables mean zero and unit second moment."""
    T = np.eye(p)
    T[:m, m] = K[:m, m] / K[m, m]
    T[:m, :m] = np.diag(np.sqrt(np.diag(K)[:m] / K[m, m] - T[:m, m] ** 2))
    return T


@pytest.mark.parametrize("lam", [1.0, 0.9])
@pytest.mark.parametrize("gappy", [False, True])
def test_a_complete_row_is_learned_by_the_printed_update(lam, gappy):
    """M' = M + (x ybar' - M Y) K'^-1 and K' = lambda K + Y, in new axes; C and the inverse go with them."""
    rng = np.random.default_rng(0)
    M, K, member = start(rng)
    x = rng.normal(size=n)
    ybar, S = latent_posterior(x, M, lam * K, 1.4, m)
    Y = S + np.outer(ybar, ybar)
    K_new = lam * K + Y
    M_new, T = M + (np.outer(x, ybar) - M @ Y) @ np.linalg.inv(K_new), unmixed(K_new)
    # With every column observed as often as there were rows, all gains are one.
    learned(x, member, lam, np.full(n, K[m, m]), gappy)
    np.testing.assert_allclose((member.K_inv @ member.B).T, M_new @ T, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(member.K, np.linalg.inv(T) @ K_new @ np.linalg.inv(T).T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gaps", [[], [1], [0, 3, 4]])
def test_what_is_left_belongs_together(gaps):
    """C = B B', the inverse is one, and the latent axes have mean zero and unit second moment."""
    rng = np.random.default_rng(1)
    _, _, member = start(rng)
    x = rng.normal(size=n)
    x[gaps] = np.nan
    learned(x, member, 0.95, np.linspace(5.0, N, n), True)
    np.testing.assert_allclose(member.C, member.B @ member.B.T, rtol=1e-9)
    np.testing.assert_allclose(member.K_inv @ member.K, np.eye(p), atol=1e-10)
    np.testing.assert_allclose(member.K[m, :m], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.diag(member.K), member.K[m, m])


def test_a_gap_teaches_its_column_nothing():
    """Its loadings, in the axes of before, stay as they are; a column that was seldom observed learns faster."""
    rng = np.random.default_rng(2)
    M, K, member = start(rng)
    x, seen = rng.normal(size=n), np.full(n, K[m, m])
    x[4], seen[2] = np.nan, 0.0
    ybar, S = latent_posterior(x, M, K, 1.4, m)
    Y = S + np.outer(ybar, ybar)
    T = unmixed(K + Y)
    learned(x, member, 1.0, seen, True)
    found = (member.K_inv @ member.B).T @ np.linalg.inv(T)
    np.testing.assert_allclose(found[4], M[4], rtol=1e-9)
    step = (x[:, None] * ybar - M @ Y) @ np.linalg.inv(K + Y)
    gain = (K[m, m] + 1.0 + p) / (1.0 + p)
    np.testing.assert_allclose(found[2] - M[2], gain * step[2], rtol=1e-8)
    np.testing.assert_allclose(found[0] - M[0], step[0], rtol=1e-8)
    np.testing.assert_allclose(
        seen, np.where(np.arange(n) == 4, K[m, m], np.where(np.arange(n) == 2, 1.0, K[m, m] + 1))
    )
