"""Merging: the laws, the exact cases, and the refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from everlearn.errors import InputError, MergeError
from everlearn.gaussian import merge as merging
from everlearn.gaussian.gaussian import Gaussian, kl
from everlearn.gaussian.merge import LowRank

seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 5)


def random_stack(rng, K, D, diagonal=False):
    A = rng.normal(size=(K, D, D + 1))
    S = A @ A.transpose(0, 2, 1) + 0.01 * np.eye(D)
    return rng.normal(0, 3, (K, D)), np.einsum("kii->ki", S).copy() if diagonal else S


def random_low_rank(rng, D, r):
    return LowRank(rng.normal(0, 2, D), rng.normal(size=(D, r)), rng.gamma(2.0, size=D) + 0.1)


def dense(model):
    return model.factor @ model.factor.T + np.diag(model.noise)


def close(a, b, rtol=1e-8):
    np.testing.assert_allclose(a.mean, b.mean, rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=rtol, atol=1e-8)


# -- Gaussian posteriors ----------------------------------------------------------------------------


@given(seeds, st.integers(1, 4), dimensions)
def test_rules_are_their_formulas(seed, K, D):
    rng = np.random.default_rng(seed)
    means, S = random_stack(rng, K, D)
    weights = rng.gamma(1.0, size=K) + 0.01
    a = weights / weights.sum()
    P = np.linalg.inv(S)
    mode = np.linalg.inv(np.einsum("k,kij->ij", a, P))
    close(merging.mean_imm(weights, means, S), Gaussian(*naive.moment_match(weights, means, S)))
    close(merging.mode_imm(weights, means, S), Gaussian(mode @ np.einsum("k,kij,kj->i", a, P, means), mode), 1e-6)
    prior = Gaussian(rng.normal(size=D), 100 * np.eye(D) + S.sum(axis=0))
    P0 = np.linalg.inv(prior.covariance)
    total = np.linalg.inv(P0 + (P - P0).sum(axis=0))
    mean = total @ (P0 @ prior.mean + sum(P[k] @ means[k] - P0 @ prior.mean for k in range(K)))
    close(merging.bayes(means, S, prior), Gaussian(mean, total), 1e-6)


@given(seeds, st.integers(1, 4), dimensions)
def test_diagonal_is_full_with_a_diagonal_matrix(seed, K, D):
    rng = np.random.default_rng(seed)
    means, v = random_stack(rng, K, D, diagonal=True)
    weights, S = rng.gamma(1.0, size=K) + 0.01, v[:, :, None] * np.eye(D)
    prior = Gaussian(rng.normal(size=D), 2 * K * v.max(axis=0))
    wide = Gaussian(prior.mean, np.diag(prior.covariance))
    for small, large in (
        (merging.mode_imm(weights, means, v), merging.mode_imm(weights, means, S)),
        (merging.bayes(means, v, prior), merging.bayes(means, S, wide)),
    ):
        close(Gaussian(small.mean, np.diag(small.covariance)), large)
    small = merging.mean_imm(weights, means, v)
    np.testing.assert_allclose(small.covariance, np.diagonal(merging.mean_imm(weights, means, S).covariance))


def joined(rule, weights, means, S):
    g = rule(weights, means, S)
    return np.sum(weights), g.mean, g.covariance


@pytest.mark.parametrize("rule", [merging.mean_imm, merging.mode_imm])
@given(seeds, dimensions, st.booleans())
def test_pools_are_commutative_and_associative(rule, seed, D, diagonal):
    rng = np.random.default_rng(seed)
    means, S = random_stack(rng, 3, D, diagonal)
    w = rng.gamma(1.0, size=3) + 0.05
    kept = w.copy(), means.copy(), S.copy()
    whole = rule(w, means, S)
    close(rule(w[[2, 0, 1]], means[[2, 0, 1]], S[[2, 0, 1]]), whole)
    two = joined(rule, w[:2], means[:2], S[:2])
    stepwise = (np.stack([a, b[2]]) for a, b in zip(two, (w, means, S), strict=True))
    close(rule(*stepwise), whole)
    for a, b in zip(kept, (w, means, S), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rule", [merging.mean_imm, merging.mode_imm])
@pytest.mark.parametrize("diagonal", [False, True])
def test_a_pool_with_itself_or_with_nothing_is_itself(rule, diagonal):
    means, S = random_stack(np.random.default_rng(0), 2, 3, diagonal)
    alone = Gaussian(means[0], S[0])
    close(rule(np.array([0.3, 0.7]), means[[0, 0]], S[[0, 0]]), alone)
    close(rule(np.array([1.0, 0.0]), means, S), alone)


@given(seeds, dimensions)
def test_mean_imm_minimises_the_summed_divergence(seed, D):
    rng = np.random.default_rng(seed)
    means, S = random_stack(rng, 3, D)
    a = rng.dirichlet(np.ones(3))
    f = Gaussian(means, S)
    best, pool = merging.mean_imm(a, means, S), merging.mode_imm(a, means, S)
    assert a @ kl(f, best) <= a @ kl(f, pool) + 1e-9
    assert a @ kl(pool, f) <= a @ kl(best, f) + 1e-9


@given(seeds, dimensions, st.booleans())
def test_bayes_of_halves_is_the_posterior_of_the_whole(seed, D, diagonal):
    """Conjugate inference of a mean under known noise, from two halves and from all."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(9, D)) + rng.normal(0, 3, D)
    prior = Gaussian(rng.normal(size=D), 4.0 * (np.ones(D) if diagonal else np.eye(D)))

    def posterior(rows):
        variance = 1 / (1 / 4.0 + len(rows))
        mean = variance * (prior.mean / 4.0 + rows.sum(axis=0))
        return mean, variance * (np.ones(D) if diagonal else np.eye(D))

    halves = [posterior(X[:4]), posterior(X[4:])]
    merged = merging.bayes(np.stack([m for m, _ in halves]), np.stack([S for _, S in halves]), prior)
    close(merged, Gaussian(*posterior(X)), 1e-10)
    untouched = merging.bayes(np.stack([halves[0][0], prior.mean]), np.stack([halves[0][1], prior.covariance]), prior)
    close(untouched, Gaussian(*halves[0]), 1e-10)


@pytest.mark.parametrize("diagonal", [False, True])
def test_bayes_refuses_what_the_prior_cannot_have_led_to(diagonal):
    wide = np.full((3, 2), 1.5) if diagonal else np.stack([1.5 * np.eye(2)] * 3)
    prior = Gaussian(np.zeros(2), np.ones(2) if diagonal else np.eye(2))
    with pytest.raises(MergeError, match="not positive definite"):
        merging.bayes(np.zeros((3, 2)), wide, prior)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_weights_that_are_no_shares_are_refused(weights):
    means, S = random_stack(np.random.default_rng(1), 2, 2)
    for rule in (merging.mean_imm, merging.mode_imm):
        with pytest.raises(InputError, match="weights"):
            rule(np.array(weights), means, S)


# -- low rank plus diagonal -------------------------------------------------------------------------


@given(seeds, st.integers(2, 7), st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_low_rank_is_full_without_the_full_matrix(seed, D, ranks):
    rng = np.random.default_rng(seed)
    models = [random_low_rank(rng, D, r) for r in ranks]
    weights = rng.gamma(1.0, size=len(models)) + 0.05
    means, S = np.stack([m.mean for m in models]), np.stack([dense(m) for m in models])
    for low, full in (
        (merging.mean_imm_low_rank(weights, models), merging.mean_imm(weights, means, S)),
        (merging.mode_imm_low_rank(weights, models), merging.mode_imm(weights, means, S)),
    ):
        close(Gaussian(low.mean, dense(low)), full, 1e-7)


# -- components -------------------------------------------------------------------------------------


def learned(X, weights, initial_variance):
    """One component after one pass, by the exact sequential rule."""
    n, mean, S = weights[0], X[0].copy(), np.diag(initial_variance) / weights[0]
    for x, p in zip(X[1:], weights[1:], strict=True):
        n += p
        w, e = p / n, x - mean
        S = (1 - w) * S + w * (1 - w) * np.outer(e, e)
        mean = mean + w * e
    return n, mean, S


@given(seeds, dimensions, st.integers(1, 4), st.booleans())
def test_merged_parts_are_one_pass_over_all(seed, D, parts, diagonal):
    rng = np.random.default_rng(seed)
    X, p = rng.normal(5, 2, (20, D)), rng.uniform(0.1, 1, 20)
    initial = rng.gamma(1.0, size=D) + 0.01
    cuts = np.sort(rng.choice(np.arange(1, 20), parts - 1, replace=False))
    pieces = [learned(x, w, initial) for x, w in zip(np.split(X, cuts), np.split(p, cuts), strict=True)]
    n, means, S = (np.array(values) for values in zip(*pieces, strict=True))
    total, mean, whole = learned(X, p, initial)
    if diagonal:
        S, whole = np.einsum("kii->ki", S).copy(), np.diagonal(whole)
    matched = merging.mean_imm(n, means, S)
    labels = np.zeros(parts, dtype=np.intp)
    once = merging.prior_counted_once(
        n.sum(keepdims=True), matched.covariance[None], np.tile(initial, (parts, 1)), labels
    )
    assert n.sum() == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(matched.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(once[0], whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", ["full", "diagonal"])
def test_priors_that_are_not_there_are_not_taken_off(shape):
    """Two components of ten samples that hold less than one prior between them: lowering would cost definiteness."""
    S = 0.05 * (np.eye(2) if shape == "full" else np.ones(2))
    priors = np.ones((2, 2))
    once = merging.prior_counted_once(np.array([20.0]), S[None], priors, np.zeros(2, dtype=np.intp))
    np.testing.assert_array_equal(once[0], S)


# -- axes -------------------------------------------------------------------------------------------


@given(seeds, st.integers(1, 4))
def test_procrustes_undoes_a_rotation(seed, q):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(8, q))
    Q, _ = np.linalg.qr(rng.normal(size=(q, q)))
    R = merging.procrustes(W @ Q, W)
    np.testing.assert_allclose(R.T @ R, np.eye(q), atol=1e-12)
    np.testing.assert_allclose(W @ Q @ R, W, atol=1e-9)


def test_procrustes_is_the_nearest_rotation():
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(8, 3)), rng.normal(size=(8, 3))
    best = np.linalg.norm(A @ merging.procrustes(A, B) - B)
    others = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(200)]
    assert all(np.linalg.norm(A @ Q - B) >= best for Q in others)
