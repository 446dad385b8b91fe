"""What learning costs against rows N, components K and columns D, and the powers that fit.

    OPENBLAS_NUM_THREADS=1 python benchmarks/scale_cost.py [--plot FILE.svg] [--quick]

CPU time of one thread; each point is the quickest of a few turns. All components lie on top of each other, so that
every row concerns every one of them: the dearest case.
"""

import time
from pathlib import Path

import numpy as np
from _page import parser, write_page

from mixture import NEAR, Ours, Problem

TURNS = 4
SWEEPS = {
    "rows N": ("N", 1.0, [(16, 10, n) for n in (1_000, 3_000, 10_000, 30_000, 100_000)]),
    "components K": ("K", 1.0, [(64, K, 1024) for K in (4, 8, 16, 32, 64, 128)]),
    "columns D": ("D", 2.0, [(D, 4, 1024) for D in (128, 256, 512, 1024, 2048, 3072)]),
}
WIDTH, HEIGHT, MARGIN = 300, 240, 44


def cpu_seconds(D, K, n, turns):
    """Quickest of a few turns over n rows."""
    work = Ours(Problem(D, K, n, NEAR), n)
    best = np.inf
    for _ in range(turns):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def measured(sweep, quick):
    """Size, and seconds at that size."""
    letter, _, cases = sweep
    place, turns = "DKN".index(letter), 1 if quick else TURNS
    return [(case[place], cpu_seconds(*case, turns)) for case in cases[: 2 if quick else None]]


def fitted(points):
    """Slope and intercept of the straight line through the logarithms."""
    x, y = np.log(np.array(points, dtype=float)).T
    return np.polyfit(x, y, 1)


def table(results):
    lines = ["| | sizes | seconds | power fitted | of the two largest | expected |", "|---|---|---|---|---|---|"]
    for name, (points, expected) in results.items():
        sizes = ", ".join(f"{size:,}" for size, _ in points)
        times = ", ".join(f"{seconds:.3g}" for _, seconds in points)
        powers = f"**{fitted(points)[0]:.2f}** | {fitted(points[-2:])[0]:.2f}"
        lines.append(f"| {name} | {sizes} | {times} | {powers} | {expected:.0f} |")
    return lines


def panel(name, points, left):
    """One plot with logarithmic axes, as parts of an SVG image."""
    x, y = np.log10(np.array(points, dtype=float)).T
    slope, intercept = np.polyfit(x, y, 1)
    spans = [(v.min() - 0.1, v.max() + 0.1) for v in (x, y)]

    def at(px, py):
        across = left + MARGIN + (px - spans[0][0]) / np.ptp(spans[0]) * (WIDTH - MARGIN - 12)
        down = HEIGHT - MARGIN - (py - spans[1][0]) / np.ptp(spans[1]) * (HEIGHT - MARGIN - 34)
        return round(across, 1), round(down, 1)

    (x0, y0), (x1, y1) = (at(v, slope * v + intercept) for v in (x[0], x[-1]))
    parts = [f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="#9bb" stroke-width="2"/>']
    for (size, seconds), px, py in zip(points, x, y, strict=True):
        across, down = at(px, py)
        parts.append(f'<circle cx="{across}" cy="{down}" r="4" fill="#247"/>')
        parts.append(f'<text x="{across}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{size:,}</text>')
        parts.append(f'<text x="{across - 8}" y="{down - 6}" text-anchor="end">{seconds:.2g} s</text>')
    frame = f"M{left + MARGIN} 30V{HEIGHT - MARGIN}H{left + WIDTH - 8}"
    parts.append(f'<path d="{frame}" fill="none" stroke="#999"/>')
    middle = left + (WIDTH + MARGIN) / 2
    parts.append(f'<text x="{middle}" y="18" text-anchor="middle" font-weight="bold">power {slope:.2f}</text>')
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{name}</text>')
    return parts


def picture(results):
    """Seconds against sizes, with the fitted lines."""
    width = WIDTH * len(results)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" '
        'font-size="10"><rect width="100%" height="100%" fill="white"/>'
    )
    panels = [panel(name, points, i * WIDTH) for i, (name, (points, _)) in enumerate(results.items())]
    return "\n".join([head, *(part for parts in panels for part in parts), "</svg>", ""])


def main():
    made = parser(__doc__)
    made.add_argument("--plot", type=Path, help="write the picture here")
    options = made.parse_args()
    results = {name: (measured(sweep, options.quick), sweep[1]) for name, sweep in SWEEPS.items()}
    note = "Rows: D=16 K=10. Components: D=64, 1,024 rows. Columns: K=4, 1,024 rows. Seconds of CPU."
    text = "\n".join(["# Cost against rows, components and columns", "", note, "", *table(results), ""])
    write_page("scale_cost", text, quick=options.quick)
    if options.plot and not options.quick:
        options.plot.write_text(picture(results), encoding="utf-8")


if __name__ == "__main__":
    main()
