"""Figures as plain dictionaries that plotly draws; making them needs no plotly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Trace = dict[str, Any]

COLOURS = {
    "baseline": "#8a94a6",
    "paper": "#c8553d",
    "second": "#e09f3e",
    "ours": "#1f6f9f",
    "truth": "#2f2f37",
    "other": "#6a994e",
}
GAP = 0.08
TITLES = 70
"""Pixels between rows of panels, for the titles there."""


class Panel(NamedTuple):
    """One pair of axes: what is drawn in it, and settings of the axes in plotly's words."""

    title: str
    traces: list[Trace]
    x: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    y: dict[str, Any] = {}  # noqa: RUF012
    marks: tuple[float, ...] = ()


def short(values: ArrayLike, digits: int = 4) -> Any:
    """Return numbers as lists with few significant digits; what is not finite becomes None."""
    array = np.asarray(values, dtype=np.float64)
    return _short(array, digits)


def _short(values: NDArray[np.float64], digits: int) -> Any:
    if values.ndim == 0:
        number = float(values)
        return float(f"{number:.{digits}g}") if np.isfinite(number) else None
    return [_short(value, digits) for value in values]


def line(x: ArrayLike, y: ArrayLike, name: str, role: str = "ours", *, legend: bool = True, **style: Any) -> Trace:
    """Return a line; `style` may set width, dash, opacity."""
    look = {"color": COLOURS.get(role, role), "width": style.pop("width", 2), "dash": style.pop("dash", "solid")}
    trace = {"type": "scatter", "mode": "lines", "x": short(x, 6), "y": short(y, 5), "name": name, "line": look}
    return {**trace, "legendgroup": name, "showlegend": legend, **style}


def band(x: ArrayLike, low: ArrayLike, high: ArrayLike, name: str, role: str = "ours") -> Trace:
    """Return the area between two lines, in the colour of a role."""
    # There along the upper line and back along the lower: plotly fills a closed curve.
    across = np.concatenate([np.asarray(x), np.asarray(x)[::-1]])
    around = np.concatenate([np.asarray(high), np.asarray(low)[::-1]])
    colour = COLOURS.get(role, role)
    trace = {"type": "scatter", "mode": "lines", "x": short(across, 6), "y": short(around, 4), "fill": "toself"}
    look = {"fillcolor": f"{colour}2e", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return {**trace, **look, "legendgroup": name}


def runs(x: ArrayLike, values: ArrayLike, name: str, role: str = "ours", **style: Any) -> list[Trace]:
    """Return the mean of runs (one a row) and a band of one standard deviation."""
    table = np.asarray(values, dtype=np.float64)
    mean, spread = table.mean(axis=0), table.std(axis=0)
    return [band(x, mean - spread, mean + spread, name, role), line(x, mean, name, role, **style)]


def points(x: ArrayLike, y: ArrayLike, name: str, role: str = "truth", *, size: float = 4, **style: Any) -> Trace:
    """Return points."""
    look = {"color": COLOURS.get(role, role), "size": size, **style.pop("marker", {})}
    trace = {"type": "scatter", "mode": "markers", "x": short(x, 6), "y": short(y, 5), "name": name, "marker": look}
    return {**trace, "legendgroup": name, **style}


def heat(z: ArrayLike, x: list[str], y: list[str], *, most: float) -> Trace:
    """Return a heat map around zero, red below and blue above."""
    values = np.asarray(z, dtype=np.float64)
    trace = {"type": "heatmap", "z": short(values), "x": x, "y": y, "zmin": -most, "zmax": most}
    trace["colorscale"] = [[0, "#b3392c"], [0.5, "#f7f6f3"], [1, "#1f6f9f"]]
    labels = [[f"{value:.2f}" for value in row] for row in values]
    return {**trace, "text": labels, "texttemplate": "%{text}", "showscale": False}


def picture(z: ArrayLike, *, low: float, high: float) -> Trace:
    """Return a picture in shades of grey, its first row on top."""
    # plotly draws row 0 at the bottom.
    values = np.asarray(z, dtype=np.float64)[::-1]
    trace = {"type": "heatmap", "z": short(values, 3), "colorscale": "Greys", "zmin": low, "zmax": high}
    return {**trace, "showscale": False, "hoverinfo": "skip"}


def contour(x: ArrayLike, y: ArrayLike, z: ArrayLike, name: str, role: str, levels: int = 8) -> Trace:
    """Return lines of equal height."""
    colour = COLOURS.get(role, role)
    trace = {"type": "contour", "x": short(x), "y": short(y), "z": short(z, 3), "name": name, "ncontours": levels}
    look = {"contours": {"coloring": "lines"}, "colorscale": [[0, f"{colour}55"], [1, colour]], "line": {"width": 1.5}}
    return {**trace, **look, "showscale": False, "showlegend": True, "legendgroup": name, "hoverinfo": "skip"}


def figure(
    panels: list[Panel],
    *,
    columns: int = 1,
    height: int = 360,
    gap: float = GAP,
    between: float = TITLES,
    **layout: Any,
) -> Any:
    """Return a figure with panels in a grid.

    Parameters
    ----------
    panels : list of Panel
        Row by row.
    columns : int, default=1
        Panels a row.
    height : int, default=360
        Height of the whole figure in pixels.
    gap : float, default=0.08
        Space between panels of a row, as a share of the figure.
    between : float, default=70
        Space between rows of panels, in pixels.
    **layout
        Further settings of the layout.

    Returns
    -------
    dict
        Data and layout.
    """
    n_rows = -(-len(panels) // columns)
    data: list[Trace] = []
    spec: dict[str, Any] = {"height": height, "annotations": [], "shapes": [], **layout}
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        # plotly calls the first pair of axes x and y, the second x2 and y2.
        name = "" if i == 0 else str(i + 1)
        across, down = _domain(column, columns, gap), _domain(n_rows - 1 - row, n_rows, between / height)
        spec[f"xaxis{name}"] = {"domain": across, "anchor": f"y{name}", **_titled(panel.x)}
        spec[f"yaxis{name}"] = {"domain": down, "anchor": f"x{name}", **_titled(panel.y)}
        data += [{**trace, "xaxis": f"x{name}", "yaxis": f"y{name}"} for trace in panel.traces]
        spec["annotations"].append(_heading(panel.title, across, down))
        spec["shapes"] += [_mark(at, name) for at in panel.marks]
    return {"data": data, "layout": spec}


def _domain(i: int, n: int, gap: float) -> list[float]:
    size = (1.0 - gap * (n - 1)) / n
    start = i * (size + gap)
    return [round(start, 4), round(min(start + size, 1.0), 4)]


def _titled(axis: dict[str, Any]) -> dict[str, Any]:
    title = axis.get("title")
    return {**axis, "title": {"text": title}} if isinstance(title, str) else dict(axis)


def _heading(text: str, across: list[float], down: list[float]) -> dict[str, Any]:
    place = {"x": sum(across) / 2, "y": down[1], "xref": "paper", "yref": "paper"}
    return {"text": text, **place, "xanchor": "center", "yanchor": "bottom", "showarrow": False, "font": {"size": 13}}


def _mark(at: float, name: str) -> dict[str, Any]:
    """A dashed vertical line, where something changes."""
    ends = {"x0": at, "x1": at, "y0": 0, "y1": 1, "xref": f"x{name}", "yref": f"y{name} domain"}
    return {"type": "line", **ends, "line": {"color": "#999", "width": 1, "dash": "dot"}}
