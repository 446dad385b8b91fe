"""FIGMN on pixels: the yardsticks, and a pass that grows."""

import numpy as np
import pytest

from everlearn.experiments.papers.figmn.pixels import accuracy, grow, purity


def test_purity_is_the_share_of_the_commonest_class():
    clusters, y = np.array([0, 0, 0, 2, 2]), np.array([4, 4, 1, 7, 7])
    assert purity(clusters, y) == pytest.approx(80.0)
    assert purity(np.arange(5), y) == 100.0
    assert purity(np.zeros(5, dtype=int), np.arange(5)) == pytest.approx(20.0)


@pytest.fixture(scope="module")
def pictures():
    """Ten shapes of 20 pixels, one of them always dark, in ten classes."""
    rng = np.random.default_rng(0)
    shapes = rng.uniform(size=(10, 20))
    y = rng.integers(10, size=1500)
    X = 20 + 200 * shapes[y] + 5 * rng.normal(size=(1500, 20))
    X[:, 3] = 0.0
    return X.clip(0, 255).astype(np.uint8), y


def test_components_grow_and_do_not_depend_on_the_parts(pictures):
    X, y = pictures
    whole, parts = grow(X[:1000], y[:1000], 0.05), grow(X[:1000], y[:1000], 0.05, parts=4)
    assert parts.rows == [250, 500, 750, 1000]
    assert parts.n_components == sorted(parts.n_components)
    assert parts.n_components[-1] == whole.n_components[-1] == 10  # one for each shape, found by itself
    np.testing.assert_allclose(parts.model.means_, whole.model.means_, rtol=1e-8, atol=1e-10)


def test_classes_are_asked_for_by_their_columns(pictures):
    X, y = pictures
    grown = grow(X[:1000], y[:1000], 0.05)
    percent = accuracy(grown.model, X[1000:], y[1000:])
    assert percent == 100.0
    assert accuracy(grown.model, X[1000:], (y[1000:] + 1) % 10) == 0.0


def test_a_pass_without_labels_has_the_pixels_alone(pictures):
    X, y = pictures
    grown = grow(X[:1000], None, 0.05)
    assert grown.model.n_features_in_ == 20
    assert purity(np.asarray(grown.model.predict(X[1000:] / 255.0)), y[1000:]) == 100.0
