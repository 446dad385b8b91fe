"""Changes: how soon they are noticed, and how often there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from everlearn.experiments.peers.adapter import Contender, Model
from everlearn.experiments.peers.data import KINDS, Context, changing
from everlearn.experiments.peers.measure import measured
from everlearn.experiments.peers.table import Measure, Row, Value
from everlearn.typing import Array

NAME = "change"
TITLE = "Change detection"
HORIZON = 400
MOST_FALSE = 1.0
ABOUT = (
    "Three normal columns in three parts of 800 rows (400 with --quick): in the middle part the mean of a column is "
    "higher by one standard deviation, its spread is doubled, or it is correlated (0.9) with another; and streams "
    f"without a change. Delay in rows to the first alarm, {HORIZON} if there is none within {HORIZON}; false alarms "
    "are those at other times. The least delay is marked among detectors with at most "
    f"{MOST_FALSE:.0f} false alarm in a thousand rows. The second change leads back to what came first, which is no "
    "news to a model that forgets nothing. VariationalPPCA records jumps; what is as small as this it follows by a "
    "shorter memory, without an alarm."
)
MEASURES = [
    Measure("delay", "mean delay", "low", ".0f", headline="delay of change alarms, rows (at most 1 false in 1,000)"),
    *(Measure(kind, f"delay, {kind}", "low", ".0f") for kind in KINDS if kind != "none"),
    Measure("false", "false alarms in 1,000 rows", "low", ".2f"),
]


class Fixed(Model):
    """Fires at every row, or at none."""

    def __init__(self, always: bool) -> None:
        self.always = always

    def alarms(self, X: Array) -> list[int]:
        """All rows or no row."""
        return list(range(len(X))) if self.always else []


# Either end of the trade-off: a delay alone, or a rate of false alarms alone, is won by one of these.
BASELINES = [
    Contender("always fires", "everlearn", lambda: Fixed(True), "", baseline=True),
    Contender("never fires", "everlearn", lambda: Fixed(False), "", baseline=True),
]


def measure(contender: Contender, context: Context) -> Row:
    """Delays and false alarms of one detector."""
    row = measured(contender, MEASURES, lambda: _figures(contender, context))
    return row._replace(comparable=_bearable)


def _bearable(key: str, values: dict[str, Value]) -> bool:
    """Whether a delay counts: it ends in an alarm, of a detector that does not fire all the time."""
    false, delay = values.get("false", math.inf), values.get(key, math.inf)
    if isinstance(false, str) or isinstance(delay, str):
        return False
    return key == "false" or (false <= MOST_FALSE and delay < HORIZON)


def _figures(contender: Contender, context: Context) -> dict[str, Value]:
    waits: dict[str, list[float]] = {kind: [] for kind in KINDS}
    n_false = n_rows = 0
    part = HORIZON if context.quick else 2 * HORIZON
    for kind in KINDS:
        for seed in range(context.seeds):
            stream = changing(kind, seed, part)
            alarms = contender.make().alarms(stream.X)
            waits[kind] += delays(alarms, stream.changes)
            n_false += len(false_alarms(alarms, stream.changes))
            # Rows in which an alarm would be a false one.
            n_rows += len(stream.X) - HORIZON * len(stream.changes)
    found: dict[str, Value] = {kind: float(np.mean(values)) for kind, values in waits.items() if values}
    every = [wait for values in waits.values() for wait in values]
    return {**found, "delay": float(np.mean(every)), "false": 1000 * n_false / n_rows}


def delays(alarms: Sequence[int], changes: Iterable[int], horizon: int = HORIZON) -> list[float]:
    """Rows from each change to the first alarm; the horizon where there is none before it."""
    return [float(min((a - c for a in alarms if 0 <= a - c < horizon), default=horizon)) for c in changes]


def false_alarms(alarms: Iterable[int], changes: Sequence[int], horizon: int = HORIZON) -> list[int]:
    """Alarms that come within the horizon of no change."""
    return [a for a in alarms if not any(0 <= a - c < horizon for c in changes)]
