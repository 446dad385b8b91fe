"""Gaussian mixtures: density, gaps, conditionals, samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

import naive
from everlearn.errors import InputError
from everlearn.gaussian import conditional, mixture
from everlearn.gaussian.mixture import Mixture

seeds = st.integers(0, 2**32 - 1)


def random_mixture(rng, K=4, D=3, diagonal=False):
    A = rng.normal(size=(K, D, D + 2))
    S = A @ A.transpose(0, 2, 1) / D + 1e-3 * np.eye(D)
    return Mixture(
        rng.dirichlet(np.ones(K)), rng.normal(0, 3, (K, D)), np.einsum("kii->ki", S).copy() if diagonal else S
    )


def full(m):
    return m._replace(covariances=m.covariances[:, :, None] * np.eye(m.means.shape[1])) if m.is_diagonal else m


def with_gaps(rng, X, share=0.4):
    X = X.copy()
    X[rng.random(X.shape) < share] = np.nan
    return X


def scikit_learns(m):
    model = GaussianMixture(len(m.weights), covariance_type="diag" if m.is_diagonal else "full")
    model.weights_, model.means_, model.covariances_ = m
    S = m.covariances
    model.precisions_cholesky_ = (
        1 / np.sqrt(S) if m.is_diagonal else np.linalg.inv(np.linalg.cholesky(S)).transpose(0, 2, 1)
    )
    return model


@given(seeds, st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_density_and_responsibilities_are_scikit_learns(seed, K, D, diagonal):
    rng = np.random.default_rng(seed)
    m, X = random_mixture(rng, K, D, diagonal), rng.normal(0, 4, (9, D))
    model = scikit_learns(m)
    np.testing.assert_allclose(mixture.log_density(X, m), model.score_samples(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mixture.responsibilities(X, m), model.predict_proba(X), rtol=1e-6, atol=1e-9)


@given(seeds, st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_gaps_are_integrated_out(seed, K, D, diagonal):
    rng = np.random.default_rng(seed)
    m = random_mixture(rng, K, D, diagonal)
    X = with_gaps(rng, rng.normal(0, 3, (12, D)))
    f = full(m)
    np.testing.assert_allclose(mixture.log_joint(X, m), naive.log_joint_with_gaps(X, *f), rtol=1e-8, atol=1e-8)


@given(seeds, st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_imputation(seed, K, D, diagonal):
    rng = np.random.default_rng(seed)
    m = random_mixture(rng, K, D, diagonal)
    X = with_gaps(rng, rng.normal(0, 3, (10, D)))
    kept = X.copy()
    found = conditional.impute(X, m)
    np.testing.assert_array_equal(X, kept)
    for x, mean, std in zip(X, found.mean, found.std, strict=True):
        gaps = np.isnan(x)
        np.testing.assert_array_equal(mean[~gaps], x[~gaps])
        assert not std[~gaps].any()
        expected = naive.impute(x, *full(m))
        np.testing.assert_allclose(mean[gaps], expected[0], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(std[gaps], expected[1], rtol=1e-4, atol=1e-6)


def test_a_row_with_nothing_observed_takes_the_mixtures_moments():
    m = random_mixture(np.random.default_rng(0))
    empty = np.full((2, 3), np.nan)
    overall = mixture.moments(m)
    np.testing.assert_allclose(conditional.impute(empty, m).mean, [overall.mean] * 2, rtol=1e-12)
    np.testing.assert_allclose(
        conditional.impute(empty, m).std, [np.sqrt(np.diagonal(overall.covariance))] * 2, rtol=1e-12
    )
    np.testing.assert_allclose(mixture.log_density(empty, m), 0, atol=1e-12)
    np.testing.assert_allclose(mixture.responsibilities(empty, m), [m.weights] * 2, rtol=1e-12)


@given(seeds, st.booleans(), st.data())
def test_joint_is_marginal_times_conditional(seed, diagonal, data):
    rng = np.random.default_rng(seed)
    m, X = random_mixture(rng, 3, 4, diagonal), rng.normal(0, 2, (5, 4))
    order = list(data.draw(st.permutations(range(4))))
    known = order[: data.draw(st.integers(1, 3))]
    target = [c for c in order if c not in known]
    c = conditional.condition(m, known, X[:, known], target)
    total = mixture.log_density(X[:, known], mixture.marginal(m, known)) + conditional.log_density(c, X[:, target])
    np.testing.assert_allclose(total, mixture.log_density(X, m), rtol=1e-7, atol=1e-7)


@given(seeds, st.booleans())
def test_conditioning_on_values_with_gaps_is_conditioning_on_the_rest(seed, diagonal):
    rng = np.random.default_rng(seed)
    m, X = random_mixture(rng, 3, 5, diagonal), with_gaps(rng, rng.normal(0, 2, (8, 5)))
    X[0, :3] = np.nan
    c = conditional.condition(m, [0, 1, 2], X[:, :3], [4, 3])
    Y = rng.normal(0, 2, (8, 2))
    for r in range(8):
        seen = np.flatnonzero(~np.isnan(X[r, :3]))
        one = conditional.condition(m, seen, X[r : r + 1, seen], [4, 3])
        np.testing.assert_allclose(conditional.mean(c)[r], conditional.mean(one)[0], rtol=1e-9)
        np.testing.assert_allclose(conditional.covariance(c)[r], conditional.covariance(one)[0], rtol=1e-8)
        np.testing.assert_allclose(
            conditional.log_density(c, Y)[r], conditional.log_density(one, Y[r : r + 1])[0], rtol=1e-8
        )


def test_conditional_mean_is_that_of_gmr():
    gmr = pytest.importorskip("gmr", reason="gmr is not installed: pip install 'everlearn[test]'")
    rng = np.random.default_rng(1)
    m, X = random_mixture(rng, 5, 4), rng.normal(0, 3, (20, 2))
    peer = gmr.GMM(n_components=5, priors=m.weights, means=m.means, covariances=m.covariances)
    ours = conditional.mean(conditional.condition(m, [1, 3], X))
    np.testing.assert_allclose(ours, peer.predict(np.array([1, 3]), X), rtol=1e-8, atol=1e-8)


def test_columns_may_not_be_given_and_asked_for():
    m = random_mixture(np.random.default_rng(2))
    with pytest.raises(InputError, match="must not share or repeat"):
        conditional.condition(m, [0, 1], np.zeros((1, 2)), [1, 2])
    with pytest.raises(InputError, match="must not share or repeat"):
        conditional.condition(m, [0, 0], np.zeros((1, 2)), [1])


@given(seeds, st.booleans())
def test_order_of_columns_does_not_matter(seed, diagonal):
    rng = np.random.default_rng(seed)
    m, X = random_mixture(rng, 3, 4, diagonal), with_gaps(rng, rng.normal(size=(6, 4)))
    order = rng.permutation(4)
    moved = mixture.marginal(m, order)
    np.testing.assert_allclose(mixture.log_joint(X[:, order], moved), mixture.log_joint(X, m), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        conditional.impute(X[:, order], moved).mean, conditional.impute(X, m).mean[:, order], rtol=1e-8
    )


@given(seeds, st.booleans())
def test_columns_of_any_scale(seed, diagonal):
    rng = np.random.default_rng(seed)
    m, X = random_mixture(rng, 3, 4, diagonal), with_gaps(rng, rng.normal(0, 3, (6, 4)), 0.2)
    scale = np.ldexp(1.0, rng.integers(-500, 500, 4))
    wide = Mixture(m.weights, m.means * scale, m.covariances * scale * (scale if diagonal else scale[:, None]))
    seen = np.where(np.isnan(X), 0, np.log(scale)).sum(axis=1)
    np.testing.assert_allclose(mixture.log_density(X * scale, wide) + seen, mixture.log_density(X, m), rtol=1e-6)
    ours, plain = conditional.impute(X * scale, wide), conditional.impute(X, m)
    np.testing.assert_allclose(ours.mean / scale, plain.mean, rtol=1e-9)
    np.testing.assert_allclose(ours.std / scale, plain.std, rtol=1e-9)


def test_rows_in_many_chunks_and_a_kept_whitening(monkeypatch):
    rng = np.random.default_rng(3)
    m, X = random_mixture(rng, 6, 5), rng.normal(size=(50, 5))
    X[::7, 2] = np.nan
    whole = mixture.log_joint(X, m), conditional.impute(X, m).mean, conditional.condition(m, [0, 1], X[:, :2]).means
    for module in (mixture, conditional):
        monkeypatch.setattr(module, "CHUNK", 60)
    monkeypatch.setattr(mixture, "ROWS", 7)
    parts = mixture.log_joint(X, m), conditional.impute(X, m).mean, conditional.condition(m, [0, 1], X[:, :2]).means
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    np.testing.assert_array_equal(mixture.log_joint(X, m, mixture.whitenings(m)), parts[0])


def test_a_row_out_of_reach_falls_back_to_the_weights():
    m = Mixture(np.array([0.3, 0.7]), np.zeros((2, 1)), np.full((2, 1, 1), 1e-300))
    far = np.array([[1e150]])
    assert mixture.log_density(far, m)[0] == -np.inf
    np.testing.assert_array_equal(mixture.responsibilities(far, m), [[0.3, 0.7]])


def test_a_component_without_weight_has_no_share():
    m = random_mixture(np.random.default_rng(4))._replace(weights=np.array([0.5, 0.0, 0.5, 0.0]))
    X = np.random.default_rng(5).normal(size=(5, 3))
    assert not mixture.responsibilities(X, m)[:, [1, 3]].any()
    assert np.isfinite(mixture.log_density(X, m)).all()


@pytest.mark.parametrize("diagonal", [False, True])
def test_samples(diagonal):
    rng = np.random.default_rng(6)
    m = random_mixture(rng, 3, 2, diagonal)
    X, labels = mixture.sample(m, 200_000, rng)
    np.testing.assert_allclose(np.bincount(labels) / len(labels), m.weights, atol=0.005)
    for k in range(3):
        S = np.cov(X[labels == k].T)
        np.testing.assert_allclose(X[labels == k].mean(axis=0), m.means[k], atol=0.05)
        np.testing.assert_allclose(S, full(m).covariances[k], atol=0.1)


def test_moments_are_those_of_the_samples():
    rng = np.random.default_rng(7)
    m = random_mixture(rng, 3, 2)
    X, _ = mixture.sample(m, 200_000, rng)
    overall = mixture.moments(m)
    np.testing.assert_allclose(X.mean(axis=0), overall.mean, atol=0.05)
    np.testing.assert_allclose(np.cov(X.T), overall.covariance, atol=0.2)
    np.testing.assert_allclose(
        mixture.moments(m._replace(covariances=np.einsum("kii->ki", m.covariances))).covariance,
        np.diagonal(overall.covariance),
        rtol=1e-12,
    )


def test_patterns_cover_every_row_once():
    rng = np.random.default_rng(8)
    X = with_gaps(rng, rng.normal(size=(40, 11)), 0.15)
    seen = []
    for observed, rows in mixture.patterns(X):
        mask = np.zeros(11, dtype=bool)
        mask[observed] = True
        np.testing.assert_array_equal(~np.isnan(X[rows]), np.tile(mask, (len(rows), 1)))
        seen += rows.tolist()
    assert sorted(seen) == list(range(40))
    assert [len(rows) for _, rows in mixture.patterns(np.zeros((5, 3)))] == [5]
    ((observed, rows),) = mixture.patterns(np.empty((5, 0)))
    assert len(observed) == 0
    assert rows.tolist() == list(range(5))
