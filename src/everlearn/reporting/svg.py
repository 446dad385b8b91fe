"""Static pictures of a watched machine as SVG: traces of sensors with what was expected, and a timeline of episodes."""

from __future__ import annotations

import datetime
import html
import math
from collections.abc import Sequence

import numpy as np

from everlearn.streams.sources.times import TimeFormat
from everlearn.typing import Array
from everlearn.watch.episodes import Episode
from everlearn.watch.traces import TracePoint, thinned

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1000.0, 150.0, 12.0, 8.0, 22.0
MOST_POINTS = 600
_TICKS = 8
# In seconds, up to a week: ticks fall on full minutes, hours and days.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


class Axis:
    """Times, or rows where there are none, along the width of a picture.

    Parameters
    ----------
    points : sequence of TracePoint
        The points of the traces.
    time_format : TimeFormat or None
        How times are shown; rows are if it is None.
    """

    def __init__(self, points: Sequence[TracePoint], time_format: TimeFormat | None) -> None:
        self.time_format = time_format
        places = [self.place_of(point) for point in points]
        self.first, self.last = (places[0], places[-1]) if places else (0.0, 1.0)
        self._scale = (WIDTH - LEFT - RIGHT) / max(self.last - self.first, 1e-9)

    def place_of(self, point: TracePoint) -> float:
        """The time of a point, or its row."""
        return float(point.row) if self.time_format is None else point.time

    def x(self, place: float) -> float:
        """Where a time or row lies, in units of the picture."""
        return LEFT + (min(max(place, self.first), self.last) - self.first) * self._scale

    def span(self, episode: Episode) -> tuple[float, float]:
        """Where an episode begins and how wide it is: two units at least, so that it can be seen."""
        ends = (episode.first_row, episode.last_row) if self.time_format is None else (episode.begin, episode.end)
        begin, end = self.x(ends[0]), self.x(ends[1])
        return begin, max(end - begin, 2.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Round places along the axis with their labels."""
        length = max(self.last - self.first, 1e-9)
        step = next((s for s in _STEPS if length / s <= _TICKS), length / _TICKS)
        places = np.arange(math.ceil(self.first / step) * step, self.last + 1e-9, step)
        return [(self.x(place), self._label(float(place))) for place in places]

    def _label(self, place: float) -> str:
        if self.time_format is None:
            return f"{place:,.0f}"
        day, mark, time = self.time_format.show(place).partition("T")
        if not mark:
            return day
        date = datetime.date.fromisoformat(day)
        return time[:5] if time[:5] != "00:00" else date.strftime("%d %b")


def _number(value: float) -> str:
    return f"{value:.1f}"


def _frame(height: float, title: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{html.escape(title, quote=True)}">'
        f"<title>{html.escape(title)}</title>{''.join(body)}</svg>"
    )


def _axis(axis: Axis, height: float) -> list[str]:
    base = height - BOTTOM
    found = [f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>']
    for x, label in axis.ticks():
        found.append(f'<text class="tick" x="{_number(x)}" y="{height - 6}">{html.escape(label)}</text>')
    return found


def _spans(axis: Axis, episodes: Sequence[Episode], top: float, height: float, *, said: bool = False) -> list[str]:
    """Coloured spans of episodes, with their sentences for the pointer if `said`."""
    found = []
    for episode in episodes:
        x, width = axis.span(episode)
        title = f"<title>{html.escape(episode.sentence)}</title>" if said else ""
        kind = "fault" if episode.severity == "alarm" else "look"
        found.append(
            f'<rect class="span {kind}" x="{_number(x)}" y="{_number(top)}" width="{_number(width)}" '
            f'height="{_number(height)}">{title}</rect>'
        )
    return found


def trace_picture(
    name: str,
    column: int,
    points: Sequence[TracePoint],
    episodes: Sequence[Episode],
    axis: Axis,
    *,
    height: float = 170.0,
    most_points: int = MOST_POINTS,
) -> str:
    """One sensor over time: its values with their extremes, the band that was expected, and the episodes it is part of.

    Parameters
    ----------
    name : str
        The sensor.
    column : int
        Its place in the arrays of the points.
    points : sequence of TracePoint
        The traces.
    episodes : sequence of Episode
        Episodes to show as spans.
    axis : Axis
        The axis of times.
    height : float, default=170.0
        Height of the picture.
    most_points : int, default=600
        Points to draw at most; neighbours are joined.
    """
    some = thinned(points, most_points)
    x = np.array([axis.x(axis.place_of(point)) for point in some])
    curves = {field: np.array([getattr(point, field)[column] for point in some]) for field in TracePoint._fields[2:]}
    low, high = _range(curves)

    def y(values: Array) -> Array:
        return np.asarray(TOP + (high - values) / (high - low) * (height - TOP - BOTTOM))

    # From back to front: spans, the expected band, extremes, the trace.
    body = _spans(axis, episodes, TOP, height - TOP - BOTTOM)
    body += [f'<path class="band" d="{_area(x, y(curves["low"]), y(curves["high"]))}"/>']
    body += [f'<path class="extremes" d="{_area(x, y(curves["least"]), y(curves["most"]))}"/>']
    body += [f'<path class="trace" d="{_line(x, y(curves["mean"]))}"/>']
    body += [f'<text class="name" x="{LEFT - 10}" y="{height / 2:.0f}">{html.escape(name)}</text>']
    for value, place in ((high, TOP + 10), (low, height - BOTTOM)):
        body.append(f'<text class="value" x="{LEFT - 10}" y="{_number(place)}">{value:.4g}</text>')
    return _frame(height, f"{name} over time", [*body, *_axis(axis, height)])


def _range(curves: dict[str, Array]) -> tuple[float, float]:
    """Range of the values, with a margin; the expected band is cut off where it is wider, so as not to dwarf them."""
    values = np.concatenate([curves["least"], curves["most"], curves["mean"]])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low) or max(abs(high), 1.0) * 0.01
    return low - margin, high + margin


def _runs(*curves: Array) -> list[slice]:
    """Stretches over which all curves are known."""
    known = np.all([np.isfinite(curve) for curve in curves], axis=0)
    # A gap in the data is a gap in the line: nothing is drawn across it.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(int)))
    return [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _line(x: Array, y: Array) -> str:
    pieces = []
    for run in _runs(y):
        pairs = [f"{a:.1f} {b:.1f}" for a, b in zip(x[run], y[run], strict=True)]
        pieces.append("M" + "L".join(pairs))
    return "".join(pieces)


def _area(x: Array, low: Array, high: Array) -> str:
    # What leaves the picture is cut at its edge: a band may be wide where little is known.
    low, high = np.clip(low, -1e4, 1e4), np.clip(high, -1e4, 1e4)
    pieces = []
    for run in _runs(low, high):
        forth = [f"{a:.1f} {b:.1f}" for a, b in zip(x[run], high[run], strict=True)]
        back = [f"{a:.1f} {b:.1f}" for a, b in zip(x[run][::-1], low[run][::-1], strict=True)]
        pieces.append("M" + "L".join([*forth, *back]) + "Z")
    return "".join(pieces)


def timeline_picture(columns: Sequence[str], episodes: Sequence[Episode], axis: Axis) -> str:
    """When which sensor was to blame: a row for each sensor that was, and one for rows that did not come.

    Parameters
    ----------
    columns : sequence of str
        Names of the sensors.
    episodes : sequence of Episode
        The episodes.
    axis : Axis
        The axis of times.
    """
    lines: dict[str, list[Episode]] = {}
    for episode in episodes:
        blamed = [name for name in episode.blamed[:2] if name in columns]
        for name in blamed or ["the stream"]:
            lines.setdefault(name, []).append(episode)
    order = [name for name in columns if name in lines] + ["the stream"] * ("the stream" in lines)
    height = TOP + 26.0 * max(len(order), 1) + BOTTOM
    body = []
    for i, name in enumerate(order):
        top = TOP + 26.0 * i
        body.append(f'<text class="name" x="{LEFT - 10}" y="{top + 15:.0f}">{html.escape(name)}</text>')
        body.append(f'<rect class="lane" x="{LEFT}" y="{top + 2}" width="{WIDTH - LEFT - RIGHT}" height="20"/>')
        body += _spans(axis, lines[name], top + 2, 20.0, said=True)
    return _frame(height, "Episodes by sensor", [*body, *_axis(axis, height)])
