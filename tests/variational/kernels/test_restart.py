"""Variational EM over the few rows since a restart, against its twin and against what every round must leave."""

import numpy as np
import pytest

import naive
from everlearn.variational.kernels.posterior import Member, plan_at, plan_stack
from everlearn.variational.kernels.restart import Prior, derive, replay

N_ROWS, n, m = 12, 5, 2
p = m + 1


def rows_of(rng, gaps=0.0):
    X = (
        rng.normal(size=(N_ROWS, m)) @ (3.0 * rng.normal(size=(m, n)))
        + rng.normal(size=n)
        + rng.normal(size=(N_ROWS, n))
    )
    X[rng.random(X.shape) < gaps] = np.nan
    return X


def start(rng):
    """Loadings and mean, and the same model as the kernel holds it."""
    M, K = rng.normal(size=(n, p)), 4.0 * np.eye(p)
    B = np.ascontiguousarray((M @ K).T)
    member = Member(B, K.copy(), B @ B.T, np.linalg.inv(K), np.array([6.0]), np.array([7.0]))
    prior = Prior(B.copy(), K.copy(), np.array([6.0]), np.array([7.0]))
    return M, member, prior


def replayed(X, member, prior, tau=0.0, origin=None):
    plan = plan_at(plan_stack(1, 1, p, n), 0, 0)
    replay(X, np.zeros(n) if origin is None else origin, prior, member, tau, 0.0, plan)
    return member


@pytest.mark.parametrize("gaps", [0.0, 0.25])
def test_three_rounds_are_those_of_the_twin(gaps):
    rng = np.random.default_rng(0)
    X, (M, member, prior) = rows_of(rng, gaps), start(rng)
    twin = naive.VariationalPPCA(M, 4.0, 6.0, 7.0, (0.0, 0.0), 20)
    twin.prior, twin.rows = (M @ twin.K, twin.K, 6.0, 7.0), []
    twin._go_over(list(X))
    replayed(X, member, prior)
    np.testing.assert_allclose((member.K_inv @ member.B).T, twin.M, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(member.K, twin.K, atol=1e-9 * twin.K.max())
    assert (member.a[0], member.b[0]) == pytest.approx((twin.a, twin.b))


def test_what_is_left_belongs_together():
    """Latent axes of mean zero and unit covariance: K = N I; C and the inverse follow."""
    rng = np.random.default_rng(1)
    X, (_, member, prior) = rows_of(rng), start(rng)
    replayed(X, member, prior)
    np.testing.assert_array_equal(member.K, (4.0 + N_ROWS) * np.eye(p))
    np.testing.assert_allclose(member.C, member.B @ member.B.T, rtol=1e-12)
    np.testing.assert_allclose(member.K_inv @ member.K, np.eye(p), atol=1e-14)


def test_the_origin_only_moves_the_mean():
    """Rows and origin moved alike give the same model of the rows relative to it."""
    rng = np.random.default_rng(2)
    X, (_, member, prior) = rows_of(rng), start(rng)
    moved = Member(*(part.copy() for part in member))
    replayed(X, member, prior)
    replayed(X + 64.0, moved, prior, origin=np.full(n, 64.0))
    np.testing.assert_allclose(moved.B, member.B, rtol=1e-9, atol=1e-9)


def test_many_rounds_find_the_mean_and_the_axes_of_the_rows():
    """With a prior that is worth nothing they are those of a singular value decomposition."""
    rng = np.random.default_rng(3)
    X, (_, member, _) = rows_of(rng), start(rng)
    prior = Prior(np.zeros((p, n)), np.diag([1e-3, 1e-3, 0.0]), np.array([1e-3]), np.array([1e-3]))
    for _ in range(60):
        replayed(X, member, prior)
    M = (member.K_inv @ member.B).T
    np.testing.assert_allclose(M[:, m], X.mean(axis=0), atol=1e-6)
    axes = np.linalg.svd(X - X.mean(axis=0))[2][:m].T
    found = np.linalg.qr(M[:, :m])[0]
    assert np.linalg.svd(axes.T @ found)[1].min() > 0.999


def test_derived_parts_are_those_of_the_loadings():
    _, member, _ = start(np.random.default_rng(4))
    member.C[:], member.K_inv[:] = 0.0, 0.0
    member.K[0, 1] = member.K[1, 0] = 0.5
    derive(member, np.empty(p))
    np.testing.assert_allclose(member.C, member.B @ member.B.T, rtol=1e-12)
    np.testing.assert_allclose(member.K_inv @ member.K, np.eye(p), atol=1e-12)
