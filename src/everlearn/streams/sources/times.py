"""Times of rows: how a column of times is read, as seconds since 1970, and shown again in its own zone.

A time without a zone stays without one: it is counted as if it were UTC and shown as it was written. Numbers are taken
for seconds, milliseconds, microseconds or nanoseconds since 1970 by their size; smaller ones count seconds from
whatever the writer chose.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_DATES = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y")
_CLOCKS = (" %H:%M:%S", " %H:%M:%S.%f", " %H:%M", " %I:%M:%S %p", " %I:%M %p", "")
# Day first before month first only where dots say so: of 05/11/2026 the month comes first, unless a day above 12 shows.
_FORMS = (*(date + clock for date in _DATES for clock in _CLOCKS), "%H:%M:%S", "%H:%M")
# Smallest number of each unit that lies after March 1973: below it, numbers are not counted from 1970.
_UNITS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e8, 1.0))
_ISO, _NUMBER, _RELATIVE = "iso", "number", "relative"


class TimeFormat(NamedTuple):
    """How the times of a column are written."""

    form: str
    """"iso", "number" (since 1970), "relative" (any other number), or a form of `strptime`."""
    unit: float = 1.0
    """Seconds in one, for numbers."""
    zone: str = ""
    """Offset from UTC, such as "+02:00"; empty where the times have no zone."""

    def seconds(self, value: Any) -> float:
        """A value of the column as seconds since 1970; NaN where there is none or it cannot be read."""
        try:
            if self.form in (_NUMBER, _RELATIVE):
                # Not rounded: nanoseconds since 1970 have 19 digits, of which a float keeps 16, about 0.2 microseconds.
                return float(value) * self.unit
            if isinstance(value, datetime.datetime):
                return _seconds(value)
            if self.form == _ISO:
                return _seconds(datetime.datetime.fromisoformat(value.strip()))
            return _seconds(datetime.datetime.strptime(value.strip(), self.form))
        except (TypeError, ValueError, AttributeError, OverflowError):
            return math.nan

    def show(self, seconds: float) -> str:
        """Seconds since 1970 as a text with the zone of the column; empty for NaN."""
        if math.isnan(seconds):
            return ""
        if self.form == _RELATIVE:
            return f"{seconds:.10g}"
        try:
            moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        except (OverflowError, OSError, ValueError):
            return f"{seconds:.10g}"
        if not self.form.startswith("%H"):
            moment = moment.astimezone(_zone(self.zone)) if self.zone else moment.replace(tzinfo=None)
            digits = "milliseconds" if moment.microsecond else "seconds"
            return moment.isoformat(timespec=digits)
        return moment.strftime("%H:%M:%S")


def restored_format(value: Any) -> TimeFormat | None:
    """The format that a state file holds as a list; None for none, or for anything else."""
    match value:
        case [str(form), int() | float() as unit, str(zone)] if not zone or is_time(f"2000-01-01T00:00:00{zone}"):
            return TimeFormat(form, unit, zone)
    return None


def find_format(values: Sequence[Any]) -> TimeFormat | None:
    """The format in which the values of a column can be read, all but a tenth of them; None if there is none."""
    known = [value for value in values if value is not None and value == value and str(value).strip()]
    if not known:
        return None
    if all(_is_number(value) for value in known):
        # By the largest, so that a first row of zero does not decide for all.
        largest = max(abs(float(value)) for value in known)
        unit = next((unit for least, unit in _UNITS if largest >= least), None)
        return TimeFormat(_RELATIVE) if unit is None else TimeFormat(_NUMBER, unit, "+00:00")
    # A time has digits: most texts are no times, and trying all forms on each would take most of opening a file.
    most = len(known) // 10
    if _has_more([value for value in known if not _has_digit(value)], most):
        return None
    # A form for all of them comes first: a day above 12 among few says which number is the month.
    for n_odd, form in itertools.product(sorted({0, most}), (_ISO, *_FORMS)):
        candidate = TimeFormat(form)
        if not _has_more((value for value in known if math.isnan(candidate.seconds(value))), n_odd):
            first = next(value for value in known if not math.isnan(candidate.seconds(value)))
            return candidate._replace(zone=_zone_of(first, form))
    return None


def _has_digit(value: Any) -> bool:
    return isinstance(value, datetime.datetime) or any(map(str.isdigit, str(value)))


def _has_more(values: Iterable[Any], most: int) -> bool:
    """Whether there are more than so many; the search ends with the first too many."""
    return sum(1 for _ in itertools.islice(values, most + 1)) > most


def moment_of(text: str, how: TimeFormat) -> float:
    """Seconds since 1970 of a time that a person wrote as the stream does, or nearly so; NaN if it is none.

    Seconds may be left out; a time without a zone is one of the stream's own clock.
    """
    text = text.strip()
    if how.form not in (_ISO, _NUMBER, _RELATIVE):
        # Of 05/11/2026 the stream knows which is the month.
        forms = (how.form, *(how.form.partition(" ")[0] + clock for clock in _CLOCKS))
        found = next((s for form in forms if not math.isnan(s := TimeFormat(form).seconds(text))), math.nan)
        if not math.isnan(found):
            return found
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        found_format = find_format([text])
        return math.nan if found_format is None else found_format.seconds(text)
    if moment.tzinfo is None and how.zone:
        moment = datetime.datetime.fromisoformat(moment.isoformat() + how.zone)
    return _seconds(moment)


def is_time(value: Any) -> bool:
    """Whether a text is a time or a date."""
    return isinstance(value, str) and not _is_number(value) and find_format([value]) is not None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | datetime.datetime):
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _seconds(moment: datetime.datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _zone_of(value: Any, form: str) -> str:
    """The offset of a time that has one, as ISO 8601 writes it."""
    if form != _ISO:
        return ""
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(str(value).strip())
    return moment.isoformat()[-6:] if moment.tzinfo else ""


def _zone(offset: str) -> datetime.timezone:
    moment = datetime.datetime.fromisoformat(f"2000-01-01T00:00:00{offset}")
    return datetime.timezone(moment.utcoffset() or datetime.timedelta())
