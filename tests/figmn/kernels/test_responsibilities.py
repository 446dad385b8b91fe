"""Distances, densities and posterior probabilities of one row, against scipy; what NaN does to a minimum."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal

from everlearn.figmn import ask
from everlearn.figmn import learn as learning
from everlearn.figmn import state as states
from everlearn.figmn.kernels.responsibilities import least, log_unit
from states import mixture, rows_from, settings_for


@pytest.mark.parametrize(
    ("values", "n", "expected"),
    [
        ([3.0, 1.0, 2.0], 3, 1.0),
        ([3.0, 1.0, 0.5], 2, 1.0),
        ([5.0], 0, np.inf),
        ([np.inf, np.inf], 2, np.inf),
        ([2.0, np.nan, 1.0], 3, np.nan),
        ([np.nan, 1.0], 2, np.nan),
        ([1.0, np.nan], 2, np.nan),
    ],
)
def test_the_least_of_some_values_is_nan_where_one_is(values, n, expected):
    """A component that has lost its precision must not hide behind the distance to another one."""
    np.testing.assert_equal(least(np.array(values), n), expected)


def test_units_of_the_observed_columns():
    x, log_scale = np.array([1.0, np.nan, 3.0]), np.array([0.5, 7.0, 0.25])
    assert log_unit(x, log_scale) == 0.75


def test_rows_have_the_densities_and_shares_of_the_mixture():
    rng = np.random.default_rng(0)
    state = mixture(rng, 4, 3, spread=0.7, room=2)
    X = rows_from(rng, state, 1)
    known = states.mixture_of(state)
    joint = np.array([multivariate_normal(m, S).logpdf(X[0]) for m, S in zip(*known[1:], strict=True)])
    joint += np.log(known.weights)
    found = ask.score(state, X, np.zeros(4), posteriors=True)
    np.testing.assert_allclose(found.posterior[0], softmax(joint), rtol=1e-10)
    assert found.log_density[0] == pytest.approx(logsumexp(joint))
    E = X - known.means
    d2 = np.einsum("ka,kab,kb->k", E, np.linalg.inv(known.covariances), E)
    assert found.distance[0] == pytest.approx(d2.min())
    # While learning, the shares are what the counts grow by.
    counts = state.counts[:3].copy()
    after, info = learning.learn(state, X, np.full(1, 2.0), settings_for(4))
    np.testing.assert_allclose(after.counts[:3] - counts, 2.0 * softmax(joint), rtol=1e-9)
    assert info.log_density[0] == pytest.approx(logsumexp(joint))


def test_the_first_row_has_no_density_and_is_infinitely_far():
    _, info = learning.learn(states.empty(2), np.zeros((1, 2)), np.ones(1), settings_for(2))
    assert np.isnan(info.log_density[0])
    assert info.distance[0] == np.inf
