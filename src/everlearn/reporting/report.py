"""A report: one HTML file with the pictures of a model and of its run, which needs nothing else to be read."""

from __future__ import annotations

import datetime
import html
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import everlearn
from everlearn.gaussian import mixture as mixtures
from everlearn.persistence.atomic_write import write_whole
from everlearn.reporting import figures as pictures
from everlearn.reporting.assets import asset, plotly_js
from everlearn.reporting.events import TOLD, column_of, name_of, reason_of, rows_of, words_of
from everlearn.reporting.queries import column_names, is_detector, is_fitted, mixture_of, score_of
from everlearn.reporting.regimes import Stay
from everlearn.reporting.tables import Table
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.records import mean_log_likelihood

# Names of columns come from data. Should one get past the escaping, it can load nothing and send nothing anywhere.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_MOST_COLUMNS = 12
_MOST_EVENTS = 20


def write_report(
    path: str | os.PathLike[str],
    model: Any,
    history: Sequence[Any],
    events: Sequence[Any] = (),
    *,
    name: str = "model",
    totals: Mapping[str, int] | None = None,
    time_format: TimeFormat | None = None,
    stays: Sequence[Stay] = (),
    findings: Sequence[Table] = (),
) -> None:
    """Write a report on a model and its run to one HTML file, all of it or nothing.

    Parameters
    ----------
    path : path-like
        The file; an existing one is replaced.
    model : estimator
        The model, as it was left.
    history : sequence of Interval
        Points of the run, oldest first.
    events : sequence of Event
        Changes, novelties and anomalies of the run, oldest first.
    name : str
        What to call the model.
    totals : mapping from str to int, optional
        Counts of the whole run, as `Store.totals` gives them.
    time_format : TimeFormat, optional
        How the times of the stream are shown, for a stream that has them.
    stays : sequence of Stay
        When the stream was in which regime, where that is known.
    findings : sequence of Table
        What was found, which the report begins with.

    Raises
    ------
    MissingExtraError
        The plotly package, which brings the drawing script, is not installed.
    OSError
        The file could not be written.
    """
    text = render(
        model, history, events, name=name, totals=totals, time_format=time_format, stays=stays, findings=findings
    )
    write_whole(path, text, "report")


def render(
    model: Any,
    history: Sequence[Any],
    events: Sequence[Any] = (),
    *,
    name: str = "model",
    totals: Mapping[str, int] | None = None,
    time_format: TimeFormat | None = None,
    stays: Sequence[Stay] = (),
    findings: Sequence[Table] = (),
) -> str:
    """Give the text of a report; see :func:`write_report`."""
    body = [_head(name, model, history, dict(totals or {})), '<div class="cards">']
    drawings = _drawings(model, history, events)
    if stays:
        drawings = {"regimes": ("When each regime was active", True, pictures.timeline(stays)), **drawings}
    first = [_card(key, *drawings[key][:2]) for key in drawings if key == "regimes"]
    body += [*first, *(_table_card(table.title, table._replace(title=""), "wide") for table in findings)]
    if is_detector(model):
        body.append(_anomalies_table(events, time_format))
    body += [_card(key, title, wide) for key, (title, wide, _) in drawings.items() if key != "regimes"]
    if is_fitted(model):
        body.append(_columns_table(model))
    body += [_events_table(events, time_format), "</div>"]
    data = {key: picture for key, (_, _, picture) in drawings.items()}
    return _page(name, "\n".join(body), data)


def _drawings(model: Any, history: Sequence[Any], events: Sequence[Any]) -> dict[str, tuple[str, bool, Any]]:
    """Title, width and picture of each card."""
    score = score_of(model)
    title = f"{score[0].upper()}{score[1:]} of rows before they were learned"
    found = {"likelihood": (title, True, pictures.likelihood(history, events, score=score))}
    if is_fitted(model):
        found["components"] = ("Components", False, pictures.components(model))
        found["weights"] = ("Weights", False, pictures.weights(model))
    if is_detector(model) and is_fitted(model) and model.n_held_:
        told = model.explain(model.held_rows_[-1:])
        title = f"Who is to blame for the latest row held back: {told.sentence()}"
        found["blame"] = (title, False, pictures.blame(told))
    found["forgetting"] = ("Forgetting and memory", False, pictures.forgetting(history))
    found["throughput"] = ("Throughput", False, pictures.throughput(history))
    if is_fitted(model):
        for j, column in enumerate(column_names(model)[:_MOST_COLUMNS]):
            found[f"column{j}"] = (f"Density of {column}", False, pictures.density(model, {}, column))
    return found


def _head(name: str, model: Any, history: Sequence[Any], totals: dict[str, int]) -> str:
    numbers = {
        "rows": f"{totals.get('rows', getattr(model, 'n_samples_seen_', 0)):,}",
        "columns": f"{getattr(model, 'n_features_in_', 0):,}",
        "components": f"{len(mixture_of(model).weights):,}" if is_fitted(model) else "0",
        score_of(model): f"{mean:.2f}" if (mean := mean_log_likelihood(history)) == mean else "none yet",
    }
    if is_detector(model):
        counts = {"anomalies": totals.get("anomaly", 0), "new normals": totals.get("new_normal", 0)}
    else:
        counts = {"novelties": totals.get("novelty", 0), "changes": totals.get("change", 0)}
    numbers |= {what: f"{n:,}" for what, n in counts.items()}
    items = "".join(f"<div><dt>{key}</dt><dd>{html.escape(value)}</dd></div>" for key, value in numbers.items())
    written = datetime.datetime.now().astimezone().strftime("%d %B %Y, %H:%M %Z")
    return (
        f'<h1>{html.escape(name)}</h1><p class="soft">{type(model).__name__}, '
        f'reported on {html.escape(written)} by everlearn {everlearn.__version__}</p><dl class="numbers">{items}</dl>'
    )


def _card(key: str, title: str, wide: bool) -> str:
    heading = f"<header><h2>{html.escape(title)}</h2></header>"
    return f'<section class="card{" wide" if wide else ""}">{heading}<div class="picture" id="{key}"></div></section>'


def _columns_table(model: Any) -> str:
    mixture = mixture_of(model)
    mean = mixture.weights @ mixture.means
    std = np.sqrt(mixture.weights @ (mixtures.variances(mixture) + (mixture.means - mean) ** 2))
    rows = [(name, f"{m:.5g}", f"{s:.4g}") for name, m, s in zip(column_names(model), mean, std, strict=True)]
    return _table_card("Columns", Table(("column", "mean", "standard deviation"), rows))


def _events_table(events: Sequence[Any], time_format: TimeFormat | None) -> str:
    """The latest changes, anomalies and gaps in time, the latest first, by the stream's own times where it has them."""
    latest = [event for event in events if event.kind in TOLD][-_MOST_EVENTS:][::-1]
    rows = [(name_of(event), *_when(event, time_format), rows_of(event), words_of(event)) for event in latest]
    columns = ("event", *(() if time_format is None else ("time",)), "row", "value")
    return _table_card("Latest changes", Table(columns, rows or [("none", *[""] * (len(columns) - 1))]))


def _anomalies_table(events: Sequence[Any], time_format: TimeFormat | None) -> str:
    """The latest anomalies of a detector, the latest first: the column to blame, and why."""
    latest = [event for event in events if event.kind == "anomaly"][-_MOST_EVENTS:][::-1]
    rows = [
        (rows_of(event), *_when(event, time_format), f"{event.value:.2g}", column_of(event), reason_of(event))
        for event in latest
    ]
    columns = ("rows", *(() if time_format is None else ("time",)), "p-value", "column to blame", "why")
    table = Table(columns, rows or [("none", *[""] * (len(columns) - 1))])
    return _table_card("Latest anomalies", table, "wide reasons")


def _when(event: Any, time_format: TimeFormat | None) -> tuple[str, ...]:
    """The stream's own time of an event, where it has times."""
    return () if time_format is None else (time_format.show(event.stream_time),)


def _table_card(title: str, table: Table, classes: str = "") -> str:
    heading = f"<header><h2>{html.escape(title)}</h2></header>"
    return f'<section class="{f"card {classes}".rstrip()}">{heading}{table.html()}</section>'


def _page(name: str, body: str, data: Mapping[str, Any]) -> str:
    # Inside a script the browser looks for tags even in strings.
    values = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{html.escape(name)}: everlearn report</title>
<style>{asset("theme.css")}
main {{ padding-top: 28px; }}</style>
</head>
<body>
<main>
{body}
</main>
<script>{plotly_js().decode()}</script>
<script>{asset("pictures.js")}
for (const [key, picture] of Object.entries({values})) pictures.draw(document.getElementById(key), picture);</script>
</body>
</html>
"""
