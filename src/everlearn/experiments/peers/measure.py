"""One contender, one column: what is common to all columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from everlearn.experiments.peers.adapter import Contender
from everlearn.experiments.peers.table import Measure, Row, Value

FAILED, NOT_INSTALLED, NO_DATA = "failed", "not installed", "no data"
WHY = "why"
"""Key under which a measurement says why a figure is a word."""
HOW_TO_INSTALL = {
    "river": "pip install 'everlearn[peers]'",
    "gmr": "pip install 'everlearn[peers]'",
    "pysad": "pip install pysad",
    "pomegranate": "pip install pomegranate, which brings torch",
}


def measured(contender: Contender, measures: list[Measure], measure: Callable[[], dict[str, Value]]) -> Row:
    """Measure, and say in a word why there is no figure where a package is missing or a model fails."""
    if not contender.installed:
        how = HOW_TO_INSTALL.get(contender.package, f"pip install {contender.package}")
        return _words(contender, measures, NOT_INSTALLED, f"not installed ({how}).")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Warnings of peers (convergence, deprecations) are theirs to solve, and would drown what the program says.
            values = measure()
            return Row(contender, values, str(values.pop(WHY, "")))
    except Exception as error:  # whatever a peer raises, the others are still measured
        return _words(contender, measures, FAILED, failure(error))


def failure(error: Exception) -> str:
    """The first line of what a model said."""
    said: Any = str(error).strip().splitlines() or [""]
    return f"failed with {type(error).__name__}: {said[0][:160]}"


def _words(contender: Contender, measures: list[Measure], word: str, why: str) -> Row:
    return Row(contender, {measures[0].key: word}, why)
