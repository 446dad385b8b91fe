"""A model read from a file's answers says what the model says."""

import numpy as np
import pandas
import pytest

from everlearn import (
    FIGMN,
    AnomalyDetector,
    IncrementalGaussianMixture,
    IncrementalGaussianMixtureClassifier,
    OnlinePPCA,
    StreamImputer,
    VariationalPPCA,
    save,
)
from everlearn.base.saved_model import load_saved_model
from everlearn.cli.summary import moments_of
from everlearn.errors import InputError
from everlearn.reporting.queries import condition

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 3)) * [1.0, 1e5, 1e-4] + 8.0 * rng.integers(2, size=(600, 1)) * [1.0, 1e5, 1e-4]
FRAME = pandas.DataFrame(X, columns=["rpm", "power", "gap"])


@pytest.fixture(scope="module", params=["full", "diag"])
def pair(request, tmp_path_factory):
    """A model and what its file answers."""
    model = IncrementalGaussianMixture(covariance_type=request.param).fit(FRAME)
    path = tmp_path_factory.mktemp("files") / "m.evl"
    model.save(path, answers=True)
    return model, load_saved_model(path)


def test_components(pair):
    model, saved = pair
    np.testing.assert_allclose(saved.weights_, model.weights_, rtol=1e-12)
    np.testing.assert_array_equal(saved.means_, model.means_)
    np.testing.assert_array_equal(saved.covariances_, model.covariances_)
    assert saved.n_samples_seen_ == 600
    assert saved.feature_names_in_.tolist() == list(FRAME.columns)


@pytest.mark.parametrize("row", [[8.0, np.nan, np.nan], [np.nan] * 3, [8.0, 8e5, np.nan]])
def test_answers_are_the_models_bit_for_bit(pair, row):
    model, saved = pair
    asked, target = np.array([row]), np.array([2])
    one, two = model.condition(asked, target=target), saved.condition(asked, target=target)
    assert one.columns == two.columns
    for a, b in zip((one.mean(), one.std(), *one.interval()), (two.mean(), two.std(), *two.interval()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_file_without_answers(tmp_path):
    IncrementalGaussianMixture().fit(FRAME).save(tmp_path / "m.evl")
    assert load_saved_model(tmp_path / "m.evl") is None


# -- every kind of model ----------------------------------------------------------------------------------

DENSITIES = {
    "figmn": FIGMN(),
    "diagonal figmn": FIGMN(covariance_type="diag"),
    "low rank": IncrementalGaussianMixture(covariance_type="low_rank", rank=1),
    "online ppca": OnlinePPCA(2),
    "variational ppca": VariationalPPCA(1),
    "detector": AnomalyDetector(grace_period=100),
    "imputer": StreamImputer(FIGMN()),
}


@pytest.fixture(scope="module", params=DENSITIES)
def density(request, tmp_path_factory):
    """A model of all columns, and what its file answers."""
    model = DENSITIES[request.param].fit(FRAME)
    path = tmp_path_factory.mktemp("files") / "m.evl"
    save(model, path, answers=True)
    return getattr(model, "model_", model), load_saved_model(path)


@pytest.mark.parametrize("given", [{}, {"rpm": 8.0}, {"rpm": 0.5, "power": 9e5}, {"rpm": 1e9}])
def test_questions_by_name(density, given):
    model, saved = density
    one, two = condition(model, given, ["gap"]), condition(saved, given, ["gap"])
    for a, b in zip((one.mean(), one.std(), *one.interval()), (two.mean(), two.std(), *two.interval()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_what_is_shown(density):
    model, saved = density
    assert (saved.model, saved.parameters) == (type(model).__name__, model._changed_parameters())
    assert saved.n_samples_seen_ == model.n_samples_seen_
    for a, b in zip(moments_of(model), moments_of(saved), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    for name in ("weights_", "means_", "components_", "explained_variance_ratio_"):
        assert hasattr(type(model), name) == hasattr(type(saved), name)
        if hasattr(type(model), name):
            np.testing.assert_allclose(getattr(saved, name), getattr(model, name), rtol=1e-9)


def test_events_of_a_detector(tmp_path):
    model = AnomalyDetector(grace_period=100, patience=20).fit(np.vstack([X, X[:2] + 1e3, X[2:40], X[:60] - 900.0]))
    model.save(tmp_path / "m.evl", answers=True)
    saved = load_saved_model(tmp_path / "m.evl")
    assert {event.kind for event in model.events_} == {"anomaly", "new_normal"}
    assert saved.events_ == model.events_  # tuples with the same fields
    assert (saved.false_alarm_rate, saved.n_held_) == (model.false_alarm_rate, model.n_held_)


def test_a_classifier_is_shown_and_not_asked(tmp_path):
    model = IncrementalGaussianMixtureClassifier().fit(FRAME, X[:, 0] > 4.0)
    model.save(tmp_path / "m.evl", answers=True)
    saved = load_saved_model(tmp_path / "m.evl")
    assert saved.n_components_ == model.n_components_
    with pytest.raises(InputError, match=r"^IncrementalGaussianMixtureClassifier is not asked this way"):
        condition(saved, {}, ["gap"])
