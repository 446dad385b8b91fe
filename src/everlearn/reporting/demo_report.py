"""What a model made of the demonstration stream, beside the truth."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.datasets.demo import COLUMNS, FAULTS, REGIMES, DemoBatch
from everlearn.gaussian.mixture import Mixture
from everlearn.reporting.regimes import Stay, Usual, active, outside, stays_in_regimes, tail_probability, usual_of
from everlearn.streams.prequential import PrequentialResult
from everlearn.typing import Array

_NEW_ROWS = 300  # rows for which a regime counts as new
_SWITCH_ROWS = 25  # rows after a change of regime in which the temperature still moves
_KEPT_ROWS = 2000  # latest rows, whose gaps are filled
_START_ROWS = 1000  # rows after which faults are looked for
_COVERAGE = 0.9
_USUAL = 0.01  # p-value from which on what is left of a row is usual


class RegimeResult(NamedTuple):
    """A regime that the model found, and what it is in truth."""

    share: float  # of all rows
    first_row: int
    last_row: int
    medians: Array  # (D,), of its rows
    name: str  # of the true regime that most of its rows are of
    agree: float  # share of its rows that are


class Regimes(NamedTuple):
    """Regimes that the model found, when they were active, and the switches between them."""

    found: list[RegimeResult]  # the one with most rows first
    stays: list[Stay]
    n_switches: int  # in truth
    n_seen: int  # of these, those within 25 rows of which the model's regime switches too
    n_other: int  # switches of the model's regimes elsewhere
    usual: Usual | None


class FaultResult(NamedTuple):
    """Faults of one kind, how many of them had a row that was found, and the sensors that are named most often."""

    name: str
    n_faults: int
    n_found: int
    blamed: str = ""  # one sensor, or two that are strange together
    n_blamed: int = 0


class Alarms(NamedTuple):
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
    n_inside: int | None  # true values inside the 90 % interval; None for a model without intervals


class DemoReport:
    """Gathers, batch by batch and in bounded memory, what was foreseen and what was true."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._regime_rows = np.zeros(len(REGIMES), dtype=np.int64)
        self._faults = np.zeros((len(FAULTS), 2), dtype=np.int64)
        self._alarms = np.zeros(3, dtype=np.int64)
        self._latest = (-1, 0)  # regime and fault of the latest row
        self._since_switch = 0
        self._found = False  # whether the latest fault was
        self._kept: list[DemoBatch] = []

    def add(self, batch: DemoBatch, result: PrequentialResult) -> None:
        """Take a batch and what the model said of it before it learned it."""
        new, late = self._new_regimes(batch), self.n_rows + np.arange(len(batch.X)) >= _START_ROWS
        novel, switched = result.novel, np.zeros(len(batch.X), dtype=bool)
        for i, row in enumerate(zip(batch.regime.tolist(), batch.fault.tolist(), strict=True)):
            switched[i] = self._follow(*row, novel=novel[i], late=late[i])
        without_fault = novel & late & (batch.fault == 0)
        self._alarms += [int((without_fault & why).sum()) for why in (new, switched & ~new, ~switched & ~new)]
        self.n_rows += len(batch.X)
        self._kept.append(batch)
        # Whole batches leave as long as the others hold enough rows.
        while sum(len(kept.X) for kept in self._kept[1:]) >= _KEPT_ROWS:
            self._kept.pop(0)

    def _follow(self, regime: int, fault: int, *, novel: bool, late: bool) -> bool:
        """Follow switches and faults through one row; returns whether it comes soon after a switch."""
        latest_regime, latest_fault = self._latest
        self._latest = regime, fault
        self._since_switch = 0 if regime != latest_regime else self._since_switch + 1
        if fault and late:
            begins = fault != latest_fault
            # A fault lasts some rows and counts once: found if any of its rows was novel.
            self._found &= not begins
            self._faults[fault] += [begins, novel and not self._found]
            self._found |= novel
        return self._since_switch < _SWITCH_ROWS

    def _new_regimes(self, batch: DemoBatch) -> NDArray[np.bool_]:
        """Count rows by regime; returns which rows are among the first of theirs."""
        new = np.zeros(len(batch.X), dtype=bool)
        for r in np.unique(batch.regime):
            rows = np.flatnonzero(batch.regime == r)
            new[rows[: max(0, _NEW_ROWS - int(self._regime_rows[r]))]] = True
            self._regime_rows[r] += len(rows)
        return new

    def faults(self) -> list[FaultResult]:
        """Faults after the start of the stream, by kind, and how many of them were novel before they were learned."""
        return [FaultResult(name, *self._faults[k].tolist()) for k, name in enumerate(FAULTS[1:], start=1)]

    def alarms(self) -> Alarms:
        """Novel rows without a fault, after the start of the stream."""
        return Alarms(*self._alarms.tolist())

    def gaps(self, model: Any) -> list[GapResult]:
        """Fill the gaps of the latest rows with the model and compare with what was lost."""
        X = np.concatenate([batch.X for batch in self._kept])
        truth = np.concatenate([batch.complete for batch in self._kept])
        healthy = np.concatenate([batch.fault for batch in self._kept]) == 0
        filled, results = model.impute(X), []
        for j, name in enumerate(COLUMNS):
            gap = np.isnan(X[:, j]) & healthy
            inside = None
            if hasattr(model, "predict_columns") and gap.any():
                _, (low, high) = model.predict_columns(X[gap], target=j, interval=_COVERAGE)
                inside = int(((low[:, 0] <= truth[gap, j]) & (truth[gap, j] <= high[:, 0])).sum())
            errors = _rms((filled - truth)[gap, j]), _rms(np.nanmean(X[:, j]) - truth[gap, j])
            results.append(GapResult(name, int(gap.sum()), *errors, inside))
        return results


def find_regimes(model: Any, whole: DemoBatch) -> Regimes:
    """Regimes by the modes of a mixture that has learned the stream, beside the true ones."""
    modes = model.predict(whole.X, by="mode")
    stays = stays_in_regimes(modes)
    of_row = active(stays, len(whole.X))
    found = []
    for k in np.unique(of_row[of_row > 0]):
        rows = np.flatnonzero(of_row == k)
        true = np.bincount(whole.regime[rows], minlength=len(REGIMES))
        name, agree = REGIMES[int(true.argmax())], float(true.max() / len(rows))
        medians = np.nanmedian(whole.X[rows], axis=0)
        found.append(RegimeResult(len(rows) / len(of_row), int(rows[0]), int(rows[-1]), medians, name, agree))
    found.sort(reverse=True, key=lambda regime: regime.share)
    mixture = Mixture(model.weights_, model.means_, model.covariances_)
    usual = usual_of(mixture, model.predict(whole.X), modes, stays)
    return Regimes(found, stays, *_switches(whole.regime, stays), usual)


def find_faults(whole: DemoBatch, usual: Usual | None) -> tuple[list[FaultResult], int]:
    """Faults by the rows outside of what is usual, looking back over the stream, and the number of false alarms.

    A fault is found if one of its rows is outside; the sensors named are those to blame in the first such row.
    """
    strange = np.zeros(len(whole.X), dtype=bool) if usual is None else outside(whole.X, usual)
    strange[:_START_ROWS] = False
    begins = np.flatnonzero(np.diff(whole.fault, prepend=0) * (whole.fault > 0))
    of_fault = np.cumsum(np.isin(np.arange(len(whole.X)), begins)) - 1
    # The first strange row of each fault that has one.
    rows = np.flatnonzero(strange & (whole.fault > 0))
    rows = rows[np.unique(of_fault[rows], return_index=True)[1]]
    results = []
    for kind, name in enumerate(FAULTS[1:], start=1):
        own = rows[whole.fault[rows] == kind]
        n_faults = int(((whole.fault[begins] == kind) & (begins >= _START_ROWS)).sum())
        counted = FaultResult(name, n_faults, len(own))
        if usual is not None and len(own):
            ((columns, n),) = Counter(_blamed(whole.X[own], usual, usual.on_the_way[own])).most_common(1)
            counted = counted._replace(blamed=" and ".join(COLUMNS[j] for j in columns), n_blamed=n)
        results.append(counted)
    return results, int((strange & (whole.fault == 0)).sum())


class _Near(NamedTuple):
    """A mixture that answers with tail probabilities."""

    mixture: Mixture

    def p_value(self, X: Array) -> Array:
        return tail_probability(X, self.mixture)


def _blamed(X: Array, usual: Usual, on_the_way: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    named: list[tuple[int, ...]] = []
    for mixture, rows in ((usual.regimes, ~on_the_way), (usual.regimes_and_ways, on_the_way)):
        if rows.any():
            named += blamed_columns(_Near(mixture), X[rows])
    return named


def _switches(regime: NDArray[np.int64], stays: list[Stay]) -> tuple[int, int, int]:
    true = np.flatnonzero(np.diff(regime)) + 1
    seen = np.array([stay.first for stay in stays[1:]], dtype=np.int64)
    # (true switches, switches seen): a row of it without a hit was missed, a column without one is a false one.
    near = np.abs(true[:, None] - seen) <= _SWITCH_ROWS
    return len(true), int(near.any(axis=1).sum()), int((~near.any(axis=0)).sum())


def blamed_columns(model: Any, X: Array) -> list[tuple[int, ...]]:
    """For each row, the fewest columns without which the rest of it is usual: one, or two where no single one will do.

    Two sensors that fail together vouch for each other: without one of them, the other is as strange as before. Of
    several choices the one that leaves the most usual rest is taken; where two columns do not explain the row either,
    the best single one.
    """
    D = X.shape[1]
    pairs: list[tuple[int, ...]] = list(combinations(range(D), 2))
    p_one = _p_values_without(model, X, [(j,) for j in range(D)])
    best = p_one.argmax(axis=1)
    blamed: list[tuple[int, ...]] = [(int(j),) for j in best]
    unexplained = np.flatnonzero(p_one.max(axis=1) < _USUAL)
    if D > 2 and len(unexplained):
        p_two = _p_values_without(model, X[unexplained], pairs)
        for i, p in zip(unexplained, p_two, strict=True):
            if p.max() >= _USUAL:
                blamed[i] = pairs[int(p.argmax())]
    return blamed


def _p_values_without(model: Any, X: Array, choices: list[tuple[int, ...]]) -> Array:
    """p-value of each row without some of its columns, for each choice of these, (n, choices); -1 if one is a gap."""
    n, D = X.shape
    masked = np.repeat(X, len(choices), axis=0).reshape(n, len(choices), D)
    seen = np.ones((n, len(choices)), dtype=bool)
    for c, columns in enumerate(choices):
        masked[:, c, list(columns)] = np.nan
        seen[:, c] = ~np.isnan(X[:, list(columns)]).any(axis=1)
    # A column without a value cannot be to blame: -1 is below every p-value.
    return np.where(seen, model.p_value(masked.reshape(-1, D)).reshape(seen.shape), -1.0)


def _rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2))) if len(errors) else float("nan")
