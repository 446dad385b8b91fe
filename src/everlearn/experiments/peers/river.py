"""river's models, which take one dict at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from everlearn.experiments.peers.adapter import Contender, Model, Supervised, gaussian_log_density
from everlearn.experiments.peers.scikit_learn import gaussian_interval
from everlearn.typing import Array

PACKAGE = "river"
Row = dict[int, float]


def dicts(X: Array) -> list[Row]:
    """Rows as river takes them; a gap is a feature that is not there."""
    return [{j: v for j, v in enumerate(row) if v == v} for row in X.tolist()]


class TakesDicts(Model):
    """A model whose rows are dicts."""

    def pieces(self, X: Array, size: int) -> list[Any]:
        """Batches as lists of dicts."""
        rows = dicts(X)
        return [rows[start : start + size] for start in range(0, len(rows), size)]


class OneByOne(TakesDicts):
    """A model that takes one row at a time, whatever the size of the batch."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, piece: list[Row]) -> None:
        """Go on learning."""
        learn_one = self.model.learn_one
        for row in piece:
            learn_one(row)

    def fit(self, X: Array) -> None:
        """Learn all rows in one pass."""
        self.learn(dicts(X))


class Precision(OneByOne):
    """EmpiricalPrecision: one Gaussian."""

    def __init__(self) -> None:
        self.model = _named("covariance.EmpiricalPrecision")

    def learn(self, piece: list[Row]) -> None:
        """Go on learning."""
        update = self.model.update
        for row in piece:
            update(row)

    def fit(self, X: Array) -> None:
        """Learn all rows in one pass."""
        super().fit(X)
        # EmpiricalPrecision gives no mean; that of its rows is what it would have.
        self.mean = np.nanmean(X, axis=0)

    def log_density(self, X: Array) -> Array:
        """Log-density of rows under the Gaussian of its precision and the mean of the rows learned."""
        names = range(X.shape[1])
        precision = np.array([[self.model[i, j] for j in names] for i in names], dtype=float)
        return gaussian_log_density(X, self.mean, precision)


class Detector(OneByOne):
    """An anomaly detector."""

    def score_then_learn(self, X: Array) -> Array:
        """Score of each row before it was learned."""
        scores = np.empty(len(X))
        for i, row in enumerate(dicts(X)):
            scores[i] = self.model.score_one(row)
            self.model.learn_one(row)
        return scores


class Scorers(Model):
    """A GaussianScorer for each column; the oddest column makes the score."""

    def __init__(self) -> None:
        from river.anomaly import GaussianScorer

        self._new = GaussianScorer
        self.model: list[Any] = []

    def learn(self, piece: Array) -> None:
        """Go on learning."""
        self.model = self.model or [self._new() for _ in range(piece.shape[1])]
        for row in piece.tolist():
            for scorer, value in zip(self.model, row, strict=True):
                scorer.learn_one(None, value)

    fit = learn

    def score_then_learn(self, X: Array) -> Array:
        """Largest score of a column, before the row was learned."""
        self.model = [self._new() for _ in range(X.shape[1])]
        scores = np.empty(len(X))
        for i, row in enumerate(X.tolist()):
            pairs = list(zip(self.model, row, strict=True))
            scores[i] = max(scorer.score_one(None, value) for scorer, value in pairs)
            for scorer, value in pairs:
                scorer.learn_one(None, value)
        return scores


class Statistics(OneByOne):
    """StatImputer with the mean of each column."""

    def __init__(self) -> None:
        self.model = None

    def fit(self, X: Array) -> None:
        """Learn all rows in one pass."""
        from river import preprocessing, stats

        self.model = preprocessing.StatImputer(*((j, stats.Mean()) for j in range(X.shape[1])))
        for row in _with_none(X):
            self.model.learn_one(row)

    def impute(self, X: Array) -> Array:
        """Rows without gaps."""
        columns = range(X.shape[1])
        filled = (self.model.transform_one(row) for row in _with_none(X))  # type: ignore[attr-defined]
        return np.array([[row[j] for j in columns] for row in filled])


class Classifier(TakesDicts, Supervised):
    """A classifier."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, piece: list[Row], y: Array) -> None:
        """Learn in one pass."""
        self.n_classes = int(y.max()) + 1
        for row, label in zip(piece, y.tolist(), strict=True):
            self.model.learn_one(row, label)

    def probabilities(self, X: Array) -> Array:
        """Probability of each class; 0 for those that it does not name."""
        found = [self.model.predict_proba_one(row) for row in dicts(X)]
        return np.array([[told.get(label, 0.0) for label in range(self.n_classes)] for told in found])


class Regressor(TakesDicts, Supervised):
    """A regression without a distribution."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, piece: list[Row], y: Array) -> None:
        """Learn in one pass."""
        for row, value in zip(piece, y.tolist(), strict=True):
            self.model.learn_one(row, value)

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean, without limits of an interval."""
        none = np.full(len(X), np.nan)
        return np.array([self.model.predict_one(row) for row in dicts(X)]), none, none


class Linear(TakesDicts, Supervised):
    """A regression behind a StandardScaler; with a distribution where it gives one."""

    def __init__(self, name: str, with_interval: bool) -> None:
        from river import linear_model, preprocessing

        self.scaler, self.model = preprocessing.StandardScaler(), getattr(linear_model, name)()
        self.with_interval = with_interval

    def learn(self, piece: list[Row], y: Array) -> None:
        """Learn all rows in one pass."""
        for row, value in zip(piece, y.tolist(), strict=True):
            self.scaler.learn_one(row)
            self.model.learn_one(self.scaler.transform_one(row), value)

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean and limits of the 90 % interval; limits are NaN where there is no distribution."""
        rows = [self.scaler.transform_one(row) for row in dicts(X)]
        if not self.with_interval:
            mean, std = np.array([self.model.predict_one(row) for row in rows]), np.full(len(rows), np.nan)
        else:
            found = [self.model.predict_one(row, with_dist=True) for row in rows]
            mean, std = np.array([d.mu for d in found]), np.array([d.sigma for d in found])
        return gaussian_interval(mean, std)


class Drift(Model):
    """A drift detector for each column; an alarm of any is an alarm."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def alarms(self, X: Array) -> list[int]:
        """Rows at which a change was noticed."""
        return sorted({i for column in X.T.tolist() for i in self._of_column(column)})

    def _of_column(self, values: list[float]) -> list[int]:
        detector, found = self.make(), []
        for i, value in enumerate(values):
            detector.update(value)
            if detector.drift_detected:
                found.append(i)
        return found


def _with_none(X: Array) -> list[dict[int, float | None]]:
    return [{j: None if math.isnan(v) else v for j, v in enumerate(row)} for row in X.tolist()]


def _named(path: str, **settings: Any) -> Any:
    """A new object of river's."""
    import importlib

    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(f"river.{module}"), name)(**settings)


def _clusterer(name: str, **settings: Any) -> Contender:
    return Contender(name, PACKAGE, lambda: OneByOne(_named(f"cluster.{name}", **settings)))


def _detector(name: str) -> Contender:
    def make() -> Detector:
        return Detector(_named("preprocessing.MinMaxScaler") | _named(f"anomaly.{name}", seed=0))

    return Contender(name, PACKAGE, make, "behind a MinMaxScaler")


def _drift(name: str, **settings: Any) -> Contender:
    return Contender(name, PACKAGE, lambda: Drift(lambda: _named(f"drift.{name}", **settings)), "one for each column")


PRECISION = Contender("EmpiricalPrecision", PACKAGE, Precision, joint=True)
SCORERS = Contender("GaussianScorer", PACKAGE, Scorers, "one for each column, the largest score")
TREES = _detector("HalfSpaceTrees")
LODA = _detector("LODA")


def _one_class_svm() -> Detector:
    return Detector(_named("preprocessing.StandardScaler") | _named("anomaly.OneClassSVM"))


SVM = Contender("OneClassSVM", PACKAGE, _one_class_svm, "behind a StandardScaler")

BAYESIAN = Contender("BayesianLinearRegression", PACKAGE, lambda: Linear("BayesianLinearRegression", True), "scaled")
LINEAR = Contender("LinearRegression", PACKAGE, lambda: Linear("LinearRegression", False), "scaled")


def _classifier(name: str, path: str, **settings: Any) -> Contender:
    return Contender(name, PACKAGE, lambda: Classifier(_named(f"{path}.{name}", **settings)))


CONTENDERS = {
    "classification": [
        _classifier("GaussianNB", "naive_bayes"),
        _classifier("HoeffdingTreeClassifier", "tree"),
        _classifier("ARFClassifier", "forest", seed=0),
    ],
    "regression": [
        LINEAR,
        BAYESIAN,
        Contender("ARFRegressor", PACKAGE, lambda: Regressor(_named("forest.ARFRegressor", seed=0))),
    ],
    "speed": [
        PRECISION,
        SCORERS,
        TREES,
        LODA,
        _clusterer("KMeans", seed=0),
        _clusterer("STREAMKMeans", seed=0),
        _clusterer("DBSTREAM"),
        _clusterer("CluStream", seed=0)._replace(slow=True),
    ],
    "density": [PRECISION],
    "missing": [PRECISION, Contender("StatImputer", PACKAGE, Statistics, "means")],
    "conditional": [BAYESIAN, LINEAR],
    "anomaly": [TREES, LODA, SCORERS, SVM],
    "change": [_drift("ADWIN"), _drift("PageHinkley"), _drift("KSWIN", seed=0)._replace(slow=True)],
}
