"""Adapters of everlearn's own models, with their defaults."""

from __future__ import annotations

from typing import Any

import numpy as np

import everlearn
from everlearn.experiments.peers.adapter import OURS, Contender, Model, Supervised
from everlearn.typing import Array

FIRST = "IncrementalGaussianMixture"
SHOWN = (FIRST, f"{FIRST}Classifier", f"{FIRST}Regressor", "AnomalyDetector")
"""The model that the summary sets beside the peers; where a column has several of them, the first."""


class Streaming(Model):
    """Any of the unsupervised models."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def learn(self, piece: Array) -> None:
        """Learn a batch."""
        self._limit_axes(piece)
        self.model.partial_fit(piece)

    def _limit_axes(self, X: Array) -> None:
        """At most as many principal axes as there are columns: the default of two does not fit a single column."""
        if isinstance(self.model, (everlearn.OnlinePPCA, everlearn.VariationalPPCA)):
            self.model.set_params(n_components=min(self.model.n_components, X.shape[1]))

    fit = learn

    def log_density(self, X: Array) -> Array:
        """Log-density of rows."""
        return np.asarray(self.model.score_samples(X))

    def impute(self, X: Array) -> Array:
        """Rows without gaps."""
        return np.asarray(self.model.impute(X))

    def score_then_learn(self, X: Array) -> Array:
        """Anomaly score of each row before it was learned: the negative log-density."""
        self._limit_axes(X)
        if hasattr(self.model, "prequential"):
            return -np.asarray(self.model.prequential(X))
        scores = np.full(len(X), np.nan)
        for i, row in enumerate(self.pieces(X, 1)):
            if hasattr(self.model, "n_features_in_"):
                scores[i] = -self.model.score_samples(row)[0]
            self.model.partial_fit(row)
        return scores

    def alarms(self, X: Array) -> list[int]:
        """Rows at which a change was noticed."""
        self._limit_axes(X)
        if hasattr(type(self.model), "events_"):
            self.model.partial_fit(X)
            return [event.row for event in self.model.events_ if event.kind == "change"]
        return self._rows_when_changes_grow(X)

    def _rows_when_changes_grow(self, X: Array) -> list[int]:
        """`changes_` says when a change began; the alarm is the row after which it stands there."""
        known, found = 0, []
        for i, row in enumerate(self.pieces(X, 1)):
            self.model.partial_fit(row)
            if len(self.model.changes_) > known:
                known = len(self.model.changes_)
                found.append(i)
        return found


class Detector(Model):
    """The anomaly detector."""

    def __init__(self) -> None:
        self.model = everlearn.AnomalyDetector()

    def score_then_learn(self, X: Array) -> Array:
        """-log p-value of each row before it was learned."""
        return -self.model.prequential(X)

    def alarm_ratio(self, scores: Array) -> float:
        """Alarms among scores of usual rows, over the number that was asked for."""
        return float(np.mean(-scores < self.model.offset_) / self.model.false_alarm_rate)


class Answering(Supervised):
    """A mixture asked for its last column."""

    def learn(self, piece: Array, y: Array) -> None:
        """Learn in one pass."""
        self.model = everlearn.IncrementalGaussianMixture().partial_fit(np.column_stack([piece, y]))

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean and limits of the 90 % interval."""
        question = np.column_stack([X, np.full(len(X), np.nan)])
        mean, (low, high) = self.model.predict_columns(question, target=[X.shape[1]], interval=0.9)
        return mean[:, 0], low[:, 0], high[:, 0]


class Classification(Supervised):
    """The classifier."""

    def learn(self, piece: Array, y: Array) -> None:
        """Learn in one pass."""
        self.model = everlearn.IncrementalGaussianMixtureClassifier().partial_fit(piece, y)

    def probabilities(self, X: Array) -> Array:
        """Probability of each class."""
        return np.asarray(self.model.predict_proba(X))


class Regression(Supervised):
    """The regressor."""

    def learn(self, piece: Array, y: Array) -> None:
        """Learn in one pass."""
        self.model = everlearn.IncrementalGaussianMixtureRegressor().partial_fit(piece, y)

    def predict(self, X: Array) -> tuple[Array, Array, Array]:
        """Mean and limits of the 90 % interval."""
        return np.asarray(self.model.predict(X)), *self.model.predict_interval(X, coverage=0.9)


def _streaming(name: str, label: str = "", settings: str = "defaults", **parameters: Any) -> Contender:
    make = lambda: Streaming(getattr(everlearn, name)(**parameters))  # noqa: E731
    return Contender(name + label, OURS, make, settings)


MIXTURE = _streaming(FIRST)
ADAPTIVE = _streaming(FIRST, ", adaptive", 'forgetting="adaptive"', forgetting="adaptive")._replace(slow=True)
DETECTOR = Contender("AnomalyDetector", OURS, Detector)
AXES = "n_components=1 where there is one column"
ONLINE_PPCA = _streaming("OnlinePPCA", settings=AXES)
VARIATIONAL = _streaming("VariationalPPCA", settings=AXES)

CLASSIFIER = Contender(f"{FIRST}Classifier", OURS, Classification)
REGRESSOR = Contender(f"{FIRST}Regressor", OURS, Regression)

CONTENDERS = {
    "speed": [MIXTURE, ONLINE_PPCA, VARIATIONAL],
    "classification": [CLASSIFIER],
    "regression": [REGRESSOR],
    "density": [MIXTURE, ONLINE_PPCA, VARIATIONAL],
    "missing": [MIXTURE, ONLINE_PPCA, VARIATIONAL],
    "conditional": [Contender(FIRST, OURS, Answering, "predict_columns"), REGRESSOR],
    "anomaly": [DETECTOR, MIXTURE, ADAPTIVE, ONLINE_PPCA, VARIATIONAL],
    "change": [MIXTURE, ADAPTIVE, VARIATIONAL],
}
