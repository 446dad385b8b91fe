"""Which columns of a table a model can learn: what they hold, and which were asked for."""

from __future__ import annotations

import datetime
import fnmatch
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from everlearn.errors import InputError

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "none", "nil", "-", "?"})
LOOK_ROWS = 1000  # rows by which columns are judged
_TIME_NAMES = frozenset({"time", "timestamp", "date", "datetime", "ts", "epoch"})
_TIME_FORMS = (
    "%H:%M:%S",
    "%H:%M",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
)
_INDEX_NAMES = frozenset({"index", "id", "row", "column0", "unnamed: 0"})
_NO_NUMBERS = ("text", "times", "lists")


class Columns(NamedTuple):
    """The columns that are read, and why others are not."""

    names: list[str]
    left_out: dict[str, str]
    """Reason by name."""
    target: str | None = None
    labels: bool = False
    """Whether the target holds text, such as names of classes."""

    @property
    def all(self) -> list[str]:
        """The columns, and the target behind them."""
        return self.names if self.target is None else [*self.names, self.target]


def choose(
    place: str, kinds: Mapping[str, str], columns: Sequence[str] | None = None, target: str | None = None
) -> Columns:
    """Choose among columns, given what they hold.

    Parameters
    ----------
    place : str
        What to call the table in messages.
    kinds : mapping
        What each column holds, as `kind_of` says it.
    columns : sequence of str, optional
        Names, or patterns such as ``temp*``, in the order in which they are to be read; all numbers otherwise.
    target : str, optional
        Name of the column that is to be predicted.

    Returns
    -------
    Columns
        The choice.
    """
    if target is not None and target not in kinds:
        raise InputError(f"{place} has no column {target!r} for the target. It has: {_listed(kinds)}.")
    if columns is None:
        names = [name for name, kind in kinds.items() if kind == "numbers" and name != target]
    else:
        names = [name for name in _asked_for(place, kinds, columns) if name != target]
    left_out = {name: kind for name, kind in kinds.items() if name not in names and name != target}
    if not names:
        what = ", ".join(f"{name} ({kind})" for name, kind in left_out.items())
        raise InputError(f"{place} has no column of numbers: {what[:300]}. A model learns from numbers.")
    return Columns(names, left_out, target, target is not None and kinds[target] in _NO_NUMBERS)


def _asked_for(place: str, kinds: Mapping[str, str], columns: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for pattern in columns:
        found = [pattern] if pattern in kinds else fnmatch.filter(kinds, pattern)
        if not found:
            raise InputError(f"{place} has no column {pattern!r}. It has: {_listed(kinds)}.")
        chosen += [name for name in found if name not in chosen]
    for name in chosen:
        if kinds[name] in _NO_NUMBERS:
            raise InputError(f"The column {name!r} of {place} holds {kinds[name]}; a model learns from numbers.")
    return chosen


def _listed(kinds: Mapping[str, str]) -> str:
    return ", ".join(kinds)[:300]


def kind_of(name: str, values: Sequence[Any], *, decimal_comma: bool = False) -> str:
    """What a column holds, judging by some of its values.

    Returns
    -------
    str
        "numbers", "text", "times", "rising times" (numbers by that name), "row numbers", "lists" or "nothing".
    """
    found = [number(value, decimal_comma=decimal_comma) for value in values]
    observed = [value for value in found if value is not None and not math.isnan(value)]
    others = [value for value, parsed in zip(values, found, strict=True) if parsed is None]
    if len(others) > 0.1 * (len(others) + len(observed)):
        if any(isinstance(value, list) for value in others):
            return "lists"
        return "times" if all(is_time(value) for value in others) else "text"
    if not observed:
        return "nothing"
    steps = {b - a for a, b in itertools.pairwise(observed)}
    if name.lower() in _TIME_NAMES and all(step >= 0 for step in steps):
        return "rising times"
    return "row numbers" if name.lower() in _INDEX_NAMES and steps == {1.0} else "numbers"


def number(value: Any, *, decimal_comma: bool = False) -> float | None:
    """A value as a number, NaN where there is none, None where it is something else."""
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in MISSING:
            return math.nan
        value = text.replace(",", ".") if decimal_comma else text
    elif value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def is_time(value: Any) -> bool:
    """Whether a text is a time or a date."""
    if not isinstance(value, str):
        return False
    text = value.strip()
    for form in _TIME_FORMS:
        try:
            datetime.datetime.strptime(text, form)
        except ValueError:
            continue
        return True
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def unique_names(header: Sequence[str]) -> list[str]:
    """Names of all columns, each once."""
    names: list[str] = []
    for i, cell in enumerate(header):
        name = cell.strip() or f"column{i}"
        names.append(name if name not in names else f"{name}.{i}")
    return names
