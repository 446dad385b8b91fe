"""Classes and numbers predicted from a stream of dicts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from everlearn.base.estimator import StreamEstimator
from everlearn.errors import InputError, require
from everlearn.mixture.classifier import IncrementalGaussianMixtureClassifier
from everlearn.mixture.regressor import IncrementalGaussianMixtureRegressor
from everlearn.river.batches import Dicts, Features, batch_of, rows_of
from everlearn.river.learner import Batch, Learner
from everlearn.typing import Array

require("river", extra="river")

from river import base, conf  # noqa: E402 (the line above says which extra brings it)


class Supervised(Learner):
    """Learning with targets."""

    @property
    def _supervised(self) -> bool:
        return True

    def learn_one(self, x: Features, y: Any, w: float = 1.0) -> None:
        """Learn a dict of features and its target.

        Parameters
        ----------
        x : dict
            Features; one that is missing, None or NaN was not observed.
        y : bool, int, float or str
            The target.
        w : float, default=1.0
            Weight of the row.
        """
        self._learn(Dicts([x]), [y], None if w == 1.0 else [w])

    def learn_many(self, X: Any, y: Any, w: Any = None) -> None:
        """Learn many rows, to the same effect as one after the other.

        Parameters
        ----------
        X : list of dict, or data frame
            Rows.
        y : list or series
            Their targets.
        w : array-like, optional
            Weight of each row.
        """
        batch, targets = batch_of(X), list(y)
        if len(targets) != len(batch):
            raise InputError(f"y has {len(targets)} targets; X has {len(batch)} rows. Give one target per row.")
        self._learn(batch, targets, w)


class Classifier(Supervised, base.MiniBatchClassifier):
    """Classes of a stream of dicts; a new class may come at any time.

    Parameters
    ----------
    model : estimator, optional
        The model, of which the adapter learns a copy; IncrementalGaussianMixtureClassifier() by default. One that has
        learned already goes on from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others are ignored.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns; see :class:`Density`.

    Examples
    --------
    >>> from everlearn.river import Classifier
    >>> classifier = Classifier()
    >>> for i in range(100):
    ...     classifier.learn_one({"heat": 20.0 + i % 7, "load": 1.0 + i % 3}, "idle")
    ...     classifier.learn_one({"heat": 60.0 + i % 7, "load": 5.0 + i % 3}, "busy")
    >>> classifier.predict_one({"heat": 62.0})
    'busy'
    """

    _default: ClassVar[type[StreamEstimator]] = IncrementalGaussianMixtureClassifier
    _needs: ClassVar[tuple[str, ...]] = ("predict_log_proba",)

    @property
    def _multiclass(self) -> bool:
        return True

    def predict_proba_one(self, x: Features, **kwargs: Any) -> dict[Any, float]:
        """Probability of each class; empty while nothing was learned.

        Parameters
        ----------
        x : dict
            Features.
        **kwargs : dict
            Not used; river passes what other classifiers need.

        Returns
        -------
        dict
            Probabilities by class.
        """
        probabilities: dict[Any, float] = self.predict_proba_many([x])[0]
        return probabilities

    def predict_proba_many(self, X: Any) -> Any:
        """Probability of each class for each row: a list of dicts, or a data frame if X is one."""
        batch = batch_of(X)
        return batch.frame(self._probabilities(batch), self._classes().tolist())

    def predict_many(self, X: Any) -> Any:
        """Most probable class of each row, None while nothing was learned: a list, or a series if X is a data frame."""
        batch, classes = batch_of(X), self._classes()
        if not len(classes):
            return batch.series(np.full(len(batch), None))
        return batch.series(classes[np.argmax(self._probabilities(batch), axis=1)])

    def _classes(self) -> Any:
        return self._model.classes_ if self._model._is_started() else np.empty(0)  # type: ignore[attr-defined]

    def _probabilities(self, batch: Batch) -> Array:
        return self._ask("predict_proba", batch, np.empty((len(batch), len(self._classes()))))


class Regressor(Supervised, base.MiniBatchRegressor):
    """Numbers predicted from a stream of dicts.

    Parameters
    ----------
    model : estimator, optional
        The model, of which the adapter learns a copy; IncrementalGaussianMixtureRegressor() by default. One that has
        learned already goes on from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others are ignored.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns; see :class:`Density`.

    Examples
    --------
    >>> from everlearn.river import Regressor
    >>> regressor = Regressor()
    >>> for i in range(300):
    ...     regressor.learn_one({"inlet": float(i % 9), "room": float(i % 5)}, 2.0 * (i % 9))
    >>> round(regressor.predict_one({"inlet": 3.0}), 1)
    6.0
    >>> 6.0 in regressor.predict_one({"inlet": 3.0}, with_interval=True)
    True
    """

    _default: ClassVar[type[StreamEstimator]] = IncrementalGaussianMixtureRegressor
    _needs: ClassVar[tuple[str, ...]] = ("predict_interval",)

    def predict_one(self, x: Features, *, with_interval: bool = False, coverage: float = 0.9) -> Any:
        """Expectation of the target given the observed features; 0 while nothing was learned.

        Parameters
        ----------
        x : dict
            Features.
        with_interval : bool, default=False
            Whether to give the central interval of the target instead, as the learners of `river.conf` do.
        coverage : float, default=0.9
            Probability inside the interval.

        Returns
        -------
        float or river.conf.Interval
            The expectation or the interval, which is all numbers while nothing was learned.
        """
        if not with_interval:
            return float(self._ask("predict", Dicts([x]), np.zeros(1))[0])
        if not self._model._is_started():
            return conf.Interval(-np.inf, np.inf)
        low, high = self._model.predict_interval(rows_of([x], self._names), coverage)  # type: ignore[attr-defined]
        return conf.Interval(float(low[0]), float(high[0]))

    def predict_many(self, X: Any) -> Any:
        """Expectation of each row's target: a list, or a series if X is a data frame."""
        batch = batch_of(X)
        return batch.series(self._ask("predict", batch, np.zeros(len(batch))))
