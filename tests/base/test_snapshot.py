"""Copies of states."""

import copy
import io
import pickle
from typing import NamedTuple

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags

import everlearn
from everlearn.base.snapshot import copied
from toys import fitted


class Pair(NamedTuple):
    a: np.ndarray
    b: object


def test_nothing_is_shared():
    inner = Pair(np.zeros(3), None)
    value = Pair(np.ones(2), [inner, (1, 2.5, "x"), {"k": np.zeros(1)}, np.array([[1], "a"], dtype=object)])
    twin = copied(value)
    assert type(twin) is Pair
    assert type(twin.b[0]) is Pair
    for array in (value.a, inner.a, value.b[2]["k"]):
        array += 7
    value.b[3][0].append(2)
    assert twin.a.tolist() == [1, 1]
    assert twin.b[0].a.tolist() == [0, 0, 0]
    assert twin.b[2]["k"].tolist() == [0]
    assert twin.b[3].tolist() == [[1], "a"]


def test_models_and_memory_order():
    model = fitted()
    assert copied(model) is not model
    assert copied(np.asfortranarray(np.ones((3, 2)))).flags.f_contiguous


def rows_of_two_groups(n):
    rng = np.random.default_rng(4)
    return rng.normal(size=(n, 3)) + 6.0 * (rng.random((n, 1)) < 0.5)


def labels_of(X):
    return (X[:, 0] > 3.0).astype(int)


def by_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


WAYS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "deepcopy": copy.deepcopy,
    "joblib": by_joblib,
}
ESTIMATORS = {
    "mixture": everlearn.IncrementalGaussianMixture(),
    "adaptive": everlearn.IncrementalGaussianMixture(forgetting="adaptive"),
    "diagonal": everlearn.IncrementalGaussianMixture(covariance_type="diag"),
    "figmn": everlearn.FIGMN(),
    "classifier": everlearn.IncrementalGaussianMixtureClassifier(),
    "FIGMN classifier": everlearn.FIGMNClassifier(),
    "regressor": everlearn.IncrementalGaussianMixtureRegressor(),
    "ppca": everlearn.OnlinePPCA(1),
    "variational": everlearn.VariationalPPCA(1),
    "anomaly": everlearn.AnomalyDetector(),
}


def teach(model, X):
    targets = {"classifier": labels_of, "regressor": lambda X: X @ [1.0, -1.0, 2.0]}.get(get_tags(model).estimator_type)
    for at in range(len(X)):
        row = X[at : at + 1]
        model.partial_fit(row, None if targets is None else targets(row))


def answers_of(model, X):
    names = ("score_samples", "predict_proba", "predict")
    return np.asarray(getattr(model, next(name for name in names if hasattr(model, name)))(X))


# Searches of these take long: while they warm up, and with the slow tests, after it.
SEARCHING = ("adaptive", "diagonal", "classifier", "regressor")


def cases():
    for name in ESTIMATORS:
        for rows in (30, 460):
            yield pytest.param(name, rows, marks=pytest.mark.slow if rows == 460 and name in SEARCHING else ())


@pytest.mark.parametrize(("name", "rows"), list(cases()))
def test_models_taught_row_by_row_can_be_copied(name, rows):
    """During the warm-up, and with searches and compiled references at hand; the copies go on learning as the model."""
    X = rows_of_two_groups(rows + 40)
    model = clone(ESTIMATORS[name])
    teach(model, X[: rows - 10])
    answers_of(model, X[:5])
    teach(model, X[rows - 10 : rows])
    copies = [way(model) for way in WAYS.values()]
    saved = everlearn.dumps(model)
    assert [everlearn.dumps(one) == saved for one in copies] == [True] * len(copies)
    for one in (model, *copies):
        teach(one, X[rows:])
    assert [everlearn.dumps(one) == everlearn.dumps(model) for one in copies] == [True] * len(copies)
    first, *others = (answers_of(one, X[:20]) for one in (model, *copies))
    for other in others:
        np.testing.assert_array_equal(other, first)
