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
    """:class:`everlearn.AnomalyDetector` for a stream of dicts: the score is -log of the p-value.

    A score of 6.9 is one in a thousand: it can be compared with a threshold that means something.

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
    >>> from everlearn.river.detector import StreamAnomalyDetector
    >>> detector = StreamAnomalyDetector()
    >>> for i in range(400):
    ...     detector.learn_one({"heat": float(i % 10), "load": float(i % 3)})
    >>> detector.score_one({"heat": 4.0, "load": 1.0}) < detector.score_one({"heat": 40.0, "load": 1.0})
    True
    """

    _default: ClassVar[type[StreamEstimator]] = AnomalyDetector
    _needs: ClassVar[tuple[str, ...]] = ("score_samples",)

    def score_one(self, x: Features) -> float:
        """-log p-value of the features as the next of the stream; 0 while too little was learned."""
        return float(self._scores(Dicts([x]))[0])

    def score_many(self, X: Any) -> Any:
        """-log p-value of each row: a list, or a series if X is a data frame."""
        batch = batch_of(X)
        return batch.series(self._scores(batch))

    def _scores(self, batch: Batch) -> Array:
        return -self._ask("score_samples", batch, np.zeros(len(batch)))
