"""Which columns of a table a model can learn: what they hold, and which were asked for."""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from everlearn.errors import InputError
from everlearn.streams.sources.times import TimeFormat, find_format, is_time

MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "none", "nil", "-", "?"})
LOOK_ROWS = 1000  # rows by which columns are judged
# A full covariance of 10,000 columns takes 800 MB a component: more columns are a mistake, said at once.
MOST_COLUMNS = 10_000
_TIME_NAMES = frozenset({"time", "timestamp", "date", "datetime", "ts", "epoch"})
# A column that counts rows would be learned as a trend that never repeats. The name alone is not enough: it must also
# rise by one.
_INDEX_NAMES = frozenset(
    ("index", "id", "row", "column0", "unnamed: 0", "no", "no.", "nr", "nr.", "#", "lfd. nr.", "line", "record",
     "sample", "count", "counter", "seq", "sequence", "zähler")
)  # fmt: skip
_LOOK_TIMES = 50  # texts by which it is judged whether a column holds times: most texts are none, in any of many forms
_NO_NUMBERS = ("text", "times", "lists")
_TIMES = ("times", "rising times")


class NoRowsError(InputError):
    """A table with columns, but without rows."""


class Choice(NamedTuple):
    """Which columns are asked for."""

    columns: Sequence[str] | None = None
    """Names, or patterns such as ``temp*``, in the order in which they are to be read; all numbers by default."""
    target: str | None = None
    """The column to predict."""
    time: str | None = None
    """The column of times; by default the first that holds times that differ, with "" none."""
    known: bool = False
    """Whether the columns were found in an earlier file: one that is not there is then one of gaps, and cells that are
    no numbers are bad rows, however many."""
    time_format: TimeFormat | None = None
    """How an earlier run found the times to be written, for columns that are `known`."""
    labels: bool = False
    """Whether the target holds text, for columns that are `known`."""
    grow: Sequence[str] = ()
    """Names or patterns of the columns of numbers that are read, too, when they appear later."""

    look: bool = False
    """Whether rows have to be seen in any case, to find their times."""

    def grows(self, name: str) -> bool:
        """Whether a column that appears is read from then on."""
        return name in self.grow or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.grow)

    @property
    def is_plain(self) -> bool:
        """Whether names of columns are all there is, so that no row has to be seen to choose."""
        patterns = any(mark in name for name in self.columns or () for mark in "*?[")
        named = self.columns is not None and self.target is None and self.time is None
        return named and not patterns and not self.look


ALL_NUMBERS = Choice()


class Columns(NamedTuple):
    """The columns that are read, and why others are not."""

    names: list[str]
    left_out: dict[str, str]
    """Reason by name."""
    target: str | None = None
    labels: bool = False
    """Whether the target holds text, such as names of classes."""
    time: str | None = None
    """The column of times, which is kept beside the rows and never learned."""
    time_format: TimeFormat | None = None

    @property
    def all(self) -> list[str]:
        """The columns, and the target behind them."""
        return self.names if self.target is None else [*self.names, self.target]

    @property
    def read(self) -> list[str]:
        """All columns that have to be read: `all`, and the times behind them."""
        return self.all if self.time is None else [*self.all, self.time]


def choose(
    place: str,
    kinds: Mapping[str, str],
    choice: Choice = ALL_NUMBERS,
    samples: Mapping[str, Sequence[Any]] | None = None,
) -> Columns:
    """Choose among columns, given what they hold.

    Parameters
    ----------
    place : str
        What to call the table in messages.
    kinds : mapping
        What each column holds, as `kind_of` says it.
    choice : Choice
        What is asked for.
    samples : mapping, optional
        Some values of each column, from which the format of the times is found; without them there are no times.

    Returns
    -------
    Columns
        The choice.
    """
    columns, target, time, known = choice[:4]
    for name, role in ((target, "for the target"), (time, "for --time")):
        if name and name not in kinds:
            raise InputError(f"{place} has no column {name!r} {role}. It has: {_listed(kinds)}.")
    # Numbers by the name of times or row numbers are of another kind, and so left out unless they are named.
    if columns is None:
        names = [name for name, kind in kinds.items() if kind == "numbers" and name not in (target, time)]
    else:
        asked = _asked_for(place, kinds, columns, known=known)
        names = [name for name in asked if name not in (target, time)]
    left_out = {name: kind for name, kind in kinds.items() if name not in names and name != target}
    if not names:
        what = ", ".join(f"{name} ({kind})" for name, kind in left_out.items())
        raise InputError(f"{place} has no column of numbers: {what[:300]}. A model learns from numbers.")
    check_width(place, len(names))
    chosen = Columns(names, left_out, target, target is not None and kinds[target] in _NO_NUMBERS)
    return _with_time(place, chosen, time, samples or {})


def check_width(place: str, n_columns: int) -> None:
    """Refuse more columns than any model can learn."""
    if n_columns > MOST_COLUMNS:
        raise InputError(
            f"{place} has {n_columns:,} columns; at most {MOST_COLUMNS:,} can be learned together. Choose some by name "
            "or pattern with --columns, or check the delimiter and the line ends of the file."
        )


def _with_time(place: str, chosen: Columns, time: str | None, samples: Mapping[str, Sequence[Any]]) -> Columns:
    """Add the column of times: the one that was named, or the first that holds times."""
    if time == "":
        return chosen
    candidates = [name for name, kind in chosen.left_out.items() if kind in _TIMES] if time is None else [time]
    # A column that says the same time in all rows says when they were exported.
    candidates.sort(key=lambda name: len({str(value) for value in samples.get(name, ())}) == 1)
    for name in candidates:
        found = find_format(samples.get(name, ()))
        if found is not None:
            kind = chosen.left_out[name] if chosen.left_out[name] in _TIMES else "times"
            return chosen._replace(time=name, time_format=found, left_out={**chosen.left_out, name: kind})
    if time is not None and samples:
        raise InputError(
            f"The column {time!r} of {place}, named by --time, holds no times: write them as 2026-11-05T12:00:00 or as "
            "seconds since 1970."
        )
    return chosen


def _asked_for(place: str, kinds: Mapping[str, str], columns: Sequence[str], *, known: bool) -> list[str]:
    # Gaps are for columns that disappear: a file that has none of them is another table.
    gaps = known and any(pattern in kinds for pattern in columns)
    chosen: dict[str, None] = {}
    for pattern in columns:
        found = [pattern] if pattern in kinds or gaps else fnmatch.filter(kinds, pattern)
        if not found:
            raise InputError(f"{place} has no column {pattern!r}. It has: {_listed(kinds)}.")
        chosen.update(dict.fromkeys(found))
    for name in chosen:
        if kinds.get(name) in _NO_NUMBERS and not known:
            raise InputError(f"The column {name!r} of {place} holds {kinds[name]}; a model learns from numbers.")
    return list(chosen)


def _listed(kinds: Mapping[str, str]) -> str:
    return ", ".join(itertools.islice(kinds, 50))[:300]


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
    # A tenth of the cells may be odd: those rows are left out one by one, with their reason.
    if len(others) > 0.1 * (len(others) + len(observed)):
        if any(isinstance(value, list) for value in others):
            return "lists"
        return "times" if _are_times(others) else "text"
    if not observed:
        return "nothing"
    steps = {b - a for a, b in itertools.pairwise(observed)}
    if name.lower() in _TIME_NAMES and all(step >= 0 for step in steps):
        return "rising times"
    return "row numbers" if name.lower() in _INDEX_NAMES and steps == {1.0} else "numbers"


def _are_times(values: Sequence[Any]) -> bool:
    """Whether texts are times, all but a tenth of some of them: a cell that cannot be read is a row without a time."""
    some = values[:: max(1, len(values) // _LOOK_TIMES)]
    wrong = (value for value in some if not is_time(value))
    return len(list(itertools.islice(wrong, len(some) // 10 + 1))) <= len(some) // 10


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
    except OverflowError:  # an integer beyond the floats, such as 10**400
        return math.inf
    except (TypeError, ValueError):
        return None


def unique_names(header: Sequence[str]) -> list[str]:
    """Names of all columns, each once."""
    names: dict[str, None] = {}  # ordered, and quick to look up for wide tables
    for i, cell in enumerate(header):
        name = cell.strip() or f"column{i}"
        names[name if name not in names else f"{name}.{i}"] = None
    return list(names)
