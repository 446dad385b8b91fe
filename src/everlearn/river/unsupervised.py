"""Density, anomalies and clusters of a stream of dicts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np

from everlearn.base.estimator import StreamEstimator
from everlearn.errors import require
from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.ppca.base import PPCABase
from everlearn.river.batches import Dicts, Features, batch_of
from everlearn.river.learner import Batch, Learner
from everlearn.typing import Array

require("river", extra="river")

from river import base  # noqa: E402 (the line above says which extra brings it)


class Unsupervised(Learner):
    """Learning without targets."""

    _default: ClassVar[type[StreamEstimator]] = IncrementalGaussianMixture

    @property
    def _supervised(self) -> bool:
        return False

    def learn_one(self, x: Features, w: float = 1.0) -> None:
        """Learn a dict of features.

        Parameters
        ----------
        x : dict
            Features; one that is missing, None or NaN was not observed.
        w : float, default=1.0
            Weight of the row, for models that weigh their rows.
        """
        self._learn(Dicts([x]), w=None if w == 1.0 else [w])

    def learn_many(self, X: Any, w: Any = None) -> None:
        """Learn many rows, to the same effect as one after the other.

        Parameters
        ----------
        X : list of dict, or data frame
            Rows.
        w : array-like, optional
            Weight of each row.
        """
        self._learn(batch_of(X), w=w)


class Density(Unsupervised, base.Estimator):
    """The density of a stream of dicts.

    A feature that a dict lacks was not observed. Every feature of the first `grace_period` rows becomes a column of the
    model, as if it had been known from the start; those that come later are ignored, with a warning.

    Parameters
    ----------
    model : estimator, optional
        The model, of which the adapter learns a copy; IncrementalGaussianMixture() by default. One that has learned
        already goes on from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others are ignored.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns.

    Examples
    --------
    >>> from everlearn.river import Density
    >>> density = Density()
    >>> for i in range(300):
    ...     density.learn_one({"heat": float(i % 10), "load": float(i % 3)})
    >>> density.score_one({"heat": 4.0}) > density.score_one({"heat": 40.0})
    True
    """

    _needs: ClassVar[tuple[str, ...]] = ("score_samples",)

    def score_one(self, x: Features) -> float:
        """Log-density of the observed features; NaN while nothing was learned."""
        return float(self._scores(Dicts([x]))[0])

    def score_many(self, X: Any) -> Any:
        """Log-density of each row: a list, or a series if X is a data frame."""
        batch = batch_of(X)
        return batch.series(self._scores(batch))

    def _scores(self, batch: Batch) -> Array:
        return self._ask("score_samples", batch, np.full(len(batch), np.nan))


class AnomalyDetector(Unsupervised, base.AnomalyDetector):
    """Anomalies in a stream of dicts: rows that are improbable after all that came before.

    The surprise of a row is the negative log-density of the observed features x_j, less its expectation for independent
    Gaussian features of the same spread s_j: r = -log p(x) - sum_j log(s_j sqrt(2 pi e)) nats. So it does not depend on
    units, and rows that lack different features compare. The score is (1 + r / (1 + |r|)) / 2, between 0 and 1 and in
    the order of r, as `river.metrics.ROCAUC` takes it: 0.5 is typical, 0.9 stands for 4 nats, 0.99 for 49.

    A flexible model comes to expect anomalies that keep coming: it gives them components of their own. A single
    Gaussian, IncrementalGaussianMixture(1), goes on finding them odd. The first 10 + 2 D rows of D features score 0:
    densities of so few rows say that nearly every further row is odd.

    Parameters
    ----------
    model : estimator, optional
        The model, of which the adapter learns a copy; IncrementalGaussianMixture() by default. One that has learned
        already goes on from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others are ignored.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns; see :class:`Density`.

    Examples
    --------
    >>> from everlearn.river import AnomalyDetector
    >>> detector = AnomalyDetector()
    >>> for i in range(300):
    ...     detector.learn_one({"heat": float(i % 10), "load": float(i % 3)})
    >>> detector.score_one({"heat": 4.0}) < 0.8 < detector.score_one({"heat": 40.0, "load": 1.0})
    True
    """

    _needs: ClassVar[tuple[str, ...]] = ("score_samples",)

    def score_one(self, x: Features) -> float:
        """How anomalous the features are, from 0 to 1, higher for the odder; 0 while too little is known or given."""
        return float(self._scores(Dicts([x]))[0])

    def score_many(self, X: Any) -> Any:
        """How anomalous each row is, from 0 to 1, higher for the odder: a list, or a series if X is a data frame."""
        batch = batch_of(X)
        return batch.series(self._scores(batch))

    def _scores(self, batch: Batch) -> Array:
        if not len(batch) or not self._has_settled():
            return np.zeros(len(batch))
        rows = batch.rows(self._names)
        observed = ~np.isnan(rows)
        # Entropy of independent Gaussians over the columns that are observed, row by row.
        typical = observed @ (_log_spread(self._model) + 0.5 * np.log(2 * np.pi * np.e))
        surprise = -self._model.score_samples(rows) - typical  # type: ignore[attr-defined]
        score = 0.5 * (1.0 + surprise / (1.0 + np.abs(surprise)))
        # A row without a value is neither usual nor odd.
        return np.where(observed.any(axis=1), score, 0.0)

    def _has_settled(self) -> bool:
        """Whether the model has learned enough rows for its densities to tell usual rows from odd ones."""
        model = self._model
        return model._is_started() and model.n_samples_seen_ >= 10 + 2 * model.n_features_in_  # type: ignore[attr-defined]


def _log_spread(model: StreamEstimator) -> Array:
    """Logarithm of the standard deviation of each column, as the model sees it."""
    if isinstance(model, IncrementalGaussianMixture):
        # One question, so that weights and means are of the same moment: the mixture goes on searching between two.
        n = model.n_features_in_
        return np.asarray(np.log(model.condition(np.full((1, n), np.nan), target=np.arange(n)).std()[0]))
    if isinstance(model, PPCABase):
        return 0.5 * np.log(np.square(model.loadings_).sum(axis=1) + model.noise_variance_)
    return np.zeros(model.n_features_in_)


class Clusterer(Unsupervised, base.Clusterer):
    """Clusters of a stream of dicts: the components of a mixture, as many as the stream needs.

    Components that come to differ little are merged, so that the number of a cluster can change as the stream goes on.

    Parameters
    ----------
    model : estimator, optional
        The model, of which the adapter learns a copy; IncrementalGaussianMixture() by default. One that has learned
        already goes on from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others are ignored.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns; see :class:`Density`.

    Examples
    --------
    >>> from everlearn import IncrementalGaussianMixture
    >>> from everlearn.river import Clusterer
    >>> clusterer = Clusterer(IncrementalGaussianMixture())
    >>> for i in range(400):
    ...     clusterer.learn_one({"heat": (i % 7) / 7 + 50 * (i % 2), "load": (i % 5) / 5})
    >>> clusterer.predict_one({"heat": 0.5}) == clusterer.predict_one({"heat": 50.5})
    False
    """

    _needs: ClassVar[tuple[str, ...]] = ("predict_proba", "means_")

    @property
    def centers(self) -> dict[int, dict[Hashable, float]]:
        """Centre of each cluster."""
        if not self._model._is_started():
            return {}
        means = self._model.means_.tolist()  # type: ignore[attr-defined]
        return {i: dict(zip(self._names, mean, strict=True)) for i, mean in enumerate(means)}

    def predict_one(self, x: Features) -> int:
        """Number of the features' cluster; 0 while nothing was learned."""
        return int(self._ask("predict", Dicts([x]), np.zeros(1))[0])

    def predict_many(self, X: Any) -> Any:
        """Number of each row's cluster: a list, or a series if X is a data frame."""
        batch = batch_of(X)
        return batch.series(self._ask("predict", batch, np.zeros(len(batch))).astype(np.int64))

    def predict_proba_one(self, x: Features) -> dict[int, float]:
        """Probability of each cluster, by its number; empty while nothing was learned."""
        return dict(enumerate(self._ask("predict_proba", Dicts([x]), np.empty((1, 0)))[0].tolist()))
