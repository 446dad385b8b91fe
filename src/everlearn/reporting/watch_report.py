"""The report on a watched machine: one page of words and pictures for whoever has to decide, then the details."""

from __future__ import annotations

import datetime
import html
import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import everlearn
from everlearn.persistence.atomic_write import write_whole
from everlearn.reporting.svg import Axis, timeline_picture, trace_picture
from everlearn.streams.sources.times import TimeFormat
from everlearn.watch.episodes import Episode
from everlearn.watch.sentences import duration, what, when
from everlearn.watch.session import stored_episodes, stored_traces
from everlearn.watch.traces import TracePoint, thinned

# No scripts at all: should a name of a sensor get past the escaping, nothing of it runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_FIRST_PICTURES = 2  # beside the timeline
_MOST_SENSORS = 24
_FEW_POINTS = 240  # of a small picture
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #626b76; --paper: #fff; --rule: #d6dbe1; --band: #b9d7f2;
  --trace: #1f4f82; --alarm: #d1242f; --look: #bf8700; --well: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa4af; --paper: #14181d; --rule: #39424c;
  --band: #274866; --trace: #8cc2f5; --alarm: #ff6b6b; --look: #e3b341; --well: #4ac26b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0; }
main { max-width: 1040px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 30px 0 8px; }
.soft { color: var(--soft); } .lead { font-size: 17px; margin: 14px 0; }
.state { display: inline-block; border-radius: 6px; padding: 2px 12px; font-weight: 600; color: #fff; }
.state.well { background: var(--well); } .state.look { background: var(--look); }
.state.alarm { background: var(--alarm); }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); font-weight: 500; }
td, th { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.alarm { color: var(--alarm); font-weight: 600; } td.look { color: var(--look); font-weight: 600; }
svg { width: 100%; height: auto; display: block; margin: 4px 0 10px; }
.rule { stroke: var(--rule); } .tick { font-size: 11px; fill: var(--soft); text-anchor: middle; }
.name, .value { font-size: 12px; fill: var(--ink); text-anchor: end; } .value { font-size: 10px; fill: var(--soft); }
.trace { fill: none; stroke: var(--trace); stroke-width: 1.4; } .extremes { fill: var(--trace); opacity: 0.35; }
.band { fill: var(--band); opacity: 0.8; } .lane { fill: var(--rule); opacity: 0.35; }
.span.fault { fill: var(--alarm); opacity: 0.35; } .span.look { fill: var(--look); opacity: 0.35; }
@media (max-width: 600px) { main { padding: 16px 12px 40px; } td, th { padding-right: 6px; font-size: 13px;
  overflow-wrap: anywhere; } }
@media print { main { padding: 0; } h2 { break-after: avoid; } svg, tr { break-inside: avoid; } }
"""


def write_watch_report(
    path: str | os.PathLike[str],
    store: Any,
    name: str,
    *,
    place: str,
    columns: Sequence[str],
    time_format: TimeFormat | None,
) -> None:
    """Write the report on what a watcher has seen to one HTML file without scripts, all of it or nothing.

    Parameters
    ----------
    path : path-like
        The file; an existing one is replaced.
    store : Store or MemoryStore
        Where the watcher keeps its state.
    name : str
        Its name in the store.
    place : str
        What was watched.
    columns : sequence of str
        Names of the sensors.
    time_format : TimeFormat or None
        How times are shown, for a stream that has them.
    """
    episodes, points = stored_episodes(store, name), stored_traces(store, name, n_columns=len(columns))
    write_whole(path, render(episodes, points, place=place, columns=columns, time_format=time_format), "report")


def render(
    episodes: Sequence[Episode],
    points: Sequence[TracePoint],
    *,
    place: str,
    columns: Sequence[str],
    time_format: TimeFormat | None,
) -> str:
    """Give the text of a report; see :func:`write_watch_report`."""
    if time_format is not None and all(math.isnan(point.time) for point in points):
        time_format = None
    points = [point for point in points if time_format is None or not math.isnan(point.time)]
    axis = Axis(points, time_format)
    body = [_head(place, episodes, points, axis), _table(episodes, time_format)]
    if points:
        body += _pictures(columns, episodes, points, axis)
    body.append(_about(episodes, points))
    return _page(place, "\n".join(body))


def _head(place: str, episodes: Sequence[Episode], points: Sequence[TracePoint], axis: Axis) -> str:
    state, words = state_of(episodes)
    written = datetime.datetime.now().astimezone().strftime("%d %B %Y, %H:%M")
    return (
        f"<h1>{html.escape(os.path.basename(place) or place)}: what happened</h1>"
        f'<p class="soft">{html.escape(_period(points, axis))}. Reported on {html.escape(written)} by everlearn '
        f"{everlearn.__version__}.</p>"
        f'<p class="lead"><span class="state {state}">{words}</span> {html.escape(summary(episodes, axis))}</p>'
    )


def state_of(episodes: Sequence[Episode]) -> tuple[str, str]:
    """The state at the end, as a name and in words: all well, look, or alarm."""
    # An episode that a person has marked is dealt with, even if it lasts.
    lasting = [episode for episode in episodes if episode.is_open and not episode.mark]
    if any(episode.severity == "alarm" for episode in lasting):
        return "alarm", "Alarm at the end"
    return ("look", "Look at it") if lasting else ("well", "All well at the end")


def summary(episodes: Sequence[Episode], axis: Axis) -> str:
    """The whole period in two sentences."""
    if not episodes:
        return "Nothing unusual happened."
    alarms = sum(episode.severity == "alarm" for episode in episodes)
    kinds = Counter(_CALLED[episode.kind] for episode in episodes)
    told = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    text = f"{len(episodes)} episode{'s' * (len(episodes) > 1)} ({told}), "
    text += "1 of them an alarm." if alarms == 1 else f"{alarms} of them alarms."
    blamed = Counter(episode.blamed[0] for episode in episodes if episode.sensors and episode.kind != "sampling")
    if blamed:
        name, n = blamed.most_common(1)[0]
        text += f" Most often to blame: {name} ({n} time{'s' * (n > 1)})."
    if axis.time_format is not None and axis.last > axis.first:
        lost = sum(max(episode.end - episode.begin, 0.0) for episode in episodes)
        text += f" {max(0.0, 1 - lost / (axis.last - axis.first)):.0%} of the time nothing unusual was seen."
    return text


_CALLED = {
    "unusual": "unusual behaviour", "drift": "drift", "frozen": "frozen sensor", "gone": "missing sensor",
    "no data": "break in the data", "sampling": "change of the sampling rate",
}  # fmt: skip


def _period(points: Sequence[TracePoint], axis: Axis) -> str:
    if not points:
        return "No rows yet"
    rows = f"{points[-1].row + 1:,} rows"
    if axis.time_format is None:
        return rows
    begin, end = (axis.time_format.show(moment).replace("T", " ")[:16] for moment in (axis.first, axis.last))
    return f"{begin} to {end}, {duration(axis.last - axis.first)}, {rows}"


def _table(episodes: Sequence[Episode], time_format: TimeFormat | None) -> str:
    if not episodes:
        return ""
    rows = []
    for episode in episodes:
        seconds = episode.end - episode.begin
        long = "" if math.isnan(seconds) else duration(seconds) if seconds >= 1.0 else "a moment"
        end = {"open": "lasts", "accepted": "accepted as normal"}.get(episode.status, "")
        mark = {"fault": "marked as a fault", "normal": "marked as normal"}.get(episode.mark, "")
        cells = (
            str(episode.number), when(episode, time_format), long, what(episode), sureness(episode),
            ", ".join(filter(None, (end, mark))),
        )  # fmt: skip
        tds = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr><td class="{episode.severity}">{episode.severity}</td>{tds}</tr>')
    head = "".join(f"<th>{name}</th>" for name in ("", "no.", "when", "how long", "what", "how sure", ""))
    return f"<h2>Episodes</h2><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def sureness(episode: Episode) -> str:
    """How sure it is that an episode is no chance, in words."""
    if episode.kind not in ("unusual", "drift"):
        return "certain"
    if episode.p_value < 1e-12:
        return "beyond doubt"
    return "very sure" if episode.p_value < 1e-8 else "likely"


def _pictures(
    columns: Sequence[str], episodes: Sequence[Episode], points: Sequence[TracePoint], axis: Axis
) -> list[str]:
    """The timeline and the two sensors that were to blame most; then all others."""
    weight: Counter[str] = Counter()
    for episode in episodes:
        for place, name in enumerate(episode.blamed[:2]):
            # The sensor named first counts twice, an alarm three times: the pictures of what matters come first.
            weight[name] += (2 - place) * (3 if episode.severity == "alarm" else 1)
    order = sorted(range(len(columns)), key=lambda j: -weight[columns[j]])[:_MOST_SENSORS]

    few = thinned(points, _FEW_POINTS)

    def trace(j: int, *, large: bool) -> str:
        own = [e for e in episodes if columns[j] in e.blamed[:2] or e.kind in ("no data", "sampling")]
        if large:
            return trace_picture(columns[j], j, points, own, axis)
        return trace_picture(columns[j], j, few, own, axis, height=120.0)

    found = ["<h2>When, and which sensor</h2>", timeline_picture(columns, episodes, axis)]
    found += ['<p class="soft">Line: the sensor. Band: what the other sensors let expect. Coloured: episodes.</p>']
    found += [trace(j, large=True) for j in order[:_FIRST_PICTURES]]
    if order[_FIRST_PICTURES:]:
        found += ["<h2>All other sensors</h2>", *(trace(j, large=False) for j in order[_FIRST_PICTURES:])]
    return found


def _about(episodes: Sequence[Episode], points: Sequence[TracePoint]) -> str:
    n = sum(episode.kind in ("unusual", "drift") for episode in episodes)
    return (
        '<h2>How this was found</h2><p class="soft">A model of all sensors together learned what is usual, row by row, '
        "and each row was compared with it before it was learned. Rows that did not fit were held back. Sensors that "
        "stood still or fell silent, breaks in the data and changes of its pace were found by checks of their own. "
        f"{n} of the {len(episodes)} episodes come from the model; the pictures have {len(points):,} points.</p>"
    )


def _page(place: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{html.escape(place)}: what happened</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
