"""What was measured: tables, their winners, and the summary."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

from everlearn.experiments.peers.adapter import OURS, Contender
from everlearn.experiments.peers.everlearn_models import SHOWN

Value = float | str


class Measure(NamedTuple):
    """One column of a table."""

    key: str
    title: str
    better: str
    """"high", "low", or "near" for the value nearest to `target`."""
    form: str = ".3g"
    target: float = 0.0
    headline: str = ""
    """What the summary calls it; nothing for a column that the summary leaves out."""
    difference: bool = False
    """Whether figures compare by their difference instead of their ratio."""
    joint: bool = False
    """Whether the summary compares with models that have a joint density only."""

    def show(self, value: Value) -> str:
        """A figure or a word."""
        if isinstance(value, str):
            return value
        return "" if math.isnan(value) else format(value, self.form)

    def loss(self, value: Value) -> float:
        """A number that is smaller for a better value, infinite for a word."""
        if isinstance(value, str) or math.isnan(value):
            return math.inf
        return {"high": -value, "low": value, "near": abs(value - self.target)}[self.better]


class Row(NamedTuple):
    """A contender and what was found."""

    contender: Contender
    values: dict[str, Value]
    why: str = ""
    """Why there are words instead of figures."""
    comparable: Callable[[str, dict[str, Value]], bool] = lambda key, values: True

    def value(self, key: str) -> Value:
        """A figure, a word, or NaN for what was not measured."""
        return self.values.get(key, math.nan)

    def competes(self, measure: Measure) -> bool:
        """Whether it can win: it has a figure, and is no baseline."""
        numbers = math.isfinite(measure.loss(self.value(measure.key)))
        return numbers and not self.contender.baseline and self.comparable(measure.key, self.values)


class Table(NamedTuple):
    """One column of the comparison, with all its contenders."""

    name: str
    title: str
    about: str
    measures: list[Measure]
    rows: list[Row]

    def best(self, measure: Measure, among: Callable[[Contender], bool] = lambda contender: True) -> Row | None:
        """The best of some contenders."""
        rows = [row for row in self.rows if row.competes(measure) and among(row.contender)]
        return min(rows, key=lambda row: measure.loss(row.value(measure.key)), default=None)

    def wins(self, measure: Measure, row: Row) -> bool:
        """Whether a row is the best, or shows the same figure as the best."""
        best = self.best(measure)
        if best is None or not row.competes(measure):
            return False
        # By what is shown: two rows with the same digits in print are equal, and both stand out.
        return measure.show(row.value(measure.key)) == measure.show(best.value(measure.key))

    def notes(self) -> list[str]:
        """Settings that are not the defaults, and why figures are missing."""
        return [_note(row) for row in self.rows if row.why or _tells(row.contender)]


class Headline(NamedTuple):
    """One line of the summary."""

    measure: Measure
    ours: Row
    peer: Row

    @property
    def we_win(self) -> bool:
        """Whether ours can win at all, and is at least as good."""
        ours, peer = (self.measure.loss(row.value(self.measure.key)) for row in (self.ours, self.peer))
        return self.ours.competes(self.measure) and ours <= peer

    def cells(self) -> tuple[str, str, str, str]:
        """What was measured, our figure, the best peer's with its name, and how they compare."""
        key = self.measure.key
        peer = f"{self.measure.show(self.peer.value(key))} ({self.peer.contender.title})"
        return self.measure.headline, self.measure.show(self.ours.value(key)), peer, self.compared()

    def compared(self) -> str:
        """Our figure over the peer's, or less the peer's; nothing where we have no figure."""
        ours, peer = self.ours.value(self.measure.key), self.peer.value(self.measure.key)
        if isinstance(ours, str) or isinstance(peer, str) or math.isnan(ours):
            return ""
        return f"{ours - peer:+.2f}" if self.measure.difference or not peer else f"{ours / peer:.2f} ×"


def summary(tables: list[Table]) -> list[Headline]:
    """Our mixture with its defaults beside the best peer, for every measure that has a headline."""
    found = []
    for table in tables:
        ours = next((row for row in table.rows if row.contender.package == OURS and row.contender.name in SHOWN), None)
        for measure in table.measures:
            peer = table.best(measure, functools.partial(_rivals, measure))
            if measure.headline and ours and peer:
                found.append(Headline(measure, ours, peer))
    return found


def _rivals(measure: Measure, contender: Contender) -> bool:
    return contender.package != OURS and (contender.joint or not measure.joint)


def _tells(contender: Contender) -> bool:
    return contender.settings not in ("", "defaults")


def _note(row: Row) -> str:
    settings = f"{row.contender.settings}. " if _tells(row.contender) else ""
    return f"{row.contender.title}: {settings}{row.why}".strip()
