"""Costs and bounds of merging two components."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.gaussian.kernels import reduction
from everlearn.gaussian.kernels.reduction import Components

seeds = st.integers(0, 2**32 - 1)


def random_pair(rng, D):
    """Two components that differ in weight, place, size and shape by random amounts."""
    A = rng.normal(size=(2, D, D + 1)) * np.exp(rng.normal(0, rng.uniform(0, 2), (2, D, 1)))
    S = A @ A.transpose(0, 2, 1) + 1e-6 * np.eye(D)
    return np.exp(rng.normal(0, 2, 2)), rng.normal(0, np.exp(rng.normal(0, 2)), (2, D)), S


@given(seeds, st.integers(1, 6))
def test_cost_is_runnalls_and_the_bound_is_below_it(seed, D):
    weights, means, S = random_pair(np.random.default_rng(seed), D)
    log_dets, L = np.linalg.slogdet(S)[1], np.empty((D, D))
    cost = reduction.pair_cost(Components(weights, means, S, log_dets), 0, 1, L)
    expected = naive.runnalls_cost(weights, means, S, 0, 1)
    np.testing.assert_allclose(cost, expected, rtol=1e-7, atol=1e-8 * weights.sum())
    for i, j in ((0, 1), (1, 0)) if D > 1 else ():
        bound = reduction.pair_bound(Components(weights, means, S, log_dets), i, j, np.linalg.cholesky(S[i]))
        assert 0 <= bound <= cost + 1e-9 * weights.sum() * max(1, cost)


def test_bound_is_tight_for_components_of_one_shape():
    rng = np.random.default_rng(0)
    weights, means, S = random_pair(rng, 4)
    S[1] = S[0]
    log_dets, L = np.linalg.slogdet(S)[1], np.empty((4, 4))
    bound = reduction.pair_bound(Components(weights, means, S, log_dets), 0, 1, np.linalg.cholesky(S[0]))
    np.testing.assert_allclose(bound, reduction.pair_cost(Components(weights, means, S, log_dets), 0, 1, L), rtol=1e-6)


@given(seeds, st.integers(1, 5))
def test_diagonal_cost_is_that_of_the_variances(seed, D):
    weights, means, S = random_pair(np.random.default_rng(seed), D)
    variances = np.einsum("kii->ki", S)[:, None, :].copy()
    log_dets = np.log(variances).sum(axis=(1, 2))
    cost = reduction.pair_cost(Components(weights, means, variances, log_dets), 0, 1, np.empty((D, D)))
    expected = sum(naive.runnalls_cost(weights, means[:, [d]], S[:, d : d + 1, d : d + 1], 0, 1) for d in range(D))
    np.testing.assert_allclose(cost, expected, rtol=1e-7, atol=1e-8 * weights.sum())


@given(seeds, st.integers(1, 5))
def test_merged_pair_is_the_moment_match(seed, D):
    weights, means, S = random_pair(np.random.default_rng(seed), D)
    mean, covariance = naive.moment_match(weights, means, S)
    w, m, C = weights.copy(), means.copy(), S.copy()
    L = np.zeros((D, D))
    log_det = reduction.merge_pair(Components(w, m, C, np.linalg.slogdet(C)[1]), 0, 1, L)
    assert w[0] == weights.sum()
    np.testing.assert_allclose(m[0], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(C[0], covariance, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(covariance)[1], rtol=1e-7, atol=1e-7)
    if D > 1:
        np.testing.assert_allclose(np.tril(L) @ np.tril(L).T, covariance, rtol=1e-8, atol=1e-8)


def test_overlap_is_a_gaussian_density():
    rng = np.random.default_rng(1)
    _, means, S = random_pair(rng, 3)
    out = np.empty((2, 2))
    reduction.overlaps(means, S, means, S, out)
    for i in range(2):
        for j in range(2):
            expected = naive.log_normal(means[i], means[j], S[i] + S[j])
            np.testing.assert_allclose(-0.5 * (out[i, j] + 3 * np.log(2 * np.pi)), expected, rtol=1e-8)


def test_a_pivot_lost_to_rounding_is_raised():
    L = np.ones((3, 3))
    assert np.isfinite(reduction.factorise(L))
    np.testing.assert_allclose(np.tril(L) @ np.tril(L).T, np.ones((3, 3)), atol=1e-14)
