"""What the two probabilistic PCAs share, on a model whose parameters are known."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from everlearn.errors import InputError
from everlearn.ppca.base import FittedPPCA, PPCABase, scale_of
from everlearn.ppca.state import PPCA, factor

SCALE = 8.0


class Known(PPCABase):
    """Answers from given parameters, which are in units of 8; starts from four rows."""

    def __init__(self, n_components=2, random_state=0):
        self.n_components, self.random_state = n_components, random_state

    def _warmup_rows(self):
        return 4

    def _start(self, X, *, whole):
        self._start_buffer(X.shape[1])

    def _start_state(self, rows, n_used):
        self._state_ = (rows.copy(), n_used)
        self._drop_buffer()

    def _learn(self, X, y, weights):
        done = self._warm_up(X) if self._state_ is None else 0
        self._n_rows_ += len(X)
        self.left_ = X[done:]

    def _new_fitted(self):
        return FittedPPCA.of(factor(PARAMETERS), SCALE)


rng = np.random.default_rng(0)
PARAMETERS = PPCA(rng.normal(size=4), rng.normal(size=(4, 2)), 0.2)
MEAN = SCALE * PARAMETERS.mu
COVARIANCE = SCALE**2 * (PARAMETERS.W @ PARAMETERS.W.T + 0.2 * np.eye(4))


@pytest.fixture
def model():
    return Known().fit(np.random.default_rng(1).normal(size=(6, 4)))


def test_densities_are_in_the_units_of_the_data(model):
    X = np.random.default_rng(2).normal(size=(3, 4)) * 10
    np.testing.assert_allclose(model.score_samples(X), multivariate_normal(MEAN, COVARIANCE).logpdf(X), rtol=1e-9)
    X[1, [0, 2]], X[2] = np.nan, np.nan
    seen = np.ix_([1, 3], [1, 3])
    expected = multivariate_normal(MEAN[[1, 3]], COVARIANCE[seen]).logpdf(X[1, [1, 3]])
    np.testing.assert_allclose(model.score_samples(X)[1:], [expected, 0.0], rtol=1e-9)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())


def test_covariance_axes_and_noise_are_those_of_an_eigendecomposition(model):
    np.testing.assert_allclose(model.get_covariance(), COVARIANCE, rtol=1e-10)
    np.testing.assert_allclose(model.get_precision() @ COVARIANCE, np.eye(4), atol=1e-10)
    values, vectors = np.linalg.eigh(COVARIANCE)
    np.testing.assert_allclose(model.explained_variance_, values[:1:-1], rtol=1e-9)
    np.testing.assert_allclose(model.explained_variance_ratio_, values[:1:-1] / values.sum(), rtol=1e-9)
    np.testing.assert_allclose(np.abs(model.components_ @ vectors[:, :1:-1]), np.eye(2), atol=1e-8)
    assert model.noise_variance_ == pytest.approx(values[0])
    L = model.loadings_
    np.testing.assert_allclose(L @ L.T + model.noise_variance_ * np.eye(4), COVARIANCE, rtol=1e-8)


def test_gaps_are_filled_with_the_conditional_mean_of_a_gaussian(model):
    x = np.array([[3.0, np.nan, -1.0, np.nan]])
    slope = COVARIANCE[np.ix_([1, 3], [0, 2])] @ np.linalg.inv(COVARIANCE[np.ix_([0, 2], [0, 2])])
    expected = MEAN[[1, 3]] + slope @ (x[0, [0, 2]] - MEAN[[0, 2]])
    rest = COVARIANCE[np.ix_([1, 3], [1, 3])] - slope @ COVARIANCE[np.ix_([0, 2], [1, 3])]
    filled, std = model.impute(x, return_std=True)
    np.testing.assert_allclose(filled[0], [3.0, expected[0], -1.0, expected[1]], rtol=1e-9)
    np.testing.assert_allclose(std[0], [0.0, rest[0, 0] ** 0.5, 0.0, rest[1, 1] ** 0.5], rtol=1e-9)
    # Coordinates of a row with gaps are those of the filled one; rows in the subspace come back.
    np.testing.assert_allclose(model.transform(x), model.transform(filled), rtol=1e-9)
    T = np.array([[1.0, -5.0]])
    np.testing.assert_allclose(model.transform(model.inverse_transform(T)), T, rtol=1e-9)


def test_a_data_frame_that_is_filled_stays_one(model):
    frame = pd.DataFrame([[3.0, np.nan, -1.0, np.nan]], columns=list("abcd"), index=["monday"])
    expected = model.impute(frame.to_numpy(), return_std=True)
    for found, values in zip(model.impute(frame, return_std=True), expected, strict=True):
        pd.testing.assert_frame_equal(found, pd.DataFrame(values, index=frame.index, columns=frame.columns))


def test_draws_have_the_moments_of_the_model(model):
    drawn = model.sample(60_000, random_state=3)
    np.testing.assert_allclose(drawn.mean(axis=0), MEAN, atol=0.3)
    np.testing.assert_allclose(np.cov(drawn.T), COVARIANCE, rtol=0.06, atol=3.0)
    np.testing.assert_array_equal(model.sample(5), model.sample(5))


def test_the_first_rows_are_kept_until_there_are_enough():
    """Rows of nothing but NaN are counted, and start nothing."""
    X = np.arange(32.0).reshape(8, 4)
    X[1] = np.nan
    model = Known().partial_fit(X[:3])
    assert model.keeps_rows_
    np.testing.assert_array_equal(model._first_rows(), X[[0, 2]])
    model.partial_fit(X[3:])
    rows, n_used = model._state_
    np.testing.assert_array_equal(rows, X[[0, 2, 3, 4]])
    assert n_used == 5
    np.testing.assert_array_equal(model.left_, X[5:])
    assert not model.keeps_rows_
    assert model.n_samples_seen_ == 8


def test_questions_that_cannot_be_answered_say_why(model):
    with pytest.raises(InputError, match="n_components=5 must be at most n_features=4"):
        Known(5).fit(np.zeros((2, 4)))
    with pytest.raises(InputError, match="takes the 2 coordinates"):
        model.inverse_transform(np.zeros((1, 3)))
    with pytest.raises(InputError, match="every row so far was NaN"):
        Known().partial_fit(np.full((2, 4), np.nan))._first_rows()


def test_the_scale_is_a_power_of_two_near_the_largest_value():
    assert scale_of(np.array([[-900.0, 3.0], [np.nan, 1.0]])) == 1024.0
    assert scale_of(np.zeros((2, 2))) == scale_of(np.full((2, 2), np.nan)) == 1.0
