"""The classifier with covariance_type="low_rank": classes of many columns, one after another."""

import numpy as np
import pytest

import everlearn
from everlearn import IncrementalGaussianMixtureClassifier
from low_rank_toys import one

D = 80


@pytest.fixture(scope="module")
def rows():
    """Three classes with the same mean, whose directions differ."""
    rng = np.random.default_rng(0)
    X = np.concatenate([one(rng, 150, D) for _ in range(3)])
    return X, np.repeat(["a", "b", "c"], 150), np.arange(450) % 150 < 100


@pytest.fixture(scope="module")
def model(rows):
    X, y, train = rows
    return IncrementalGaussianMixtureClassifier(covariance_type="low_rank").fit(X[train], y[train])


def test_classes_are_told_apart_by_their_directions(model, rows):
    X, y, train = rows
    assert model.score(X[~train], y[~train]) > 0.85
    np.testing.assert_allclose(model.predict_proba(X[:5]).sum(axis=1), 1.0)


def test_one_class_after_another_and_by_rows_is_the_same(model, rows):
    X, y, train = rows
    other = IncrementalGaussianMixtureClassifier(covariance_type="low_rank")
    for label in "cab":
        for part in np.array_split(np.flatnonzero(train & (y == label)), 3):
            other.partial_fit(X[part], y[part])
    np.testing.assert_allclose(other.predict_proba(X[~train]), model.predict_proba(X[~train]), atol=1e-6)


def test_rows_with_gaps(model, rows):
    X, y, train = rows
    asked = X[~train].copy()
    asked[:, ::4] = np.nan
    assert model.score(asked, y[~train]) > 0.8


def test_files_and_merging(model, rows, tmp_path):
    X, y, train = rows
    model.save(tmp_path / "model")
    loaded = everlearn.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X[:9]), model.predict_proba(X[:9]))
    more = IncrementalGaussianMixtureClassifier(covariance_type="low_rank").fit(X[~train], y[~train])
    assert (model + more).class_count_.tolist() == [150.0] * 3


def test_without_rows(rows):
    X, y, train = rows
    model = IncrementalGaussianMixtureClassifier(covariance_type="low_rank", reservoir=0, n_components=1)
    for _ in range(6):
        model.partial_fit(X[train], y[train])
    assert not model.keeps_rows_
    assert model.score(X[~train], y[~train]) > 0.8
