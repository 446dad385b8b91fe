"""Anomalies: how well scores that were given before learning rank what is labelled, how soon, and with what alarms."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from everlearn.experiments.peers.adapter import Contender, Model
from everlearn.experiments.peers.anomaly_streams import GROUPS, Labelled
from everlearn.experiments.peers.data import Absent, Context
from everlearn.experiments.peers.measure import FAILED, NO_DATA, WHY, failure, measured
from everlearn.experiments.peers.table import Measure, Row, Value
from everlearn.typing import Array

NAME = "anomaly"
TITLE = "Anomalies"
ABOUT = (
    "Area under the ROC curve and average precision, means over the streams of a group (over some of them, for slow "
    "detectors that take short streams only: not compared); each row is scored, then learned, and the first 500 (at "
    "most 15 %) are not judged. Shuttle is river's copy: nine sensors, 7 % anomalies, most of them in tight groups "
    "that keep coming. NAB: realKnownCause, then the other folders; the value alone, labelled windows. Rare classes: "
    "sets of scikit-learn, Weka and river in random order. Synthetic: thirteen kinds of faults. Kept aside: eleven "
    "streams on which nothing was chosen. Delay: rows from the first row of a labelled stretch to the first score "
    "above the 99 % quantile of unlabelled rows, median over the synthetic stretches of 20 rows and more; one that is "
    "never found counts with its length. False alarms: alarms on unlabelled rows of the synthetic streams, over the "
    "number asked for (1 in 1,000)."
)
MEASURES = [
    Measure("shuttle", "Shuttle ROC", "high", ".3f", headline="anomalies, Shuttle: ROC-AUC"),
    Measure("shuttle_ap", "AP", "high", ".3f"),
    Measure("nab", "NAB ROC", "high", ".3f", headline="anomalies, NAB: ROC-AUC"),
    Measure("nab_ap", "AP", "high", ".3f"),
    Measure("nab_others", "NAB, others ROC", "high", ".3f"),
    Measure("nab_others_ap", "AP", "high", ".3f"),
    Measure("rare", "rare ROC", "high", ".3f"),
    Measure("rare_ap", "AP", "high", ".3f"),
    Measure("synthetic", "synthetic ROC", "high", ".3f"),
    Measure("synthetic_ap", "AP", "high", ".3f"),
    Measure("aside", "kept aside ROC", "high", ".3f", headline="anomalies, streams kept aside: ROC-AUC"),
    Measure("aside_ap", "AP", "high", ".3f"),
    Measure("delay", "delay, rows", "low", ".0f"),
    Measure("false_alarms", "false alarms / asked", "near", ".2f", target=1.0),
    Measure("rows_per_second", "rows/s", "high", ",.0f"),
]
UNJUDGED = 500
# Rows of a labelled stretch from which on its delay is counted: a single row that is missed would count as one row.
LASTING = 20


class Coin(Model):
    """Scores by chance."""

    def score_then_learn(self, X: Array) -> Array:
        """Random numbers."""
        return np.random.default_rng(0).random(len(X))


# The level at which a detector knows nothing: 0.5 of the ROC, and of average precision the share of anomalies.
BASELINES = [Contender("chance", "everlearn", Coin, "", baseline=True)]


class Found(NamedTuple):
    """What one detector made of one stream."""

    roc: float
    ap: float
    delays: list[int]
    false_alarms: float  # NaN for detectors that raise none
    seconds: float
    rows: int


def measure(contender: Contender, context: Context) -> Row:
    """Figures of one detector."""
    return measured(contender, MEASURES, lambda: _figures(contender, context))


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    figures: dict[str, Value] = {}
    every: list[Found] = []
    for group, streams in GROUPS.items():
        try:
            all_of_them = list(streams(context))
            found = [judge(contender, stream) for stream in all_of_them if affordable(contender, stream)]
        except Absent as absent:
            figures |= {group: NO_DATA, WHY: str(absent)}
            continue
        except Exception as error:  # whatever a peer makes of gaps in one group, it is still measured on the others
            figures |= {group: FAILED, WHY: failure(error)}
            continue
        if not found:
            continue
        for key, name in ((group, "roc"), (f"{group}_ap", "ap")):
            mean = _mean(found, name)
            # A mean over some of the streams is no figure beside those over all of them.
            some = f"{mean:.3f} on {len(found)} of {len(all_of_them)}"
            figures[key] = mean if len(found) == len(all_of_them) else some
        if group == "synthetic":
            delays = [delay for one in found for delay in one.delays]
            delay = float(np.median(delays)) if delays else float("nan")
            figures |= {"delay": delay, "false_alarms": _mean(found, "false_alarms")}
        every += found
    if every:
        figures["rows_per_second"] = sum(one.rows for one in every) / sum(one.seconds for one in every)
    return figures


def _mean(found: list[Found], name: str) -> float:
    values = np.array([getattr(one, name) for one in found])
    return float(np.mean(values[~np.isnan(values)])) if not np.isnan(values).all() else float("nan")


def affordable(contender: Contender, stream: Labelled) -> bool:
    """Whether a detector takes a stream of this length in reasonable time."""
    return contender.most_rows is None or len(stream.X) <= contender.most_rows


def judge(contender: Contender, stream: Labelled) -> Found:
    """Score one stream and judge the scores; a row that got no score counts as usual."""
    model = contender.make()
    began = time.perf_counter()
    scores = np.asarray(model.score_then_learn(stream.X), dtype=float)
    seconds = time.perf_counter() - began
    # Every detector has to see something first; judged from row one, the table would rank warm-ups.
    start = int(min(UNJUDGED, 0.15 * len(scores)))
    scores, y = scores[start:], stream.y[start:]
    # As the most usual row there is: a detector that gives no score has not called the row an anomaly.
    least = np.nanmin(scores) if not np.isnan(scores).all() else 0.0
    scores = _finite(np.where(np.isnan(scores), least, scores))
    alarms = getattr(model, "alarm_ratio", None)
    ratio = float("nan") if alarms is None else alarms(scores[y == 0])
    return Found(roc_auc(y, scores), average_precision(y, scores), delays(y, scores), ratio, seconds, len(stream.X))


def roc_auc(y: Array, scores: Array) -> float:
    """Probability that an anomaly scores higher than a usual row."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, _finite(scores))) if 0 < y.sum() < len(y) else float("nan")


def average_precision(y: Array, scores: Array) -> float:
    """Mean precision over the recalls."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(y, _finite(scores))) if 0 < y.sum() < len(y) else float("nan")


def _finite(scores: Array) -> Array:
    """Infinite scores as very large ones, which the measures accept; ranks stay."""
    return np.clip(scores, -1e300, 1e300)


def delays(y: Array, scores: Array) -> list[int]:
    """Rows from the start of each lasting stretch to the first score above the 99 % quantile of unlabelled rows."""
    threshold = np.quantile(scores[y == 0], 0.99)
    # Pairs of first row and row behind the last of each labelled stretch; zeros at both ends close those at the border.
    edges = np.flatnonzero(np.diff(np.concatenate([[0], y, [0]])))
    found = []
    for first, end in edges.reshape(-1, 2):
        if end - first < LASTING:
            continue
        above = np.flatnonzero(scores[first:end] > threshold)
        found.append(int(above[0]) if len(above) else int(end - first))
    return found
