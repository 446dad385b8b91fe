"""Online EM for PPCA against its twin, and the laws that any stream must keep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

import naive
from everlearn.ppca import ask, learn
from everlearn.ppca.schedules import PowerSchedule
from everlearn.ppca.state import PPCA, factor, init

GAIN = PowerSchedule(0.9, 0.9)


def make_rows(seed, n=200, d=5, q=2, gaps=0.0, mean=3.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, d)) + 0.3 * rng.normal(size=(n, d)) + mean
    X[rng.random(X.shape) < gaps] = np.nan
    return X


def start(X, q=2, n=30):
    return init(learn.maximum_likelihood(X[:n], q), n)


def run(state, X, gain=GAIN, mode="robust"):
    return learn.learn(state, X, learn.settings(gain, None, mode=mode))[0]


def assert_same(state, twin, rtol=1e-9):
    for a, b in (
        (state.m, twin.m),
        (state.S1, twin.S1),
        (state.S2, twin.S2),
        (state.mu, twin.mu),
        (state.W, twin.W),
        (state.S0[0], twin.S0),
        (state.sigma2[0], twin.sigma2),
    ):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)
    assert state.k[0] == twin.k


def assert_same_bits(a, b):
    for name in a._fields:
        if name != "reference":
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("mode", ["robust", "plain"])
@given(
    seed=st.integers(0, 10**6), gaps=st.sampled_from([0.0, 0.2, 0.7]), size=st.sampled_from([(5, 2), (3, 1), (4, 3)])
)
def test_equals_its_twin(mode, seed, gaps, size):
    d, q = size
    X = make_rows(seed, 60, d, q, gaps)
    model = learn.maximum_likelihood(make_rows(seed, 30, d, q) + 0.1, q)
    twin = naive.OnlineEM(*model, 30, GAIN, mode=mode)
    for x in X:
        twin.learn(x)
    assert_same(run(init(model, 30), X, mode=mode), twin)


@given(seed=st.integers(0, 10**6), gaps=st.sampled_from([0.0, 0.3]))
def test_the_printed_statistics_equal_their_twin(seed, gaps):
    X = make_rows(seed, 50, gaps=gaps)
    state = learn.init_paper(5, 2, np.random.default_rng(seed))
    twin = naive.OnlineEM(state.mu.copy(), state.W.copy(), 1.0, 0, GAIN, mode="paper", zero=True)
    for x in X:
        twin.learn(x)
    assert_same(run(state, X, mode="paper"), twin, rtol=1e-7)


@given(cuts=st.lists(st.integers(0, 150), max_size=4), gaps=st.sampled_from([0.0, 0.4]))
def test_any_split_gives_the_same_bits(cuts, gaps):
    X = make_rows(1, 150, gaps=gaps)
    whole, parts = start(make_rows(1)), start(make_rows(1))
    whole = run(whole, X)
    for part in np.split(X, sorted(cuts)):
        if len(part):
            parts = run(parts, part)
    assert_same_bits(whole, parts)


@given(seed=st.integers(0, 10**6), factor=st.sampled_from([0.01, 100.0]))
def test_the_unit_of_the_data_does_not_matter(seed, factor):
    X = make_rows(seed, 150, gaps=0.1)
    first = make_rows(seed, 40)
    a = run(start(first), X)
    b = run(start(first * factor), X * factor)
    np.testing.assert_allclose(b.mu, a.mu * factor, rtol=1e-9)
    np.testing.assert_allclose(b.W, a.W * factor, rtol=1e-7, atol=1e-9 * factor)
    assert b.sigma2[0] == pytest.approx(a.sigma2[0] * factor**2, rel=1e-8)


@given(seed=st.integers(0, 10**6))
def test_rotated_and_shifted_data_give_the_rotated_and_shifted_model(seed):
    rng = np.random.default_rng(seed)
    R = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    X, shift = make_rows(seed, 120), rng.normal(size=5)
    a, b = run(start(X), X), run(start(X @ R + shift), X @ R + shift)
    np.testing.assert_allclose(b.mu, a.mu @ R + shift, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ask.covariance(b.model), R.T @ ask.covariance(a.model) @ R, rtol=1e-7, atol=1e-7)


def test_with_all_rows_alike_it_comes_to_batch_maximum_likelihood():
    X = make_rows(3, 20_000)
    state = run(start(X), X[30:], PowerSchedule(1.0, 1.0))
    best = learn.maximum_likelihood(X, 2)
    gap = ask.log_density(factor(best), X).mean() - ask.log_density(state.model, X).mean()
    assert 0 <= gap < 2e-3
    np.testing.assert_allclose(state.mu, best.mu, atol=1e-9)


def test_a_mean_far_from_zero_does_not_count_as_variance():
    X = make_rows(4, 5000, mean=50.0)
    state = run(start(X), X[30:])
    assert np.sum(state.W**2) == pytest.approx(np.sum(learn.maximum_likelihood(X, 2).W ** 2), rel=0.1)


def test_a_row_with_nothing_observed_changes_nothing():
    X = make_rows(5)
    a, b = run(start(X), X), run(start(X), np.insert(X, [0, 7, 200], np.nan, axis=0))
    assert_same_bits(a, b)


def test_gaps_cost_little_when_the_columns_hang_together():
    X = make_rows(6, 8000, d=8)
    Y = X.copy()
    Y[np.random.default_rng(0).random(Y.shape) < 0.3] = np.nan
    state = run(start(X), Y[30:])
    best = learn.maximum_likelihood(X, 2)
    gap = ask.log_density(factor(best), X).mean() - ask.log_density(state.model, X).mean()
    assert gap < 0.05


def test_a_column_seen_for_the_first_time_brings_its_mean():
    X = make_rows(7, 400)
    first = X[:30].copy()
    first[:, 4] = np.nan
    model = learn.fit_rows(first, 2)
    state = init(model, 30, ~np.isnan(first).all(axis=0))
    X[:, 4] += 1000.0
    state = run(state, X[30:])
    assert state.mu[4] == pytest.approx(X[30:, 4].mean(), rel=1e-3)
    assert state.seen.all()


def test_collapsed_axes_are_restarted_when_the_data_vary_again():
    still = np.ones((200, 4))
    model = learn.fit_rows(still[:20], 2)
    assert np.all(model.W == 0)
    state = run(init(model, 20), still)
    rng = np.random.default_rng(0)
    moving = 1 + rng.normal(size=(4000, 2)) @ rng.normal(size=(2, 4)) * 3 + 0.1 * rng.normal(size=(4000, 4))
    state = run(state, moving, PowerSchedule(0.01, 0.0))
    axes = ask.axes(state.model).components
    true = ask.axes(learn.maximum_likelihood(moving, 2)).components
    assert np.linalg.svd(axes @ true.T)[1].min() > 0.99


def test_it_stays_positive_definite_for_a_million_rows():
    rng = np.random.default_rng(0)
    state = start(rng.normal(size=(50, 3)), 1)
    for scale in (1.0, 1e6, 1e-6, 0.0, 1.0):
        X = scale * rng.normal(size=(200_000, 3)) * [1.0, 1.0, 0.0]
        state = run(state, X, PowerSchedule(0.01, 0.0))
        C = ask.covariance(state.model)
        assert np.all(np.isfinite(C))
        assert np.linalg.eigvalsh(C)[0] > 0
        assert np.all(np.isfinite(ask.log_density(state.model, X[:5])))
    assert ask.covariance(state.model)[0, 0] == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize("size", [1e30, 1e60])
def test_a_wild_row_does_no_lasting_damage(size):
    X = make_rows(8, 3000)
    state = start(X)
    wild = np.vstack([X[:500], size * np.array([[1.0, -1.0, 1.0, 1.0, -1.0]])])
    state = run(state, wild, PowerSchedule(0.01, 0.0))
    assert np.all(np.isfinite(state.W))
    assert state.sigma2[0] > 0
    for _ in range(12):
        state = run(state, X, PowerSchedule(0.01, 0.0))
    best = ask.log_density(factor(learn.maximum_likelihood(X, 2)), X).mean()
    assert ask.log_density(state.model, X).mean() > best - 0.2


def test_em_from_rows_with_gaps_never_loses_likelihood():
    X = make_rows(9, 60, gaps=0.4)
    X = X[~np.isnan(X).all(axis=1)]
    model = learn.maximum_likelihood(np.where(np.isnan(X), np.nanmean(X, axis=0), X), 2)
    values = []
    for _ in range(30):
        values.append(ask.log_density(factor(model), X).sum())
        model = learn.em_step(model, X)
    assert np.all(np.diff(values) > -1e-9)
    assert values[-1] > values[0] + 1.0


def test_em_without_gaps_rests_at_the_closed_form():
    X = make_rows(10, 60)
    model = learn.maximum_likelihood(X, 2)
    after = learn.em_step(model, X)
    np.testing.assert_allclose(ask.covariance(after), ask.covariance(model), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(after.mu, model.mu, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
@pytest.mark.parametrize("gaps", [0.0, 0.5])
def test_a_few_rows_give_a_proper_model(n, gaps):
    X = make_rows(11, n, d=6, gaps=gaps)
    X[:, 0] = 1.0
    model = learn.fit_rows(X, 3)
    assert model.W.shape == (6, 3)
    assert model.sigma2 > 0
    assert np.all(np.isfinite(ask.log_density(factor(model), X)))


# -- maximum likelihood ----------------------------------------------------------------------------


def random_model(seed, d=6, q=2, scale=1.0):
    rng = np.random.default_rng(seed)
    return PPCA(scale * rng.normal(size=d), scale * rng.normal(size=(d, q)), scale**2 * rng.uniform(0.1, 1.0))


def rows_of(model, n, gaps=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = ask.sample(model, n, rng)
    X[rng.random(X.shape) < gaps] = np.nan
    return X


def test_closed_form_equals_scikit_learns_pca():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 7)) + 0.3 * rng.normal(size=(80, 7)) + 5.0
    model = learn.maximum_likelihood(X, 3)
    peer = PCA(3).fit(X)
    # scikit-learn divides by n - 1 where maximum likelihood divides by n.
    np.testing.assert_allclose(ask.covariance(model), peer.get_covariance() * 79 / 80, rtol=1e-10)
    axes = ask.axes(model)
    np.testing.assert_allclose(axes.components, peer.components_, atol=1e-10)
    np.testing.assert_allclose(axes.variances, peer.explained_variance_ * 79 / 80, rtol=1e-10)


@given(seed=st.integers(0, 10**6))
def test_nothing_near_the_closed_form_is_more_likely(seed):
    rng = np.random.default_rng(seed)
    X = rows_of(random_model(seed), 40, seed=seed)
    best = learn.maximum_likelihood(X, 2)
    top = ask.log_density(factor(best), X).sum()
    for _ in range(5):
        other = PPCA(
            best.mu + 0.01 * rng.normal(size=6),
            best.W + 0.01 * rng.normal(size=(6, 2)),
            best.sigma2 * np.exp(0.01 * rng.normal()),
        )
        assert ask.log_density(factor(other), X).sum() <= top + 1e-9


def test_as_many_axes_as_columns_leave_the_noise_floor():
    X = np.random.default_rng(1).normal(size=(50, 3))
    model = learn.maximum_likelihood(X, 3)
    assert 0 < model.sigma2 < 1e-5
    np.testing.assert_allclose(ask.covariance(model), np.cov(X.T, bias=True), atol=1e-5)
