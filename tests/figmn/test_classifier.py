"""FIGMNClassifier: one mixture over inputs and indicators; columns for classes that come late; files."""

import numpy as np
import pytest

from everlearn import FIGMN, FIGMNClassifier, IncrementalGaussianMixtureClassifier
from everlearn.errors import DivergenceWarning, ModelFileError
from everlearn.figmn.classifier import insert_column
from everlearn.persistence.model_file import dumps, loads


def three_classes(n=400, gaps=0.0):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 4)) @ np.diag([1.0, 2.0, 0.5, 1.0]) + 2.0 * np.eye(4)[y]
    X[rng.random(X.shape) < gaps] = np.nan
    return X, np.array(["ash", "birch", "cedar"])[y]


def test_one_mixture_with_indicators():
    X, y = three_classes(gaps=0.1)
    model = IncrementalGaussianMixtureClassifier.paper().fit(X, y)
    assert type(model) is FIGMNClassifier
    indicators = (y[:, None] == np.unique(y)).astype(float)
    mixture = FIGMN().fit(np.hstack([X, indicators]))
    expected = np.maximum(mixture.predict_columns(X, [4, 5, 6], given=[0, 1, 2, 3]), 1e-9)
    assert np.allclose(model.predict_proba(X), expected / expected.sum(axis=1, keepdims=True))
    assert model.n_components_ == mixture.n_components_


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_late_column_of_zeros_is_as_if_it_had_always_been_there(covariance_type):
    X, _ = three_classes(100)
    X[::7, 1] = np.nan
    late = FIGMN(beta=0.0, scale=[1.0, 2.0, 0.5, 1.0], covariance_type=covariance_type).fit(X)
    insert_column(late, 3, 3)
    early = FIGMN(beta=0.0, scale=[1.0, 2.0, 0.5, 0.5, 1.0], covariance_type=covariance_type)
    early.fit(np.insert(X, 3, 0.0, axis=1))
    ratio = late._frame_.variance[3] / early._frame_.variance[3]
    ratio *= (late._frame_.scale[3] / early._frame_.scale[3]) ** 2
    assert np.allclose(late.means_, early.means_)
    expected = early.covariances_.copy()
    expected[(0, 3) if covariance_type == "diag" else (0, 3, 3)] *= ratio
    assert np.allclose(late.covariances_, expected)


def test_a_class_that_comes_while_the_scale_is_unknown():
    """Rows that are held get the column, too: the same as if the class had been announced."""
    X, y = three_classes(150)
    late = FIGMNClassifier().partial_fit(X[y != "cedar"][:40], y[y != "cedar"][:40])
    told = FIGMNClassifier().partial_fit(X[y != "cedar"][:40], y[y != "cedar"][:40], classes=np.unique(y))
    for model in (late, told):
        model.partial_fit(X, y)
    assert np.array_equal(late.predict_proba(X), told.predict_proba(X))


def test_printed_update_is_reported():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)) ** 3, np.repeat(["a", "b"], 40)
    with pytest.warns(DivergenceWarning, match="eq. 11"):
        FIGMNClassifier(update="paper", beta=1e-9, delta=0.01).fit(X, y)


def test_files_hold_what_was_learned():
    X, y = three_classes()
    model = FIGMNClassifier().partial_fit(X[:300], y[:300])
    loaded = loads(dumps(model))
    for each in (model, loaded):
        each.partial_fit(X[300:], y[300:])
    assert np.array_equal(model.predict_proba(X), loaded.predict_proba(X))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("_class_counts_", lambda a: a[:-1]),
        ("_joint_", lambda joint: None),
        ("_joint_", lambda joint: FIGMN().fit(np.eye(4))),
        ("classes_", lambda a: a[::-1].copy()),
        ("classes_", lambda a: None),
    ],
)
def test_damaged_files_are_refused(name, change):
    model = FIGMNClassifier().fit(*three_classes(100))
    model._check_loaded()
    setattr(model, name, change(getattr(model, name)))
    with pytest.raises(ModelFileError):
        model._check_loaded()
