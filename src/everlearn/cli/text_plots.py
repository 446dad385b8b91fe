"""Small pictures made of letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_BARS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int = 40) -> str:
    """A horizontal bar, full at one."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + (_BARS[eighths % 8] if eighths % 8 else "")


def histogram(edges: Sequence[float] | Any, mass: ArrayLike, width: int = 40) -> str:
    """Bars beside the middles of the bins."""
    heights = np.asarray(mass, dtype=float)
    middles = (np.asarray(edges)[:-1] + np.asarray(edges)[1:]) / 2
    top = heights.max() if len(heights) and heights.max() > 0 else 1.0
    labels = [f"{middle:.4g}" for middle in middles]
    wide = max(map(len, labels), default=0)
    return "\n".join(f"{label:>{wide}} {bar(h / top, width)}" for label, h in zip(labels, heights, strict=True))


def sparkline(values: ArrayLike, width: int = 60) -> str:
    """A curve in one line; gaps where nothing is known."""
    known = np.asarray(values, dtype=float)
    parts = [part[np.isfinite(part)] for part in np.array_split(known, min(width, max(1, len(known))))]
    means = np.array([part.mean() if len(part) else np.nan for part in parts])
    if not np.isfinite(means).any():
        return ""
    # The first rows of a stream lie far below all others, and would leave one level for the rest.
    low, high = np.nanpercentile(means, [2, 98])
    scaled = np.clip((means - low) / (high - low if high > low else 1.0), 0, 1)
    return "".join(" " if np.isnan(s) else _LEVELS[round(s * (len(_LEVELS) - 1))] for s in scaled)
