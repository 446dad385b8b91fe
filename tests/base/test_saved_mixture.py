"""A mixture read from a file's answers says what the model says."""

import numpy as np
import pandas
import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.base.saved_mixture import load_saved_mixture

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 3)) * [1.0, 1e5, 1e-4] + 8.0 * rng.integers(2, size=(600, 1)) * [1.0, 1e5, 1e-4]
FRAME = pandas.DataFrame(X, columns=["rpm", "power", "gap"])


@pytest.fixture(scope="module", params=["full", "diag"])
def pair(request, tmp_path_factory):
    """A model and what its file answers."""
    model = IncrementalGaussianMixture(covariance_type=request.param).fit(FRAME)
    path = tmp_path_factory.mktemp("files") / "m.evl"
    model.save(path, answers=True)
    return model, load_saved_mixture(path)


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
    assert load_saved_mixture(tmp_path / "m.evl") is None
