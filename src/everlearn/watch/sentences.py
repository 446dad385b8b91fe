"""Episodes in words that an operator reads at a glance."""

from __future__ import annotations

import math

from everlearn.streams.sources.times import TimeFormat
from everlearn.watch.episodes import Blame, Episode

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_MOST_SENSORS = 3
_SMALL_SHARE = 0.5  # of the first sensor's blame, below which another one is not named


def sentence(episode: Episode, time_format: TimeFormat | None) -> str:
    """One sentence: when, which sensor, what it said and what was expected.

    Examples
    --------
    >>> from everlearn.watch.episodes import Blame, Episode
    >>> from everlearn.watch.sentences import sentence
    >>> from everlearn.streams.sources.times import TimeFormat
    >>> hot = Blame("bearing temp [°C]", 1.0, 71.23, 52.04, 55.31)
    >>> episode = Episode(1, "unusual", 38520, 39420, 38520.0, 39420.0, status="over", sensors=(hot,))
    >>> sentence(episode, TimeFormat("iso"))
    '10:42 to 10:57 bearing temp [°C] 71.2, expected 52.0 to 55.3 from the other sensors'
    """
    return f"{when(episode, time_format)} {what(episode)}"


def what(episode: Episode) -> str:
    """What happened, without the time."""
    names = ", ".join(blame.sensor for blame in episode.sensors)
    first = episode.sensors[0] if episode.sensors else Blame("", 0.0)
    match episode.kind:
        case "frozen":
            return f"{names} frozen at {first.value:.5g}"
        case "gone":
            return f"{names} gives no values"
        case "no data":
            return "no rows come" if episode.is_open else f"no rows came{lasted(episode)}"
        case "sampling":
            return f"rows come every {duration(first.value)} instead of every {duration(first.low)}"
    verb = " drifts:" if episode.kind == "drift" else ""
    told = f"{first.sensor}{verb} {expectation(first)}" if episode.sensors else "rows are unusual"
    others = [b.sensor for b in episode.sensors[1:_MOST_SENSORS] if b.share > _SMALL_SHARE * first.share]
    return f"{told}; also {', '.join(others)}" if others else told


def expectation(blame: Blame) -> str:
    """The value of a sensor and where it was expected, with as many digits as tell them apart."""
    if math.isnan(blame.value):
        return "is unusual"
    if math.isnan(blame.low) or math.isnan(blame.high):
        return f"{blame.value:.4g}, unusual"
    digits = _digits(blame.high - blame.low)
    value, low, high = (f"{x:.{digits}f}" for x in (blame.value, blame.low, blame.high))
    if blame.low <= blame.value <= blame.high:
        # The value itself may be expected, and its course not: too restless, too still, or too fast.
        return f"{value} behaves unusually for its recent past"
    return f"{value}, expected {low} to {high} from the other sensors"


def _digits(width: float) -> int:
    """Decimals that show a width with two digits."""
    return max(0, min(6, 1 - math.floor(math.log10(width)))) if width > 0 else 3


def when(episode: Episode, time_format: TimeFormat | None) -> str:
    """From when to when, or since when; by row numbers where the stream has no times."""
    is_open = episode.is_open
    if time_format is None or math.isnan(episode.begin):
        rows = f"row {episode.first_row:,}"
        return f"since {rows}" if is_open else f"{rows} to {episode.last_row:,}"
    short = episode.end - episode.begin < 2 * _MINUTE
    begin = clock_time(episode.begin, time_format, seconds=short)
    if is_open:
        return f"since {begin}"
    end = clock_time(episode.end, time_format, seconds=short)
    return begin if begin == end else f"{begin} to {end}"


def clock_time(moment: float, time_format: TimeFormat, *, seconds: bool = False) -> str:
    """Hours and minutes by the stream's own clock, with seconds if they matter."""
    text = time_format.show(moment)
    day, mark, time = text.partition("T")
    return time[: 8 if seconds else 5] if mark else day


def lasted(episode: Episode) -> str:
    """How long it lasted, or nothing where that is unknown."""
    seconds = episode.end - episode.begin
    return "" if math.isnan(seconds) else f" for {duration(seconds)}"


def duration(seconds: float) -> str:
    """A stretch of time in the unit that people use for it."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            whole, rest = divmod(seconds, unit)
            if name == "h" and rest >= _MINUTE:
                return f"{whole:.0f} h {rest // _MINUTE:.0f} min"
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
