"""Mode-IMM as a method of merging, for every estimator."""

import numpy as np
import pytest

import everlearn
from everlearn.errors import MergeError
from everlearn.gaussian.mixture import Mixture
from everlearn.gaussian.pooling import pool


def hills(rng, n, shift=0.0):
    return np.array([[0.0, 0.0, 0.0], [12.0, 0.0, 3.0]])[rng.integers(2, size=n)] + rng.normal(size=(n, 3)) + shift


def figmn():
    """Finds the two hills by itself."""
    return everlearn.FIGMN(scale=[1.0, 1.0, 1.0], delta=1.0)


def labels(X):
    return (X[:, 0] > 6).astype(int)


ESTIMATORS = {
    "FIGMN": lambda: figmn(),
    "FIGMN diagonal": lambda: everlearn.FIGMN(covariance_type="diag", scale=[1.0, 1.0, 1.0], delta=1.0),
    "FIGMNClassifier": lambda: everlearn.FIGMNClassifier(),
    "mixture": lambda: everlearn.IncrementalGaussianMixture(),
    "mixture diagonal": lambda: everlearn.IncrementalGaussianMixture(covariance_type="diag"),
    "mixture that forgets": lambda: everlearn.IncrementalGaussianMixture(forgetting="adaptive"),
    "mixture without rows": lambda: everlearn.IncrementalGaussianMixture(reservoir=0),
    "classifier": lambda: everlearn.IncrementalGaussianMixtureClassifier(),
    "regressor": lambda: everlearn.IncrementalGaussianMixtureRegressor(),
    "detector": lambda: everlearn.AnomalyDetector(),
    "OnlinePPCA": lambda: everlearn.OnlinePPCA(2),
    "VariationalPPCA": lambda: everlearn.VariationalPPCA(1),
}


def learned(make, X):
    model = make()
    if isinstance(model, everlearn.IncrementalGaussianMixtureRegressor):
        return model.partial_fit(X[:, :2], X[:, 2])
    if "Classifier" in type(model).__name__:
        return model.partial_fit(X, labels(X), classes=[0, 1])
    return model.partial_fit(X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_merges_by_mode_and_goes_on_learning(name):
    make, rng = ESTIMATORS[name], np.random.default_rng(0)
    models = [learned(make, hills(rng, n)) for n in (600, 550)]
    before = [everlearn.dumps(model) for model in models]
    merged = everlearn.merge(models, method="mode")
    assert type(merged) is type(models[0])
    seen = merged.n_samples_seen_
    # The time of a detector is that of the first; it has learned the rows of both.
    assert seen == (models[0].n_samples_seen_ if name == "detector" else 1150)
    assert [everlearn.dumps(model) for model in models] == before
    again = everlearn.loads(everlearn.dumps(merged))
    X = hills(rng, 300)
    for model in (merged, again):
        if name == "regressor":
            model.partial_fit(X[:, :2], X[:, 2])
        elif "lassifier" in name:
            model.partial_fit(X, labels(X))
        else:
            model.partial_fit(X)
        assert model.n_samples_seen_ == seen + 300
    test = hills(rng, 500)
    if "lassifier" in name:
        assert (merged.predict(test) == labels(test)).mean() > 0.99
    elif name == "regressor":
        assert merged.score(test[:, :2], test[:, 2]) > 0.5
    elif name == "detector":
        assert merged.mixture_.score(test) > models[0].mixture_.score(test) - 0.2
    else:
        assert merged.score(test) > models[0].score(test) - 0.2


@pytest.mark.parametrize("make", [figmn, everlearn.IncrementalGaussianMixture])
def test_components_are_the_pool_of_those_that_models_show(make):
    rng = np.random.default_rng(1)
    models = [make().partial_fit(hills(rng, n, shift)) for n, shift in ((2000, 0.0), (1000, 0.5))]
    merged = everlearn.merge(models, method="mode", n_components=2)
    parts = [Mixture(model.n_samples_seen_ * model.weights_, model.means_, model.covariances_) for model in models]
    expected = pool(parts, n_components=2)
    ours, theirs = (np.argsort(means[:, 0]) for means in (merged.means_, expected.means))
    np.testing.assert_allclose(merged.means_[ours], expected.means[theirs], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(merged.covariances_[ours], expected.covariances[theirs], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(merged.weights_[ours], expected.weights[theirs] / 3000, rtol=1e-3)
    # Narrower than the moments of all rows, which hold the shift between the models.
    by_moments = everlearn.merge(models, method="mean", n_components=2)
    spread = [model.covariances_[np.argmin(model.means_[:, 0])] for model in (merged, by_moments)]
    assert np.trace(spread[0]) < np.trace(spread[1]) - 0.1


@pytest.mark.parametrize("make", [figmn, everlearn.IncrementalGaussianMixture])
def test_the_order_of_models_makes_no_difference_and_trust_does(make):
    rng = np.random.default_rng(2)
    models = [make().partial_fit(hills(rng, 800, shift)) for shift in (0.0, 0.4, 0.8)]
    one = everlearn.merge(models, method="mode")
    other = everlearn.merge(models[::-1], method="mode")
    test = hills(rng, 100)
    np.testing.assert_array_equal(one.score_samples(test), other.score_samples(test))
    trusted = everlearn.merge(models, method="mode", weights=[1.0, 1.0, 100.0], n_components=2)
    ours, theirs = (model.weights_ @ model.means_ for model in (trusted, models[2]))
    np.testing.assert_allclose(ours, theirs, atol=0.1)  # 0.4 from that of all


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("make", [figmn, everlearn.IncrementalGaussianMixture])
def test_models_that_are_warming_up_are_pooled_as_they_answer(make, n):
    rng = np.random.default_rng(3)
    merged = everlearn.merge([make().partial_fit(hills(rng, n)), make().partial_fit(hills(rng, 500))], method="mode")
    assert merged.n_samples_seen_ == n + 500
    assert np.isfinite(merged.partial_fit(hills(rng, 20)).score(hills(rng, 100)))


def test_low_rank_covariances_say_why_not():
    X = np.random.default_rng(4).normal(size=(200, 6))
    model = everlearn.IncrementalGaussianMixture(covariance_type="low_rank").partial_fit(X)
    with pytest.raises(MergeError, match="matrices of all columns"):
        model.merge(model, method="mode")


def test_an_agent_says_why_not():
    agents = [everlearn.agents.MixtureQAgent(scale=[1.0]).fit([[0.0, 0], [1.0, 1]], [0.0, 1.0]) for _ in range(2)]
    with pytest.raises(MergeError, match="values of none"):
        everlearn.merge(agents, method="mode")
