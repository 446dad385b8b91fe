"""Draw the logo: the density of a mixture of two Gaussians over the rows that it was learned from.

Writes `_static/logo.svg`, `_static/logo-dark.svg` and `_static/favicon.svg`, and prints the logo in text.
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
CURVE, ROWS = "#0f766e", "#d97706"
BARS = "▁▂▃▄▅▆▇█"
WIDTH, HEIGHT, GROUND = 64.0, 48.0, 38.0
# Weights, means and standard deviations, in units of the mark's width.
WEIGHTS, MEANS, SPREADS = np.array([0.62, 0.38]), np.array([0.33, 0.72]), np.array([0.095, 0.08])


def density(x: np.ndarray) -> np.ndarray:
    """Density of the mixture, 1 at its highest."""
    parts = WEIGHTS / SPREADS * np.exp(-0.5 * ((x[:, None] - MEANS) / SPREADS) ** 2)
    return parts.sum(axis=1) / (WEIGHTS / SPREADS).max()


def curve() -> str:
    """The density as a path, closed along the ground."""
    x = np.linspace(0.02, 0.98, 65)
    y = GROUND - (GROUND - 5.0) * np.minimum(density(x), 1.0)
    return "M" + " L".join(f"{a:.1f} {b:.1f}" for a, b in zip(WIDTH * x, y, strict=True))


def rows() -> str:
    """Rows of the stream below the curve, at the quantiles of the two Gaussians."""
    scores = np.array([-1.2, -0.5, 0.0, 0.5, 1.2])
    places = np.concatenate([mean + spread * scores for mean, spread in zip(MEANS, SPREADS, strict=True)])
    dots = (f'<circle cx="{WIDTH * place:.1f}" cy="{GROUND + 5.5:.1f}" r="1.5"/>' for place in places)
    return f'<g fill="{ROWS}">{"".join(dots)}</g>'


def mark() -> str:
    path = curve()
    ground = f" L{0.98 * WIDTH:.1f} {GROUND:.1f} L{0.02 * WIDTH:.1f} {GROUND:.1f} Z"
    line = f'<path d="{path}" fill="none" stroke="{CURVE}" stroke-width="2.6" stroke-linejoin="round"/>'
    return f'<path d="{path}{ground}" fill="{CURVE}" fill-opacity="0.16"/>{line}{rows()}'


def picture(width: float, content: str) -> str:
    """An SVG file."""
    size = f'viewBox="0 0 {width:g} {HEIGHT:g}" width="{width:g}" height="{HEIGHT:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>everlearn</title>{content}</svg>\n'


def word(colour: str) -> str:
    font = 'font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" font-size="30" font-weight="600"'
    # A given length: the word ends at the same place in every font.
    return f'<text x="74" y="35" textLength="150" {font} fill="{colour}">everlearn</text>'


def text() -> str:
    """The logo on a line of text."""
    heights = density(np.linspace(0.06, 0.94, 14))
    return "".join(BARS[min(int(height * len(BARS)), len(BARS) - 1)] for height in heights) + "  everlearn"


def files() -> dict[str, str]:
    return {
        "logo.svg": picture(230.0, mark() + word("#1f2937")),
        "logo-dark.svg": picture(230.0, mark() + word("#f3f4f6")),
        "favicon.svg": picture(WIDTH, mark()),
    }


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / "_static" / name).write_text(content, encoding="utf-8")
    print(text())
