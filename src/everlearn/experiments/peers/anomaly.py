"""Anomalies: how well scores that were given before learning rank what is labelled."""

from __future__ import annotations

import numpy as np

from everlearn.errors import InputError
from everlearn.experiments.peers.adapter import Array, Contender, Model
from everlearn.experiments.peers.data import Absent, Context, nab, shuttle
from everlearn.experiments.peers.measure import FAILED, NO_DATA, WHY, failure, measured
from everlearn.experiments.peers.table import Measure, Row, Value

NAME = "anomaly"
TITLE = "Anomalies"
ABOUT = (
    "Area under the ROC curve; each row is scored, then learned, and the first 500 are not judged. Shuttle is river's "
    "copy: nine sensors, 7 % anomalies, most of which come in tight groups that keep coming: a density that bends to "
    "every group comes to expect them, one Gaussian does not. NAB: the seven streams of realKnownCause "
    "(two with --quick), the value alone, labelled windows; mean of the areas."
)
MEASURES = [
    Measure("shuttle", "Shuttle", "high", ".3f", headline="anomalies, Shuttle: ROC-AUC"),
    Measure("nab", "NAB", "high", ".3f", headline="anomalies, NAB: ROC-AUC"),
]
UNJUDGED = 500
STREAMS = {"shuttle": shuttle, "nab": nab}


class Coin(Model):
    """Scores by chance."""

    def score_then_learn(self, X: Array) -> Array:
        """Random numbers."""
        return np.random.default_rng(0).random(len(X))


BASELINES = [Contender("chance", "everlearn", Coin, "", baseline=True)]


def measure(contender: Contender, context: Context) -> Row:
    """Areas of one detector."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, streams in STREAMS.items():
        try:
            found[key] = float(np.mean([area(contender, X, y) for X, y in streams(context)]))
        except Absent as absent:
            found |= {key: NO_DATA, WHY: str(absent)}
        except InputError as error:
            found |= {key: FAILED, WHY: failure(error)}
    return found


def area(contender: Contender, X: Array, y: Array) -> float:
    """Area under the ROC curve of one stream; a row that got no score counts as usual."""
    scores = contender.make().score_then_learn(X)[UNJUDGED:]
    scores = np.where(np.isnan(scores), np.nanmin(scores), scores)
    return roc_auc(y[UNJUDGED:], scores)


def roc_auc(y: Array, scores: Array) -> float:
    """Probability that an anomaly scores higher than a usual row."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, np.clip(scores, -1e300, 1e300)))
