"""The anomaly detector in a stream of dicts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.base.estimator import StreamEstimator
from everlearn.errors import require
from everlearn.river.batches import Dicts, Features, batch_of
from everlearn.river.learner import Batch
from everlearn.river.unsupervised import Unsupervised
from everlearn.typing import Array

require("river", extra="river")

from river import base  # noqa: E402 (the line above says which extra brings it)


class StreamAnomalyDetector(Unsupervised, base.AnomalyDetector):
    """:class:`everlearn.AnomalyDetector` for a stream of dicts.

    The score is L / (1 + L) with L the negative logarithm of the p-value: between 0 and 1 and in the order of the
    p-values, as `river.metrics.ROCAUC` takes it; 0.874 is one in a thousand, 0.902 one in ten thousand. `p_value_one`
    gives the p-value itself, which can be compared with a rate of false alarms.

    Parameters
    ----------
    model : estimator, optional
        The detector, of which the adapter learns a copy; AnomalyDetector() by default. One that has learned already
        goes on from there.
    features : list, optional
        The features in the columns of the model, where they are known; all others are ignored.
    grace_period : int, default=200
        Number of rows, from the first one that has a value, in which features become columns.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn.river.detector import StreamAnomalyDetector
    >>> detector = StreamAnomalyDetector()
    >>> for heat, load in np.random.default_rng(0).normal([60.0, 2.0], [5.0, 0.3], size=(400, 2)):
    ...     detector.learn_one({"heat": heat, "load": load})
    >>> detector.score_one({"heat": 62.0, "load": 2.1}) < detector.score_one({"heat": 120.0, "load": 2.1}) < 1.0
    True
    >>> detector.p_value_one({"heat": 62.0, "load": 2.1}) > 0.01
    True
    """

    _default: ClassVar[type[StreamEstimator]] = AnomalyDetector
    _needs: ClassVar[tuple[str, ...]] = ("score_samples",)

    def score_one(self, x: Features) -> float:
        """How anomalous the features are as the next of the stream, from 0 to 1; 0 while too little was learned."""
        return float(self._scores(Dicts([x]))[0])

    def score_many(self, X: Any) -> Any:
        """How anomalous each row is, from 0 to 1: a list, or a series if X is a data frame."""
        batch = batch_of(X)
        return batch.series(self._scores(batch))

    def p_value_one(self, x: Features) -> float:
        """Probability of features as odd as these in a stream without anomalies; 1 while too little was learned."""
        return float(np.exp(-self._surprise(Dicts([x]))[0]))

    def _scores(self, batch: Batch) -> Array:
        surprise = self._surprise(batch)
        return surprise / (1.0 + surprise)

    def _surprise(self, batch: Batch) -> Array:
        """-log p-value of each row."""
        # A p-value that rounds to slightly more than 1 would give a negative score.
        return np.maximum(-self._ask("score_samples", batch, np.zeros(len(batch))), 0.0)
