"""Log-densities of components that go on learning, against scipy's, in the units of the data."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.mixture.keep.carry import copied
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import density as kernels
from everlearn.mixture.kernels.covariance import covariances_of
from everlearn.mixture.kernels.density import Scorer
from mixture_toys import components, frame_of, groups, shape_of

D, K = 3, 3


@pytest.fixture
def scorer():
    Z, label = groups(np.random.default_rng(0), 90, D, K)
    shape = shape_of(D)
    learned = components(Z, np.eye(K)[label], shape, room=K + 2)
    answers = copied(learned)
    answers.size[0] = 0
    return Scorer(learned, answers, shape, world_of_rows(Z, np.ones(90), 1.0).background, frame_of(D))


def expected(scorer, X):
    """Density of the components and of half a row of the broad Gaussian, for the rows in the units of the data."""
    c, _, shape, background, frame = scorer
    units = np.diag(1.0 / frame.inverse)
    broad = 4.0 * np.linalg.inv(background.factor.T @ background.factor)
    parts = [*zip(c.mass, c.means, covariances_of(c, shape), strict=False), (background.rows, background.centre, broad)]
    joint = [m * multivariate_normal(units @ mean + frame.centre, units @ S @ units).pdf(X) for m, mean, S in parts]
    return np.log(np.sum(joint, axis=0) / sum(m for m, _, _ in parts))


def densities(scorer, X):
    out = np.empty(len(X))
    return kernels.log_densities(X, kernels.unpack(scorer), out), out


def rows(scorer, n=30):
    rng = np.random.default_rng(1)
    Z = scorer.components.means[rng.integers(K, size=n)] + 2.0 * rng.normal(size=(n, D))
    return Z / scorer.frame.inverse + scorer.frame.centre


def test_density_of_components_and_background(scorer):
    X = rows(scorer)
    X[7] *= 10.0  # an outlier: the background's
    gaps, found = densities(scorer, X)
    assert gaps == 0
    np.testing.assert_allclose(found, expected(scorer, X), rtol=1e-9)


def test_rows_with_gaps_are_counted_and_left_to_others(scorer):
    X = rows(scorer)
    whole = densities(scorer, X)[1]
    X[[2, 5], [0, 1]] = np.nan
    gaps, found = densities(scorer, X)
    assert gaps == 2
    assert np.flatnonzero(np.isnan(found)).tolist() == [2, 5]
    np.testing.assert_array_equal(np.delete(found, [2, 5]), np.delete(whole, [2, 5]))


def test_what_a_component_learned_since_is_known_and_a_new_one_as_well(scorer):
    """Questions leave the components as they are: only the copies are refreshed."""
    c, X = scorer.components, rows(scorer)
    handle, before, after = kernels.unpack(scorer), np.empty(30), np.empty(30)
    kernels.log_densities(X, handle, before)
    c.mass[1], c.fresh[1] = c.mass[1] + 20.0, 20.0
    c.shift[1] = 30.0  # twenty rows with a mean of 1.5 more in each column
    c.scatter[1] += 20.0 * (1.5**2 + np.eye(D))
    for values in (c.means, c.scatter, c.shift, c.fresh):
        values[K] = values[0]
    c.mass[K] = c.counts[K] = c.mass[0] / 2.0
    c.means[K] += 1.0
    c.size[0] = K + 1
    kept = [values.copy() for values in c]
    kernels.log_densities(X, handle, after)
    for values, old in zip(c, kept, strict=True):
        np.testing.assert_array_equal(values, old)
    # By hand: the moments of all rows of component 1.
    n = c.counts[1]
    c.means[1] += 30.0 / (n + 20.0)
    c.scatter[1] -= (n + 20.0) * (30.0 / (n + 20.0)) ** 2
    c.counts[1] = n + 20.0
    truth = scorer._replace(components=c._replace(mass=c.mass[: K + 1], means=c.means[: K + 1]))
    np.testing.assert_allclose(after, expected(truth, X), rtol=1e-9)
    assert np.abs(after - before).max() > 0.1
