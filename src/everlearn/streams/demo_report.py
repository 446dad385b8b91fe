"""What a model made of the demonstration stream, beside the truth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.core.mixture import Mixture, impute
from everlearn.streams.demo import COLUMNS, FAULTS, REGIMES, DemoBatch
from everlearn.streams.monitor import Foresight

_SPAN = 200  # rows at the beginning and the end of a regime that are compared
_NEW_ROWS = 300  # rows for which a regime counts as new
_SWITCH_ROWS = 25  # rows after a change of regime in which the temperature still moves
_KEPT_ROWS = 2000  # latest rows, whose gaps are filled
_START_ROWS = 1000  # rows after which faults are looked for

Array = NDArray[np.float64]


class RegimeResult(NamedTuple):
    """Median log-likelihood of a regime's first and last rows, before they were learned."""

    name: str
    n_rows: int
    first_row: int | None
    first: float
    last: float


class FaultResult(NamedTuple):
    """Faulty rows of one kind, and how many of them were novel."""

    name: str
    n_rows: int
    n_found: int


class OtherAlarms(NamedTuple):
    """Novel rows without a fault, by what the machine was doing."""

    new_regime: int
    after_switch: int
    unexplained: int


class GapResult(NamedTuple):
    """Root mean square error of the values filled in, and that of filling in the column's mean."""

    column: str
    n_gaps: int
    error: float
    error_of_mean: float


class DemoReport:
    """Gathers, batch by batch and in bounded memory, what was foreseen and what was true."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._first_row: list[int | None] = [None] * len(REGIMES)
        self._regime_rows = np.zeros(len(REGIMES), dtype=np.int64)
        self._first: list[Array] = [np.empty(0)] * len(REGIMES)
        self._last: list[Array] = [np.empty(0)] * len(REGIMES)
        self._fault_rows = np.zeros(len(FAULTS), dtype=np.int64)
        self._found = np.zeros(len(FAULTS), dtype=np.int64)
        self._alarms = np.zeros(3, dtype=np.int64)
        self._latest_regime = -1
        self._since_switch = 0
        self._kept: list[DemoBatch] = []

    def add(self, batch: DemoBatch, seen: Foresight) -> None:
        """Take a batch and what the model said of it before it learned it."""
        new, switched = self._add_regimes(batch, seen), self._after_switch(batch)
        late = np.arange(self.n_rows, self.n_rows + len(batch.X)) >= _START_ROWS
        self._fault_rows += np.bincount(batch.fault[late], minlength=len(FAULTS))
        self._found += np.bincount(batch.fault[late & seen.novel], minlength=len(FAULTS))
        without_fault = seen.novel & late & (batch.fault == 0)
        self._alarms += [int((without_fault & why).sum()) for why in (new, switched & ~new, ~switched & ~new)]
        self.n_rows += len(batch.X)
        self._kept.append(batch)
        while sum(len(kept.X) for kept in self._kept[1:]) >= _KEPT_ROWS:
            self._kept.pop(0)

    def _add_regimes(self, batch: DemoBatch, seen: Foresight) -> NDArray[np.bool_]:
        """Count rows by regime; returns which rows are among the first of theirs."""
        new = np.zeros(len(batch.X), dtype=bool)
        for r in np.unique(batch.regime):
            rows = np.flatnonzero(batch.regime == r)
            if self._first_row[r] is None:
                self._first_row[r] = self.n_rows + int(rows[0])
            new[rows[: max(0, _NEW_ROWS - int(self._regime_rows[r]))]] = True
            self._regime_rows[r] += len(rows)
            healthy = seen.log_density[rows][(batch.fault[rows] == 0) & ~np.isnan(seen.log_density[rows])]
            self._first[r] = np.concatenate([self._first[r], healthy])[:_SPAN]
            self._last[r] = np.concatenate([self._last[r], healthy])[-_SPAN:]
        return new

    def _after_switch(self, batch: DemoBatch) -> NDArray[np.bool_]:
        """Which rows come soon after a change of regime."""
        since = np.empty(len(batch.X), dtype=np.int64)
        for i, regime in enumerate(batch.regime.tolist()):
            self._since_switch = self._since_switch + 1 if regime == self._latest_regime else 0
            self._latest_regime, since[i] = regime, self._since_switch
        return since < _SWITCH_ROWS

    def regimes(self) -> list[RegimeResult]:
        """How well each regime was foreseen when it was new and at last; the first batch is not scored."""
        return [
            RegimeResult(
                name, int(self._regime_rows[r]), self._first_row[r], _median(self._first[r]), _median(self._last[r])
            )
            for r, name in enumerate(REGIMES)
        ]

    def faults(self) -> list[FaultResult]:
        """Faults after the start of the stream, by kind."""
        return [FaultResult(name, int(self._fault_rows[f]), int(self._found[f])) for f, name in enumerate(FAULTS) if f]

    def other_alarms(self) -> OtherAlarms:
        """Novel rows without a fault, after the start of the stream."""
        return OtherAlarms(*self._alarms.tolist())

    def gaps(self, model: Any) -> list[GapResult]:
        """Fill the gaps of the latest rows with the model and compare with what was lost."""
        X = np.concatenate([batch.X for batch in self._kept])
        truth = np.concatenate([batch.complete for batch in self._kept])
        healthy = np.concatenate([batch.fault for batch in self._kept]) == 0
        filled = impute(X, Mixture(model.weights_, model.means_, model.covariances_)).mean
        return [
            GapResult(name, int(gap.sum()), _rms((filled - truth)[gap, j]), _rms(np.nanmean(X[:, j]) - truth[gap, j]))
            for j, name in enumerate(COLUMNS)
            for gap in [np.isnan(X[:, j]) & healthy]
        ]


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else float("nan")
