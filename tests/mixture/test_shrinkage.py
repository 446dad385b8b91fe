"""Conditional answers with few rows a column: correlations are shrunk as far as rows that are left out ask for."""

import numpy as np
import pytest
from scipy.stats import norm

from everlearn import IncrementalGaussianMixture
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture import shrinkage
from everlearn.mixture.ask import scaled_mixture, whole_mixture
from everlearn.mixture.keep.reconsider import gathered
from everlearn.mixture.shrinkage import Learned, conditional_mixture, leave_one_out, shrunk


def correlated(n, D, seed, rank=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, rank)) @ np.random.default_rng(99).normal(size=(rank, D)) + rng.normal(size=(n, D))


def coverage(model, X):
    inside = []
    for column in range(X.shape[1]):
        _, (low, high) = model.predict_columns(X, target=column, interval=0.9)
        inside.append((low[:, 0] <= X[:, column]) & (X[:, column] <= high[:, 0]))
    return np.mean(inside)


def random_mixture(K, D, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(K, D, 2 * D))
    return Mixture(rng.dirichlet(np.ones(K)), rng.normal(size=(K, D)), A @ A.transpose(0, 2, 1) / D)


def test_variances_stay_and_conditional_ones_grow():
    mixture = random_mixture(3, 5)
    found = shrunk(mixture, 0.4)
    variances = np.diagonal(mixture.covariances, axis1=1, axis2=2)
    np.testing.assert_array_equal(np.diagonal(found.covariances, axis1=1, axis2=2), variances)
    for before, after in zip(mixture.covariances, found.covariances, strict=True):
        given = 1.0 / np.diag(np.linalg.inv(before))
        noisy = before + 0.4 * np.diag(given)
        T = np.sqrt(np.diag(before) / np.diag(noisy))
        np.testing.assert_allclose(after, noisy * np.outer(T, T), rtol=1e-12)
        assert (1.0 / np.diag(np.linalg.inv(after)) > given).all()


def test_shrinking_commutes_with_units():
    mixture, units = random_mixture(2, 4), np.array([1e-6, 1.0, 30.0, 1e8])
    square = units * units[:, None]
    other = Mixture(mixture.weights, mixture.means * units, mixture.covariances * square)
    np.testing.assert_allclose(shrunk(other, 0.2).covariances, shrunk(mixture, 0.2).covariances * square, rtol=1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_a_row_is_left_out_as_if_it_had_not_been_learned(noise):
    """One component by hand: mean and scatter without the row, the same noise and factors, then a regression."""
    X, tau = correlated(40, 4, 0), 1.5
    N, D = X.shape
    mean = X.mean(axis=0)
    S = (X - mean).T @ (X - mean) + tau * np.eye(D)
    mixture = Mixture(np.ones(1), mean[None], (S * (1 + 1 / N) / (tau + N - 1))[None])
    # A common shape of so many rows that one of them makes nothing of it.
    found = leave_one_out(X, mixture, Learned(np.array([40.0]), np.array([40.0]), tau, 1e18), noise)
    given = 1.0 / np.diag(np.linalg.inv(mixture.covariances[0]))
    T = np.sqrt(np.diag(mixture.covariances[0]) / (np.diag(mixture.covariances[0]) + noise * given))
    extra = noise * np.diag(given) / ((1 + 1 / N) / (tau + N - 1))
    for t in (0, 7, 39):
        rest = np.delete(X, t, axis=0)
        e = X[t] - rest.mean(axis=0)
        B = (rest - rest.mean(axis=0)).T @ (rest - rest.mean(axis=0)) + tau * np.eye(D)
        Sigma = (B + extra) * np.outer(T, T) * (1 + 1 / (N - 1)) / (tau + N - 2)
        for j in range(D):
            others = [i for i in range(D) if i != j]
            gain = np.linalg.solve(Sigma[np.ix_(others, others)], Sigma[others, j])
            law = norm(gain @ e[others], np.sqrt(Sigma[j, j] - gain @ Sigma[others, j]))
            assert found.log_density[t, j] == pytest.approx(law.logpdf(e[j]), rel=1e-7)
            assert found.cdf[t, j] == pytest.approx(law.cdf(e[j]), rel=1e-7)


def test_components_are_mixed_by_what_the_other_columns_say():
    """Far components: the values have the density of their own one."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(300, 3)), rng.normal(size=(300, 3)) + 40.0])
    model = IncrementalGaussianMixture().fit(X)
    look = model._look()
    mixture, _ = scaled_mixture(look)
    mass, counts, _, _ = gathered(look.model.components)
    learned = Learned(mass, counts, look.model.shape.tau, 600.0)
    frame = look.frame
    Z = X * frame.inverse
    found = leave_one_out(Z, mixture, learned, 0.0)
    expected = norm().logpdf(np.where(X > 20.0, X - 40.0, X)) - np.log(frame.inverse)
    assert np.mean(found.log_density - expected) == pytest.approx(0.0, abs=0.02)
    assert np.mean(np.abs(found.cdf - 0.5) <= 0.45) == pytest.approx(0.9, abs=0.02)


# The correlations of a single component are shrunk already, as rows left out ask for.
@pytest.mark.parametrize(
    ("D", "n", "K", "gain"), [(20, 130, 1, 0.0), (30, 250, 1, 0.0), (20, 130, 2, 0.05), (30, 250, 2, 0.05)]
)
def test_intervals_hold_what_they_promise_with_few_rows_a_column(D, n, K, gain, monkeypatch):
    X, test = correlated(n, D, 1), correlated(600, D, 2)
    model = IncrementalGaussianMixture(K).fit(X)
    held = coverage(model, test)
    assert 0.87 <= held <= 0.93
    error = np.sqrt(np.mean((model.predict_columns(test, target=0)[:, 0] - test[:, 0]) ** 2))
    monkeypatch.setattr(shrinkage, "NOISES", ())
    plain = IncrementalGaussianMixture(K).fit(X)
    assert coverage(plain, test) < held - gain
    assert error < np.sqrt(np.mean((plain.predict_columns(test, target=0)[:, 0] - test[:, 0]) ** 2))


def test_with_many_rows_answers_are_those_of_the_density():
    model = IncrementalGaussianMixture().fit(correlated(3000, 4, 3))
    X = correlated(50, 4, 4)
    marginal = X.copy()
    marginal[:, 2] = np.nan
    expected = model.score_samples(X) - model.score_samples(marginal)
    np.testing.assert_allclose(model.condition(X, target=2).log_density(X[:, 2]), expected, rtol=1e-6)


def test_noise_of_a_thousandth_is_found():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4000, 2))
    X = np.column_stack([x, x @ [1.0, -2.0] + 1e-3 * np.sqrt(5.0) * rng.normal(size=4000)])
    model = IncrementalGaussianMixture().fit(X)
    _, std = model.predict_columns(X[:20], target=2, return_std=True)
    np.testing.assert_allclose(std, 1e-3 * np.sqrt(5.0), rtol=0.1)


def test_marginal_answers_stay():
    """Where nothing is known, or a density is asked for, nothing is shrunk."""
    model = IncrementalGaussianMixture().fit(correlated(130, 20, 1))
    look = model._look()
    conditional_mixture(look)
    assert look.shrinkage > 0.0
    nothing = np.full((1, 20), np.nan)
    whole = whole_mixture(look)
    spread = np.diagonal(whole.covariances, axis1=1, axis2=2)
    mean = whole.weights @ whole.means
    expected = np.sqrt(whole.weights @ (spread + (whole.means - mean) ** 2))
    np.testing.assert_allclose(model.condition(nothing, target=[3]).std()[0, 0], expected[3], rtol=1e-9)


@pytest.mark.parametrize("parameters", [{"reservoir": 0}, {"covariance_type": "diag"}])
def test_nothing_is_shrunk_without_rows_or_correlations(parameters):
    model = IncrementalGaussianMixture(**parameters).fit(correlated(2500, 3, 6))
    look = model._look()
    conditional_mixture(look)
    assert look.shrinkage == 0.0


def test_rows_with_gaps_are_not_judged():
    X = correlated(130, 20, 1)
    X[:, 0] = np.where(np.arange(130) < 90, np.nan, X[:, 0])
    look = IncrementalGaussianMixture().fit(X)._look()
    conditional_mixture(look)
    assert look.shrinkage == 0.0
