"""IncrementalGaussianMixtureRegressor: targets with their uncertainty, several at once, with gaps, merged and saved."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureRegressor, datasets
from everlearn.errors import InputError, MergeError, ModelFileError
from everlearn.persistence.model_file import dumps, loads


def bent(n=2000, seed=0):
    """Two regimes with their own slopes and noise; the second target follows the first."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    right = X[:, 0] > 0
    y = np.where(right, 4 * X[:, 0], -X[:, 0]) + X[:, 1] + np.where(right, 0.5, 0.1) * rng.normal(size=n)
    return X, np.column_stack([y, 2 * y + rng.normal(0, 0.2, n)])


def test_one_component_is_linear_regression():
    """Least squares, up to the creation prior: one row's worth in two thousand."""
    X, Y = bent()
    model = IncrementalGaussianMixtureRegressor(1).partial_fit(X, Y)
    peer = LinearRegression().fit(X, Y)
    assert np.allclose(model.predict(X), peer.predict(X), atol=0.02 * Y.std())


@pytest.mark.slow
def test_several_components_bend():
    X, Y = bent()
    test, truth = bent(seed=1)
    model = IncrementalGaussianMixtureRegressor().fit(X, Y[:, 0])
    assert model.score(test, truth[:, 0]) > 0.97
    assert LinearRegression().fit(X, Y[:, 0]).score(test, truth[:, 0]) < 0.9


def test_predictions_are_those_of_the_joint_mixture():
    X, Y = bent(500)
    model = IncrementalGaussianMixtureRegressor().fit(X, Y)
    mixture = IncrementalGaussianMixture().fit(np.hstack([X, Y]))
    mean, std = model.predict(X, return_std=True)
    expected = mixture.predict_columns(X, [2, 3], given=[0, 1], return_std=True, interval=0.8)
    assert np.array_equal(mean, expected[0])
    assert np.array_equal(std, expected[1])
    low, high = model.predict_interval(X, 0.8)
    assert np.array_equal(low, expected[2][0])
    assert np.array_equal(high, expected[2][1])
    assert np.array_equal(model.condition(X).mean(), mean)


@pytest.mark.slow
def test_noise_depends_on_where():
    X, Y = bent()
    model = IncrementalGaussianMixtureRegressor().fit(X, Y[:, 0])
    _, std = model.predict([[-2.0, 0.0], [2.0, 0.0]], return_std=True)
    assert std[1] == pytest.approx(0.5, abs=0.2)
    assert std[0] < 0.7 * std[1]


def test_intervals_cover_on_real_data():
    """One column of a real set from the others, on rows that were not learned."""
    data = datasets.load_diabetes().data
    order = np.random.default_rng(0).permutation(len(data))
    train, test = data[order[:500]], data[order[500:]]
    model = IncrementalGaussianMixtureRegressor().fit(train[:, :5], train[:, 5])
    low, high = model.predict_interval(test[:, :5], 0.9)
    assert 0.83 < np.mean((test[:, 5] >= low) & (test[:, 5] <= high)) < 0.97


@pytest.mark.parametrize("n_outputs", [None, 1, 2])
def test_answers_have_the_shape_of_the_targets(n_outputs):
    X, Y = bent(300)
    y = Y[:, 0] if n_outputs is None else Y[:, :n_outputs]
    model = IncrementalGaussianMixtureRegressor().partial_fit(X, y)
    shape = (300,) if n_outputs is None else (300, n_outputs)
    for answer in (model.predict(X), *model.predict(X, return_std=True), *model.predict_interval(X)):
        assert answer.shape == shape
    assert model.n_outputs_ == (n_outputs or 1)


def test_gaps_among_the_inputs():
    X, Y = bent()
    test, truth = bent(seed=1)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    model = IncrementalGaussianMixtureRegressor().partial_fit(X, Y)
    assert model.score(test, truth) > 0.9
    _, known = model.predict(test, return_std=True)
    test[:, 0] = np.nan
    mean, unknown = model.predict(test, return_std=True)
    assert np.isfinite(mean).all()
    assert (unknown > known).mean() > 0.9


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y"),
        (np.zeros(9), r"y has shape \(9,\); give a target"),
        (np.zeros((10, 3)), "y has 3 columns; the model learned 2"),
        (np.full((10, 2), np.nan), "NaN or infinity at row 0"),
        ([["a", "b"]] * 10, "y must hold numbers"),
        (np.zeros((10, 2, 1)), "give a target"),
    ],
)
def test_bad_targets(y, message):
    X, Y = bent(10)
    model = IncrementalGaussianMixtureRegressor().partial_fit(X, Y)
    before = dumps(model)
    with pytest.raises(InputError, match=message):
        model.partial_fit(X, y)
    assert dumps(model) == before


def test_merging():
    X, Y = bent()
    test, truth = bent(seed=1)
    parts = [IncrementalGaussianMixtureRegressor().partial_fit(X[i::2], Y[i::2]) for i in range(2)]
    merged = parts[0] + parts[1]
    assert merged.n_samples_seen_ == 2000
    assert merged.score(test, truth) > 0.9
    with pytest.raises(MergeError):
        parts[0].merge(IncrementalGaussianMixtureRegressor(3).partial_fit(X, Y))


def test_models_of_different_targets_cannot_be_merged():
    X, Y = bent(300)
    with pytest.raises(MergeError, match="columns"):
        IncrementalGaussianMixtureRegressor().fit(X, Y).merge(IncrementalGaussianMixtureRegressor().fit(X, Y[:, 0]))


@pytest.mark.parametrize(("name", "value"), [("n_outputs_", 1), ("n_outputs_", 2.0), ("_flat_", None), ("_joint_", 3)])
def test_damaged_files_are_refused(name, value):
    model = IncrementalGaussianMixtureRegressor().fit(*bent(100))
    model._check_loaded()
    setattr(model, name, value)
    with pytest.raises(ModelFileError):
        model._check_loaded()


def test_files():
    X, Y = bent(600)
    for n in (100, 400):
        model = IncrementalGaussianMixtureRegressor().partial_fit(X[:n], Y[:n])
        loaded = loads(dumps(model))
        for each in (model, loaded):
            each.partial_fit(X[n:], Y[n:])
        assert np.array_equal(model.predict(X), loaded.predict(X))
