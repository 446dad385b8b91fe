"""Models from mixtures: the same components and densities as scikit-learn's, and pools of several models."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

import naive
from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError, MergeError
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture import interchange
from everlearn.mixture.state import Shape

D = 3
UNITS = np.array([1.0, 1e4, 1e-3])


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, D)) @ (np.eye(D) + 0.3) + np.where(rng.random((n, 1)) < 0.3, 9.0, 0.0)) * UNITS


def batch(kind, seed=0):
    return GaussianMixture(2, covariance_type=kind, random_state=0, reg_covar=1e-12).fit(rows(400, seed))


@pytest.mark.parametrize("kind", ["full", "diag", "tied", "spherical"])
def test_a_mixture_of_scikit_learn_is_what_it_was(kind):
    theirs = batch(kind)
    ours = interchange.from_sklearn(IncrementalGaussianMixture, theirs, 400, {})
    order, wanted = np.argsort(ours.means_[:, 0]), np.argsort(theirs.means_[:, 0])
    np.testing.assert_allclose(ours.weights_[order], theirs.weights_[wanted], rtol=1e-6)
    np.testing.assert_allclose(ours.means_[order], theirs.means_[wanted], rtol=1e-6)
    new = rows(50, seed=1)
    np.testing.assert_allclose(ours.score_samples(new), theirs.score_samples(new), rtol=1e-5)
    assert ours.n_samples_seen_ == 400
    assert ours.effective_samples_ == pytest.approx(400.0)


def test_it_goes_on_learning_by_the_rows_that_it_stands_for():
    theirs = batch("full")
    few, many = (interchange.from_sklearn(IncrementalGaussianMixture, theirs, n, {}) for n in (50, 50_000))
    start = few.means_.copy()
    moved = rows(30, seed=2) + 2.0 * UNITS
    shifts = []
    for model in (few, many):
        model.partial_fit(moved)
        mixture = model.mixture_between_searches()
        mean = mixture.weights @ mixture.means
        shifts.append(abs(mean[0] - theirs.weights_ @ theirs.means_[:, 0]))
    assert len(start) == 2
    assert shifts[0] > 0.3
    assert shifts[1] < 0.01


@pytest.mark.parametrize("count", [2.5, 40.0, 1e6])
def test_moments_of_a_stock_have_the_covariances_as_their_posterior_mean(count):
    """(tau C + S) (1 + 1/c) / (tau + c - 1), the scale of `tests/naive/structure.py`, without a ridge."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, D, D))
    mixture = Mixture(np.array([0.25, 0.75]), rng.normal(size=(2, D)), A @ A.transpose(0, 2, 1) + np.eye(D))
    shape = Shape(np.eye(D) + 0.3, np.zeros(D), interchange.TAU, False)
    stock = interchange._stock(mixture, 4.0 * count, shape)
    assert stock[0] == pytest.approx(4.0 * count * mixture.weights)
    for c, S, wanted in zip(stock[1], stock[3], mixture.covariances, strict=True):
        tau = interchange.TAU
        np.testing.assert_allclose((tau * shape.matrix + S) * (1.0 + 1.0 / c) / (tau + c - 1.0), wanted, rtol=1e-9)


def test_rows_drawn_from_the_mixture_stand_in_the_sample():
    theirs = batch("full")
    model = interchange.from_sklearn(IncrementalGaussianMixture, theirs, 5000, {"reservoir": 1000})
    sample, frame = model._state_.reservoir, model._state_.frame
    assert (sample.size[0], sample.offered[0]) == (1000, 5000)
    assert np.exp(sample.level[0]) == pytest.approx(5.0)
    drawn = sample.rows[:1000] / frame.inverse + frame.centre
    mean, covariance = naive.moment_match(theirs.weights_, theirs.means_, theirs.covariances_)
    error = (drawn.mean(axis=0) - mean) / np.sqrt(np.diagonal(covariance) / 1000)
    assert np.abs(error).max() < 4.5


@pytest.mark.parametrize("n_samples", [0, -3, np.inf, "many", None])
def test_a_number_of_rows_that_cannot_be_is_refused(n_samples):
    with pytest.raises(InputError, match="n_samples must be the positive number"):
        interchange.from_sklearn(IncrementalGaussianMixture, batch("full"), n_samples, {})


def test_low_rank_models_are_refused():
    with pytest.raises(InputError, match="use 'full'"):
        interchange.from_sklearn(IncrementalGaussianMixture, batch("full"), 10, {"covariance_type": "low_rank"})
    wide = IncrementalGaussianMixture(covariance_type="low_rank", rank=1).partial_fit(rows(80))
    with pytest.raises(MergeError, match="method='mode' does not apply"):
        interchange.pooled(wide.copy(), [wide, wide], [1.0, 1.0], None)


def test_a_pool_of_equal_models_is_that_model_of_twice_the_rows():
    """Precisions are averaged, so that equal components stay what they are."""
    one = interchange.from_sklearn(IncrementalGaussianMixture, batch("full"), 300, {})
    new = interchange.from_sklearn(IncrementalGaussianMixture, batch("full", seed=5), 1, {})
    interchange.pooled(new, [one, one.copy()], [1.0, 1.0], None)
    order, wanted = np.argsort(new.means_[:, 0]), np.argsort(one.means_[:, 0])
    np.testing.assert_allclose(new.weights_[order], one.weights_[wanted], rtol=1e-5)
    np.testing.assert_allclose(new.means_[order] / UNITS, one.means_[wanted] / UNITS, atol=1e-4)
    scale = np.outer(UNITS, UNITS)
    np.testing.assert_allclose(new.covariances_[order] / scale, one.covariances_[wanted] / scale, rtol=1e-3, atol=1e-4)
    assert new.effective_samples_ == pytest.approx(600.0)
