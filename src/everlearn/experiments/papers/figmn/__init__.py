"""FIGMN: an incremental Gaussian mixture with rank-one updates of its precisions."""

from everlearn.experiments.papers.figmn import (
    agents,
    clustering,
    digits,
    orders,
    pixels,
    settings,
    speed,
    two_step,
    weka,
)
from everlearn.experiments.papers.figmn.paper import PAPER

__all__ = ["PAPER", "agents", "clustering", "digits", "orders", "pixels", "settings", "speed", "two_step", "weka"]
