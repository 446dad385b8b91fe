"""Mixtures from and to scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import everlearn
from everlearn import FIGMN
from everlearn.errors import InputError

TYPES = ["full", "tied", "diag", "spherical"]


def groups(rng, n=400, D=3):
    return rng.normal(size=(n, D)) + 5.0 * rng.integers(3, size=(n, 1))


@pytest.mark.parametrize("covariance_type", TYPES)
def test_from_sklearn_keeps_the_densities_and_goes_on(covariance_type):
    X = groups(np.random.default_rng(0))
    batch = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X)
    model = FIGMN.from_sklearn(batch, n_samples=len(X))
    np.testing.assert_allclose(model.score_samples(X), batch.score_samples(X), rtol=1e-9)
    assert model.n_samples_seen_ == 400
    assert model.effective_samples_ == pytest.approx(400)
    far = np.random.default_rng(1).normal(40, 1, (200, 3))
    before = model.score(far)
    assert model.partial_fit(far).score(far) > before + 10
    assert model.score(X) > batch.score(X) - 1.5
    assert model.n_samples_seen_ == 600


def test_n_samples_says_how_much_new_rows_change():
    X = np.random.default_rng(0).normal(size=(300, 2))
    batch = GaussianMixture(1).fit(X)
    moved = {
        n: FIGMN.from_sklearn(batch, n_samples=n, beta=0.0).partial_fit(X[:100] + 1.0).means_[0] for n in (100, 10_000)
    }
    np.testing.assert_allclose(moved[100], (batch.means_[0] + X[:100].mean(axis=0) + 1.0) / 2, rtol=1e-9)
    assert np.abs(moved[10_000] - batch.means_[0]).max() < 0.02


@given(
    seed=st.integers(0, 10**6),
    power=st.integers(-200, 200),
    covariance_type=st.sampled_from(["full", "diag"]),
)
def test_to_sklearn_scores_identically(seed, power, covariance_type):
    rng = np.random.default_rng(seed)
    X = groups(rng, 150) * np.array([1.0, 2.0**power, 1.0])
    model = FIGMN(covariance_type=covariance_type).fit(X)
    batch = model.to_sklearn()
    np.testing.assert_allclose(batch.score_samples(X), model.score_samples(X), rtol=1e-9, atol=1e-9)
    back = FIGMN.from_sklearn(batch, n_samples=150)
    np.testing.assert_allclose(back.score_samples(X), model.score_samples(X), rtol=1e-9, atol=1e-9)


def test_what_scikit_learn_offers_works_on_the_exported_mixture():
    X = groups(np.random.default_rng(0))
    model = everlearn.reduce(FIGMN().fit(X), 3)
    batch = model.to_sklearn()
    assert batch.predict_proba(X).shape == (400, batch.n_components)
    assert np.isfinite([batch.bic(X), batch.aic(X)]).all()
    assert batch.sample(5)[0].shape == (5, 3)
    np.testing.assert_allclose(
        batch.precisions_ @ batch.covariances_, np.tile(np.eye(3), (batch.n_components, 1, 1)), atol=1e-8
    )
    assert clone(batch).fit(X).n_iter_ > 0


def test_a_model_that_is_warming_up_can_be_exported():
    X = groups(np.random.default_rng(0), 50)
    model = FIGMN().partial_fit(X)
    np.testing.assert_allclose(model.to_sklearn().score_samples(X), model.score_samples(X), rtol=1e-9)


def test_column_names_travel():
    X = pd.DataFrame(groups(np.random.default_rng(0)), columns=["a", "b", "c"])
    batch = GaussianMixture(2, random_state=0).fit(X)
    model = FIGMN.from_sklearn(batch, n_samples=400)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(X[["b", "a", "c"]])
    assert list(model.to_sklearn().feature_names_in_) == ["a", "b", "c"]


def test_parameters_are_taken():
    X = groups(np.random.default_rng(0))
    batch = GaussianMixture(8, covariance_type="diag", random_state=0).fit(X)
    model = FIGMN.from_sklearn(batch, n_samples=400, covariance_type="full", max_components=4, scale=2.0)
    assert model.get_params()["max_components"] == 4
    assert model.covariances_.ndim == 3
    assert model.to_sklearn().n_components <= 4
    assert model.partial_fit(X).score(X) > batch.score(X) - 1.5


def test_exported_and_imported_models_can_be_saved_and_merged(tmp_path):
    X = groups(np.random.default_rng(0))
    batch = GaussianMixture(3, random_state=0).fit(X)
    model = FIGMN.from_sklearn(batch, n_samples=400)
    model.save(tmp_path / "model.evl")
    np.testing.assert_array_equal(everlearn.load(tmp_path / "model.evl").score_samples(X), model.score_samples(X))
    merged = model + FIGMN().fit(X)
    assert merged.n_samples_seen_ == 800
    assert merged.score(X) > batch.score(X) - 0.3


@pytest.mark.parametrize(
    ("make", "arguments", "error", "message"),
    [
        (lambda X: "model", {}, InputError, "GaussianMixture is needed"),
        (lambda X: BayesianGaussianMixture(n_components=2).fit(X), {}, InputError, "GaussianMixture is needed"),
        (lambda X: GaussianMixture(2), {}, NotFittedError, "not fitted"),
        (lambda X: GaussianMixture(2).fit(X), {"n_samples": 0}, InputError, "n_samples must be"),
        (lambda X: GaussianMixture(2).fit(X), {"n_samples": "all"}, InputError, "n_samples must be"),
        (lambda X: GaussianMixture(2).fit(X), {"covariance_type": "diag"}, InputError, "cannot hold"),
        (lambda X: GaussianMixture(2).fit(X), {"beta": -1.0}, ValueError, "beta"),
    ],
)
def test_refusals_teach(make, arguments, error, message):
    X = groups(np.random.default_rng(0), 60)
    with pytest.raises(error, match=message):
        FIGMN.from_sklearn(make(X), **{"n_samples": 60, **arguments})


def test_to_sklearn_needs_a_fitted_model():
    with pytest.raises(NotFittedError):
        FIGMN().to_sklearn()
