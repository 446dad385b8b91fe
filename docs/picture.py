"""The picture of the README: a model follows the demonstration stream. Made by `python docs/picture.py`.

Three panels from one pass over 12,000 rows: how surprising each row was before it was learned, with the true faults
marked; the components that were learned, in two of the six columns; and values of a sensor while it was lost, as the
model fills them in from the other five, beside what the sensor would have shown. Colours are of middle lightness and
the background is left open, so that the picture reads on light and dark pages.
"""

import sys
from pathlib import Path

import numpy as np

from everlearn import IncrementalGaussianMixture
from everlearn.datasets.demo import COLUMNS, demo_stream, join

WIDTH, HEIGHT = 900, 270
PANEL, TOP, BOTTOM = 260, 34, 218
GRAY, BLUE, ORANGE = "#6b7280", "#4a90d9", "#e8843c"
FIRST_ROW = 1000
RPM, VIBRATION, CURRENT = (COLUMNS.index(name) for name in ("rpm", "vibration", "current"))


class Panel:
    """A plot of the given range whose left edge is at `left`; collects SVG elements."""

    def __init__(self, left, title, x_label, x_range, y_range):
        self.left, self.x_range, self.y_range = left, x_range, y_range
        middle = left + PANEL / 2
        self.parts = [
            f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{BOTTOM - TOP}" fill="none" stroke="{GRAY}"/>',
            text(middle, TOP - 14, title, size=14),
            text(middle, BOTTOM + 34, x_label),
        ]

    def place(self, x, y):
        """Pixels of points, kept inside the panel."""
        share_x = np.interp(x, self.x_range, (0, 1))
        share_y = np.interp(y, self.y_range, (0, 1))
        return self.left + share_x * PANEL, BOTTOM - share_y * (BOTTOM - TOP)

    def add(self, element):
        self.parts.append(element)

    def line(self, x, y, color, width=1.0, fill="none", opacity=1.0):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(*self.place(x, y), strict=True))
        shape = "polyline" if fill == "none" else "polygon"
        self.add(
            f'<{shape} points="{points}" fill="{fill}" stroke="{color}" stroke-width="{width}" opacity="{opacity}"/>'
        )

    def dots(self, x, y, color, radius, opacity=1.0):
        circles = "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}"/>' for a, b in zip(*self.place(x, y), strict=True)
        )
        self.add(f'<g fill="{color}" opacity="{opacity}">{circles}</g>')

    def ticks(self, values, labels):
        for at, label in zip(self.place(values, self.y_range[0])[0], labels, strict=True):
            self.add(text(at, BOTTOM + 16, label, size=11))


def text(x, y, words, size=12, anchor="middle", color=GRAY):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}">{words}</text>'


def surprise_panel(surprise, faulty):
    """Surprise of every row in groups of twenty, and of the faults."""
    rows = np.arange(len(surprise))
    shown = FIRST_ROW, len(surprise)
    panel = Panel(20, "how surprising each row was", "row; a bearing is worn from 8,405 on", shown, (0, 70))
    binned = surprise[FIRST_ROW:].reshape(-1, 20)
    panel.line(rows[FIRST_ROW::20], binned.mean(axis=1), BLUE)
    found = faulty & (rows >= FIRST_ROW)
    panel.dots(rows[found], surprise[found], ORANGE, 2.6)
    panel.ticks([2000, 6000, 10_000], ["2,000", "6,000", "10,000"])
    for at, color, words in ((56, BLUE, "mean of twenty rows"), (72, ORANGE, "true faults")):
        panel.add(text(32, at, words, anchor="start", color=color))
    return panel


def components_panel(model, X):
    """The larger components of the mixture at two standard deviations, over some rows; small ones caught the faults."""
    panel = Panel(320, "what it learned by itself", "speed and vibration; weights from 2 % on", (300, 2800), (0, 5))
    some = X[~np.isnan(X).any(axis=1)][::20]
    panel.dots(some[:, RPM], some[:, VIBRATION], GRAY, 1.1, opacity=0.5)
    circle = np.linspace(0, 2 * np.pi, 41)
    around = 2 * np.column_stack([np.cos(circle), np.sin(circle)])
    columns = np.ix_([RPM, VIBRATION], [RPM, VIBRATION])
    for weight, mean, covariance in zip(model.weights_, model.means_, model.covariances_, strict=True):
        if weight >= 0.02:
            ring = mean[[RPM, VIBRATION]] + around @ np.linalg.cholesky(covariance[columns]).T
            panel.line(ring[:, 0], ring[:, 1], BLUE, 1.3)
    panel.ticks([600, 1500, 2400], ["600", "1,500", "2,400"])
    labels = {
        "idle": (600, 1.2),
        "cruise": (1500, 2.1),
        "heavy load": (2400, 1.1),
        "cruise, bearing worn": (1500, 4.55),
    }
    for words, (rpm, vibration) in labels.items():
        x, y = panel.place(rpm, vibration)
        panel.add(text(x, y, words, size=11))
    return panel


def gap_panel(model, stream):
    """The longest stretch without the current sensor, filled from the other five."""
    start, stop = longest_gap(np.isnan(stream.X[:, CURRENT]))
    shown = np.arange(start - 25, stop + 25)
    lost = np.arange(start, stop)
    mean, (low, high) = model.predict_columns(stream.X[lost], target=[CURRENT], interval=0.9)
    truth = stream.complete[shown, CURRENT]
    reach = truth.min() - 0.3, truth.max() + 0.6 * np.ptp(truth)
    panel = Panel(620, "a lost sensor, filled in", "row", (shown[0], shown[-1]), reach)
    panel.line(np.r_[lost, lost[::-1]], np.r_[high[:, 0], low[::-1, 0]], BLUE, 0, fill=BLUE, opacity=0.3)
    panel.line(shown, truth, GRAY, 1.2)
    panel.dots(lost, mean[:, 0], BLUE, 2.2)
    panel.ticks([start, stop], [f"{start:,}", f"{stop:,}"])
    for at, color, words in ((56, GRAY, "current, in truth"), (72, BLUE, "filled in, 90 % interval")):
        panel.add(text(632, at, words, anchor="start", color=color))
    return panel


def longest_gap(missing):
    """First row and end of the longest run of missing values."""
    edges = np.flatnonzero(np.diff(np.r_[False, missing, False]))
    starts, stops = edges[::2], edges[1::2]
    longest = np.argmax(stops - starts)
    return int(starts[longest]), int(stops[longest])


def draw():
    """The picture as SVG."""
    stream = join(list(demo_stream(12_000, seed=3)))
    model = IncrementalGaussianMixture(max_components=50)
    surprise = -model.prequential(stream.X)
    panels = [surprise_panel(surprise, stream.fault > 0), components_panel(model, stream.X), gap_panel(model, stream)]
    body = "\n".join(part for panel in panels for part in panel.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f"{body}\n</svg>\n"
    )


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "_static" / "stream.svg"
    place.write_text(draw(), encoding="utf-8")
