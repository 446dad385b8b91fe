"""p-values are uniform on rows of the same law, whatever it is, and go on beyond the sample."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from everlearn.gaussian.mixture import Mixture, log_density, responsibilities
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.p_values import stand_ins


def gaussian(rng, n):
    return rng.normal(size=(n, 3))


def overlapping(rng, n):
    return rng.normal(size=(n, 2)) + 1.5 * rng.integers(3, size=(n, 1))


def apart(rng, n):
    return rng.normal(size=(n, 2)) * [1.0, 0.3] + [9.0, 0.0] * rng.integers(2, size=(n, 1))


def heavy(rng, n):
    return rng.standard_t(3, size=(n, 2))


def ring(rng, n):
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(n, 2))


@pytest.mark.parametrize("law", [gaussian, overlapping, apart, heavy, ring])
@pytest.mark.parametrize("n", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_uniform_on_rows_of_the_same_law(law, n):
    rng = np.random.default_rng(0)
    model = IncrementalGaussianMixture().fit(law(rng, n))
    p = model.p_value(law(rng, 2000))
    # Kolmogorov's distance between the laws of 400 rows and of 2,000 exceeds 0.1 once in 500 times.
    assert kstest(p, "uniform").statistic < (0.1 if n == 400 else 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [[0], [1], [0, 1]])
def test_uniform_for_every_pattern_of_gaps(columns):
    rng = np.random.default_rng(1)
    model = IncrementalGaussianMixture().fit(overlapping(rng, 4000))
    X = np.full((20_000, 2), np.nan)
    X[:, columns] = overlapping(rng, len(X))[:, columns]
    p = model.p_value(X)
    # With so many rows the distance that chance gives comes from the sampled rows alone.
    assert kstest(p, "uniform").statistic < 0.05
    # The density of one column has a flat top: new rows there must not all lie above every sampled one.
    assert np.mean(p >= p.max() - 1e-9) < 0.005


def test_a_stand_in_adds_the_derivative_of_the_log_density():
    rng = np.random.default_rng(5)
    X, R = rng.normal(size=(40, 2)), rng.dirichlet([1.0, 2.0], size=40)

    def mixture(rows, R):
        N = R.sum(axis=0)
        means = (R.T @ rows) / N[:, None]
        parts = [((rows - m) * r[:, None]).T @ (rows - m) / r.sum() for m, r in zip(means, R.T, strict=True)]
        return Mixture(N / N.sum(), means, np.array(parts))

    whole = mixture(X, R)
    r = responsibilities(X, whole)
    added = stand_ins(X, whole, r, R.sum(axis=0), np.arange(40))
    x, neighbours, epsilon = 7, (3, 4, 5, 6, 8, 9, 10, 11), 1e-6
    changes = [
        log_density(X[x : x + 1], mixture(np.vstack([X, X[y]]), np.vstack([R, epsilon * r[y]]))) for y in neighbours
    ]
    expected = np.mean(changes - log_density(X[x : x + 1], whole)) / epsilon
    assert added[x] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("distance", [4.0, 6.0, 10.0])
def test_far_tail_of_a_gaussian(distance):
    """Far below one over the number of rows: P(chi2 >= d^2), and half a row of the broad Gaussian behind."""
    rng = np.random.default_rng(2)
    model = IncrementalGaussianMixture().fit(gaussian(rng, 5000))
    x = distance * np.array([[0.6, 0.8, 0.0]])
    found, behind = model.p_value(x)[0], 0.5 / 5000.5
    expected = (1 - behind) * chi2.sf(distance**2, 3) + behind * chi2.sf(distance**2 / 4, 3)
    assert np.log10(found) == pytest.approx(np.log10(expected), abs=0.4)


def test_monotone_in_the_density_and_one_where_nothing_is_observed():
    rng = np.random.default_rng(3)
    model = IncrementalGaussianMixture().fit(apart(rng, 3000))
    X = np.concatenate([apart(rng, 300), rng.uniform(-30, 30, (300, 2))])
    p, order = model.p_value(X), np.argsort(model.score_samples(X))
    assert (np.diff(p[order]) >= 0).all()
    assert model.p_value([[np.nan, np.nan]])[0] == 1.0


def test_few_rows_with_the_columns_asked_for():
    rng = np.random.default_rng(4)
    X = gaussian(rng, 1000)
    X[:980, 2] = np.nan
    model = IncrementalGaussianMixture().fit(X)
    assert 0.2 < np.median(model.p_value(gaussian(rng, 400))) < 0.8
