"""Table 5: episodes that Q-learning with a mixture as its memory needs on three tasks."""

from __future__ import annotations

import importlib.util

from everlearn.papers.figmn.paper import PAPER
from everlearn.papers.registry import Context, Skip
from everlearn.papers.results import Findings


@PAPER.item("table5", "Table 5: episodes to solve three control tasks", seconds=(1, 1))
def table_5(context: Context) -> Findings:
    """Episodes until each task is solved."""
    if importlib.util.find_spec("everlearn.agents") is None:
        raise Skip("This version of everlearn has no agents (everlearn.agents) yet, which this table needs.")
    raise NotImplementedError
