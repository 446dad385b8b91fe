"""What a model made of the demonstration stream, beside the truth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.datasets.demo import COLUMNS, FAULTS, REGIMES, DemoBatch, join
from everlearn.streams.prequential import PrequentialResult
from everlearn.typing import Array

_SPAN = 200  # rows at the beginning and the end of a regime that are compared
_NEW_ROWS = 300  # rows for which a regime counts as new
_SWITCH_ROWS = 25  # rows after a change of regime in which the temperature still moves
_KEPT_ROWS = 2000  # latest rows, whose gaps are filled
_START_ROWS = 1000  # rows after which faults are looked for
_SAMPLE_ROWS = 4000  # rows of the whole stream, evenly spaced, that components are compared with, at most


class RegimeResult(NamedTuple):
    """Median log-likelihood of a regime's first and last rows, before they were learned."""

    name: str
    n_rows: int
    first_row: int | None
    first: float
    last: float


class FaultResult(NamedTuple):
    """Faults of one kind, and how many of them had a row that was novel."""

    name: str
    n_faults: int
    n_found: int


class Alarms(NamedTuple):
    """Novel rows without a fault, by what the machine was doing."""

    new_regime: int
    after_switch: int
    unexplained: int


class Changes(NamedTuple):
    """Switches of regime, those that the model noticed within a few rows, and changes noticed elsewhere."""

    n_switches: int
    n_noticed: int
    n_other: int


class GapResult(NamedTuple):
    """Root mean square error of the values filled in, and that of filling in the column's mean."""

    column: str
    n_gaps: int
    error: float
    error_of_mean: float


class ComponentResult(NamedTuple):
    """A component of the model, by what the machine was doing in its rows."""

    share: float  # of all rows
    regime: str  # in which most of its rows came
    pure: float  # share of its rows that came in this regime
    after_switch: float  # share of its rows that came soon after a switch, while the temperature still moves
    fault: float  # share of its rows that are of a fault


class DemoReport:
    """Gathers, batch by batch and in bounded memory, what was foreseen and what was true."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._first_row: list[int | None] = [None] * len(REGIMES)
        self._regime_rows = np.zeros(len(REGIMES), dtype=np.int64)
        self._first: list[Array] = [np.empty(0)] * len(REGIMES)
        self._last: list[Array] = [np.empty(0)] * len(REGIMES)
        self._faults = np.zeros((len(FAULTS), 2), dtype=np.int64)
        self._alarms = np.zeros(3, dtype=np.int64)
        self._changes = np.zeros(3, dtype=np.int64)
        self._latest = (-1, 0)  # regime and fault of the latest row
        self._since_switch = 0
        self._noticed = False  # whether the latest switch, or fault, was
        self._found = False
        self._kept: list[DemoBatch] = []
        self._sample: list[tuple[DemoBatch, NDArray[np.bool_]]] = []
        self._every = 1  # rows of which one is in the sample

    def add(self, batch: DemoBatch, result: PrequentialResult) -> None:
        """Take a batch and what the model said of it before it learned it."""
        new, late = self._add_regimes(batch, result), self.n_rows + np.arange(len(batch.X)) >= _START_ROWS
        novel, changed = result.novel, np.zeros(len(batch.X), dtype=bool)
        changed[[row - self.n_rows for row in result.changes if row >= self.n_rows]] = True
        switched = np.zeros(len(batch.X), dtype=bool)
        for i, row in enumerate(zip(batch.regime.tolist(), batch.fault.tolist(), strict=True)):
            switched[i] = self._follow(*row, change=changed[i], novel=novel[i], late=late[i])
        self._add_sample(batch, switched)
        without_fault = novel & late & (batch.fault == 0)
        self._alarms += [int((without_fault & why).sum()) for why in (new, switched & ~new, ~switched & ~new)]
        self.n_rows += len(batch.X)
        self._kept.append(batch)
        while sum(len(kept.X) for kept in self._kept[1:]) >= _KEPT_ROWS:
            self._kept.pop(0)

    def _add_sample(self, batch: DemoBatch, switched: NDArray[np.bool_]) -> None:
        """Take every so many-th row into the sample; when it is full, every second one leaves."""
        self._sample.append(_thinned((batch, switched), -self.n_rows % self._every, self._every))
        if sum(len(part.X) for part, _ in self._sample) > _SAMPLE_ROWS:
            whole = join([part for part, _ in self._sample]), np.concatenate([soon for _, soon in self._sample])
            self._sample, self._every = [_thinned(whole, 0, 2)], 2 * self._every

    def components(self, model: Any) -> list[ComponentResult]:
        """What the machine was doing in the rows of each component, by a sample of the stream; largest first."""
        rows = join([part for part, _ in self._sample])
        soon, label = np.concatenate([soon for _, soon in self._sample]), model.predict(rows.X)
        found = []
        for k in np.unique(label):
            own = label == k
            regime = np.bincount(rows.regime[own], minlength=len(REGIMES))
            share, pure = float(own.mean()), float(regime.max() / own.sum())
            switches, faults = float(soon[own].mean()), float((rows.fault[own] > 0).mean())
            found.append(ComponentResult(share, REGIMES[int(regime.argmax())], pure, switches, faults))
        return sorted(found, reverse=True)

    def _follow(self, regime: int, fault: int, *, change: bool, novel: bool, late: bool) -> bool:
        """Follow switches and faults through one row; returns whether it comes soon after a switch."""
        latest_regime, latest_fault = self._latest
        self._latest = regime, fault
        switch = regime != latest_regime and latest_regime >= 0
        self._since_switch = 0 if regime != latest_regime else self._since_switch + 1
        soon = self._since_switch < _SWITCH_ROWS
        self._noticed &= not switch
        counted = change and soon and not self._noticed and self._changes[0] + switch > 0
        self._changes += [switch, counted, change and not soon]
        self._noticed |= change
        if fault and late:
            begins = fault != latest_fault
            self._found &= not begins
            self._faults[fault] += [begins, novel and not self._found]
            self._found |= novel
        return soon

    def _add_regimes(self, batch: DemoBatch, result: PrequentialResult) -> NDArray[np.bool_]:
        """Count rows by regime; returns which rows are among the first of theirs."""
        new = np.zeros(len(batch.X), dtype=bool)
        for r in np.unique(batch.regime):
            rows = np.flatnonzero(batch.regime == r)
            if self._first_row[r] is None:
                self._first_row[r] = self.n_rows + int(rows[0])
            new[rows[: max(0, _NEW_ROWS - int(self._regime_rows[r]))]] = True
            self._regime_rows[r] += len(rows)
            healthy = result.log_density[rows][(batch.fault[rows] == 0) & ~np.isnan(result.log_density[rows])]
            self._first[r] = np.concatenate([self._first[r], healthy])[:_SPAN]
            self._last[r] = np.concatenate([self._last[r], healthy])[-_SPAN:]
        return new

    def regimes(self) -> list[RegimeResult]:
        """How well each regime was foreseen when it was new and at last."""
        return [
            RegimeResult(
                name, int(self._regime_rows[r]), self._first_row[r], _median(self._first[r]), _median(self._last[r])
            )
            for r, name in enumerate(REGIMES)
        ]

    def changes(self) -> Changes:
        """Switches of regime beside the changes that the model noticed."""
        return Changes(*self._changes.tolist())

    def faults(self) -> list[FaultResult]:
        """Faults after the start of the stream, by kind."""
        return [FaultResult(name, *self._faults[f].tolist()) for f, name in enumerate(FAULTS) if f]

    def alarms(self) -> Alarms:
        """Novel rows without a fault, after the start of the stream."""
        return Alarms(*self._alarms.tolist())

    def gaps(self, model: Any) -> list[GapResult]:
        """Fill the gaps of the latest rows with the model and compare with what was lost."""
        X = np.concatenate([batch.X for batch in self._kept])
        truth = np.concatenate([batch.complete for batch in self._kept])
        healthy = np.concatenate([batch.fault for batch in self._kept]) == 0
        filled = model.impute(X)
        return [
            GapResult(name, int(gap.sum()), _rms((filled - truth)[gap, j]), _rms(np.nanmean(X[:, j]) - truth[gap, j]))
            for j, name in enumerate(COLUMNS)
            for gap in [np.isnan(X[:, j]) & healthy]
        ]


def _thinned(part: tuple[DemoBatch, NDArray[np.bool_]], first: int, every: int) -> tuple[DemoBatch, NDArray[np.bool_]]:
    """Every so many-th row."""
    (X, complete, regime, fault), soon = part
    at = slice(first, None, every)
    return DemoBatch(X[at], complete[at], regime[at], fault[at]), soon[at]


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else float("nan")
