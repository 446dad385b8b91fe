"""Pictures of a model and of its stream: figures of plotly as plain dictionaries.

`plotly.graph_objects.Figure(picture)` makes a figure of one; the live page and the report hand it to plotly.js as it
is. Each picture says in ``picture["layout"]["meta"]["alt"]`` in words what it shows. Colours hold on light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.gaussian import mixture as mixtures
from everlearn.reporting.projection import ELLIPSE_SHARE, Plane, ellipse, plane_of
from everlearn.reporting.queries import curve, mixture_of
from everlearn.reporting.regimes import Stay

Array = NDArray[np.float64]
Picture = dict[str, Any]

BLUE, TEAL, AMBER, RED, GREY = "#3b82f6", "#0d9488", "#d97706", "#e11d48", "#7c8798"
_REGIME_COLOURS = (BLUE, TEAL, AMBER, RED, GREY)
_BLUE_WASH, _TEAL_WASH = "rgba(59,130,246,0.18)", "rgba(13,148,136,0.25)"
_SCALE = [[0.0, "rgba(59,130,246,0)"], [1.0, "rgba(59,130,246,0.55)"]]
_MOST_MARKS = 500
_MOST_COMPONENTS = 50
_DRAWN_SHARE = 0.99
_GRID = 61
_DEPTH = 10.0  # nats below the highest density at which the shade ends


def likelihood(history: Sequence[Any], events: Sequence[Any] = (), *, score: str = "log-likelihood") -> Picture:
    """Mean log-likelihood of the rows before they were learned, with changes and novelties marked.

    Parameters
    ----------
    history : sequence of Interval
        Points of a run, oldest first.
    events : sequence of Event
        What happened in it; novelties and changes are drawn, the latest 500 of each, and so are a detector's anomalies
        and new normals.
    score : str
        What to call the scores: those of a detector are no densities.
    """
    x, y = _column(history, "end_row"), _column(history, "log_likelihood")
    changes = _rows_of(events, "change") + _rows_of(events, "new_normal")
    novelties = _rows_of(events, "novelty") + _rows_of(events, "anomaly")
    strange = "anomaly" if any(event.kind == "anomaly" for event in events) else "novelty"
    data = [
        _vertical_lines(changes, "change"),
        _line(x, y, score, BLUE, f"row %{{x:,}}<br>{score} %{{y:.3f}}<extra></extra>"),
        _ticks(novelties, strange),
    ]
    mean = score if score.startswith("mean ") else f"mean {score}"
    layout = _layout("row", mean, legend=True)
    layout["yaxis"]["range"] = _robust_range(y)
    layout["xaxis"]["range"] = [0, max(_end(x), 1)]
    # Marks of events have an axis of their own from 0 to 1: they keep their height whatever the range of the curve.
    layout["yaxis2"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    seen = y[np.isfinite(y)]
    found = f"{_few(len(changes), 'change')} and {_few(len(novelties), strange)} are marked"
    course = f"from {seen[0]:.2f} to {seen[-1]:.2f}; " if len(seen) else "no values yet; "
    return _picture(data, layout, f"{mean[0].upper()}{mean[1:]} over {_end(x):,} rows: {course}{found}.")


def timeline(stays: Sequence[Stay]) -> Picture:
    """When a stream was in which regime: a bar for every stay.

    Parameters
    ----------
    stays : sequence of Stay
        Stays in regimes, in their order.
    """
    numbers = sorted({stay.regime for stay in stays})
    data = []
    for k in numbers:
        own = [stay for stay in stays if stay.regime == k]
        # A gap between two bars is a point without a value.
        x = [value for stay in own for value in (stay.first, stay.end, None)]
        y = [value for _ in own for value in (k, k, None)]
        line = {"color": _REGIME_COLOURS[(k - 1) % len(_REGIME_COLOURS)], "width": 14}
        hover = f"regime {k}, row %{{x:,}}<extra></extra>"
        data.append({"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hovertemplate": hover})
    layout = _layout("row", "regime")
    layout["yaxis"].update(tickvals=numbers, range=[max(numbers) + 0.6, 0.4], showgrid=False)
    layout["xaxis"]["range"] = [0, stays[-1].end]
    rows = {k: sum(stay.end - stay.first for stay in stays if stay.regime == k) for k in numbers}
    shares = ", ".join(f"regime {k} for {rows[k] / stays[-1].end:.0%}" for k in numbers)
    return _picture(
        data, layout, f"{len(stays):,} stays in {len(numbers)} regimes over {stays[-1].end:,} rows: {shares}."
    )


def forgetting(history: Sequence[Any]) -> Picture:
    """Forgetting factor lambda and effective memory over the rows of a run.

    Parameters
    ----------
    history : sequence of Interval
        Points of a run, oldest first.
    """
    x, factor, memory = (_column(history, name) for name in ("end_row", "forgetting", "memory"))
    data = [
        _line(x, factor, "λ", TEAL, "row %{x:,}<br>λ = %{y:.5f}<extra></extra>"),
        _line(x, memory, "rows remembered", AMBER, "row %{x:,}<br>%{y:,.0f} rows remembered<extra></extra>"),
    ]
    data[1].update(yaxis="y2", line={"color": AMBER, "width": 1.5, "dash": "dot"})
    layout = _layout("row", "λ", legend=True)
    layout["yaxis2"] = {**_axis("rows remembered"), "overlaying": "y", "side": "right", "showgrid": False}
    if (memory > 0).any():
        layout["yaxis2"].update(type="log", dtick=1, tickformat="~s")
    layout["margin"]["r"] = 64
    forgets = np.isfinite(factor)
    if not forgets.any():
        layout["yaxis"].update(visible=False)
        return _picture(data[1:], layout, "The model forgets nothing: there is no λ. Drawn are the rows it remembers.")
    # The interesting part of lambda lies just below 1.
    depth = max(1.0 - float(factor[forgets].min()), 1e-6)
    layout["yaxis"]["range"] = [1.0 - 1.15 * depth, 1.0 + 0.05 * depth]
    return _picture(data, layout, f"Forgetting factor λ over {_end(x):,} rows; at last {factor[forgets][-1]:.4f}.")


def throughput(history: Sequence[Any]) -> Picture:
    """Rows learned per second over the rows of a run.

    Parameters
    ----------
    history : sequence of Interval
        Points of a run, oldest first.
    """
    x, rows, seconds = (_column(history, name) for name in ("end_row", "n_rows", "seconds"))
    speed = np.divide(rows, seconds, out=np.full(len(x), np.nan), where=seconds > 0)
    hover = "row %{x:,}<br>%{y:,.0f} rows per second<extra></extra>"
    data = [{**_line(x, speed, "rows per second", TEAL, hover), "fill": "tozeroy", "fillcolor": _TEAL_WASH}]
    layout = _layout("row", "rows per second")
    seen = speed[np.isfinite(speed)]
    if len(seen):
        layout["yaxis"]["range"] = [0.0, _robust_range(speed)[1]]
    last = f"at last {seen[-1]:,.0f} rows per second" if len(seen) else "no values yet"
    return _picture(data, layout, f"Throughput over {_end(x):,} rows: {last}.")


def weights(model: Any) -> Picture:
    """Weights of the components, the heaviest first.

    Parameters
    ----------
    model : estimator
        A fitted model.
    """
    shares = np.sort(mixture_of(model).weights)[::-1]
    shown = shares[:_MOST_COMPONENTS]
    bars = {
        "type": "bar",
        "x": list(range(1, len(shown) + 1)),
        "y": _values(100 * shown),
        "marker": {"color": BLUE},
        "hovertemplate": "component %{x}<br>%{y:.1f}% of the rows<extra></extra>",
    }
    layout = _layout("component", "weight in %")
    layout["xaxis"].update(dtick=max(1, len(shown) // 10), tick0=1)
    return _picture([bars], layout, f"Weights of {_few(len(shares), 'component')}; the heaviest has {shares[0]:.1%}.")


def blame(explanation: Any, row: int = 0) -> Picture:
    """How strange each column of a row is, the most to blame first, and where its value was expected.

    Parameters
    ----------
    explanation : Explanation
        What `AnomalyDetector.explain` said.
    row : int, default=0
        The row of the explanation.
    """
    nats = explanation.blame[row]
    shown = np.argsort(-nats, kind="stable")[:_MOST_COMPONENTS]
    names = [_plain(explanation.columns[j]) for j in shown]
    told = [
        f"{explanation.values[row, j]:.4g}, expected {explanation.low[row, j]:.4g} to {explanation.high[row, j]:.4g} "
        "from the others"
        for j in shown
    ]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": _values(nats[shown]),
        "y": names,
        "customdata": told,
        "marker": {"color": [RED, *[BLUE] * (len(shown) - 1)]},
        "hovertemplate": "%{y}: %{customdata}<extra></extra>",
    }
    layout = _layout("strangeness in nats", "")
    layout["yaxis"]["autorange"] = "reversed"
    return _picture([bars], layout, f"Strangeness of {_few(len(nats), 'column')}: {explanation.text(row)}.")


def components(model: Any, axes: Sequence[str] | None = None) -> Picture:
    """Density and components of a model on two axes; an ellipse holds nine tenths of its component's rows.

    Parameters
    ----------
    model : estimator
        A fitted model.
    axes : two column names, optional
        The columns to draw; by default the principal axes of the standardised columns.
    """
    mixture = mixture_of(model)
    plane = plane_of(model, mixture, axes)
    heaviest = _heaviest(plane.mixture.weights)
    rings = [ellipse(plane.mixture.means[k], plane.mixture.covariances[k]) for k in heaviest]
    shares = plane.mixture.weights[heaviest]
    data = [_contours(plane, rings), *(_ring(ring, share) for ring, share in zip(rings, shares, strict=True))]
    data.append(_centres(plane.mixture.means[heaviest], shares))
    alt = f"{_few(len(mixture.weights), 'component')} on {plane.labels[0]} and {plane.labels[1]}"
    left = f", the heaviest {len(heaviest)} drawn" if len(heaviest) < len(mixture.weights) else ""
    layout = _layout(*plane.labels)
    layout["meta"] = {"axes": list(plane.columns) if plane.columns else None}
    return _picture(data, layout, f"{alt}{left}; an ellipse holds {ELLIPSE_SHARE:.0%} of its component's rows.")


def density(model: Any, given: Mapping[str, float], target: str, *, coverage: float = 0.9) -> Picture:
    """Density of one column once others are known, with its mean and central interval.

    Parameters
    ----------
    model : estimator
        A fitted model.
    given : mapping from str to float
        Known values by column name.
    target : str
        The column to draw.
    coverage : float, default=0.9
        Probability of the interval.
    """
    found = curve(model, given, target, coverage=coverage)
    inside = (found.x >= found.low) & (found.x <= found.high)
    top = float(found.density.max())
    hover = f"{_plain(target)} = %{{x:.5g}}<br>density %{{y:.4g}}<extra></extra>"
    area = {**_line(found.x[inside], found.density[inside], f"{coverage:.0%} interval", BLUE, ""), "hoverinfo": "skip"}
    area.update(fill="tozeroy", fillcolor=_BLUE_WASH, line={"width": 0})
    mean = _line([found.mean] * 2, [0.0, top], "mean", AMBER, f"mean {found.mean:.5g}<extra></extra>")
    mean["mode"] = "lines"
    data = [area, _line(found.x, found.density, "density", BLUE, hover), mean]
    layout = _layout(target, "density", legend=True)
    layout["yaxis"]["rangemode"] = "tozero"
    known = ", ".join(f"{name} = {value:.5g}" for name, value in given.items()) or "nothing else is known"
    answer = f"{found.mean:.5g} ± {found.std:.3g}, {coverage:.0%} between {found.low:.5g} and {found.high:.5g}"
    return _picture(data, layout, f"{target} if {known}: {answer}.")


# -- parts of a picture ----------------------------------------------------------------------------


def _picture(data: list[Picture], layout: Picture, alt: str) -> Picture:
    layout["meta"] = {**layout.get("meta", {}), "alt": alt}
    return {"data": data, "layout": layout}


def _layout(x: str, y: str, *, legend: bool = False) -> Picture:
    return {
        "xaxis": _axis(x),
        "yaxis": _axis(y),
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        "showlegend": legend,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
    }


def _axis(title: str) -> Picture:
    return {"title": {"text": _plain(title)}, "zeroline": False, "automargin": True}


def _line(x: ArrayLike, y: ArrayLike, name: str, colour: str, hover: str) -> Picture:
    mode = "lines+markers" if np.size(x) < 3 else "lines"
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": _values(x),
        "y": _values(y),
        "line": {"color": colour, "width": 2},
        "hovertemplate": hover,
    }


def _vertical_lines(rows: list[int], name: str) -> Picture:
    marks = {"type": "scatter", "mode": "lines", "name": name, "yaxis": "y2", "opacity": 0.6}
    x = [value for row in rows for value in (row, row, None)]
    marks["line"] = {"color": RED, "width": 1}
    return {**marks, "x": x, "y": [0.0, 1.0, None] * len(rows), "hovertemplate": "change at row %{x:,}<extra></extra>"}


def _ticks(rows: list[int], name: str) -> Picture:
    marker = {"symbol": "triangle-up", "size": 9, "color": AMBER, "opacity": 0.8}
    marks = {"type": "scatter", "mode": "markers", "name": name, "yaxis": "y2", "marker": marker}
    return {**marks, "x": rows, "y": [0.03] * len(rows), "hovertemplate": "novelty at row %{x:,}<extra></extra>"}


def _contours(plane: Plane, rings: list[Array]) -> Picture:
    """The density of all components on a grid around the ellipses."""
    corners = np.concatenate(rings)
    low, high = corners.min(axis=0), corners.max(axis=0)
    # (_GRID, 2) points of both axes at once, with a margin of 8 % around the ellipses.
    x, y = np.linspace(low - 0.08 * (high - low), high + 0.08 * (high - low), _GRID).T
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    z = mixtures.log_density(grid, plane.mixture).reshape(_GRID, _GRID)
    return {
        "type": "heatmap",
        "x": _values(x),
        "y": _values(y),
        "z": np.maximum(1.0 + (z - z.max()) / _DEPTH, 0.0).round(3).tolist(),
        "zsmooth": "best",
        "colorscale": _SCALE,
        "showscale": False,
        "hoverinfo": "skip",
    }


def _ring(ring: Array, share: float) -> Picture:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _values(ring[:, 0]),
        "y": _values(ring[:, 1]),
        "line": {"color": BLUE, "width": 1.5},
        "opacity": round(0.25 + 0.75 * float(share) ** 0.5, 3),
        "hoverinfo": "skip",
    }


def _centres(means: Array, shares: Array) -> Picture:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": _values(means[:, 0]),
        "y": _values(means[:, 1]),
        "marker": {"color": AMBER, "size": _values(5 + 20 * np.sqrt(shares)), "opacity": 0.85},
        "customdata": _values(100 * shares),
        "hovertemplate": "%{customdata:.1f}% of the rows<br>%{x:.5g}, %{y:.5g}<extra></extra>",
    }


# -- numbers ---------------------------------------------------------------------------------------


def _heaviest(shares: Array) -> NDArray[np.intp]:
    """The components that hold nearly all rows: a few far outliers would leave no room for them."""
    order = np.argsort(-shares)
    enough = int(np.searchsorted(np.cumsum(shares[order]), _DRAWN_SHARE)) + 1
    return order[: min(enough, _MOST_COMPONENTS)]


def _column(history: Sequence[Any], name: str) -> Array:
    return np.array([getattr(point, name) for point in history], dtype=np.float64)


def _rows_of(events: Sequence[Any], kind: str) -> list[int]:
    return [int(event.row) for event in events if event.kind == kind][-_MOST_MARKS:]


def _values(values: ArrayLike) -> list[float | None]:
    """Numbers as JSON has them: six digits, and null where there is none."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=np.float64)]


def _robust_range(y: Array) -> list[float]:
    """A range that a few far outliers do not squeeze."""
    seen = y[np.isfinite(y)]
    if not len(seen):
        return [0.0, 1.0]
    # The first rows of a stream and single outliers lie nats below the rest: their full range would make the curve
    # flat.
    low, high = np.quantile(seen, [0.05, 0.95])
    room = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-9)
    low, high = max(seen.min(), low - 2.0 * room), min(seen.max(), high + 2.0 * room)
    return [float(low - 0.1 * room), float(high + 0.1 * room)]


def _end(x: Array) -> int:
    return int(x[-1]) if len(x) else 0


def _few(n: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def _plain(text: str) -> str:
    """Text that plotly shows as it is, without reading tags in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
