"""The papers behind everlearn: every table and figure made anew and set beside the printed one.

One file or folder a paper; `everlearn reproduce` runs them. An item is a function that takes a `Context` and returns
`Findings`, registered with `Paper.item`.
"""

from everlearn.experiments.papers.data import mnist_from
from everlearn.experiments.papers.registry import Context, Item, Paper, Skip, choose, papers
from everlearn.experiments.papers.results import Claim, Figure, Findings, Table, measured
from everlearn.experiments.papers.run import Reproduction, read, run_item

__all__ = [
    "Claim",
    "Context",
    "Figure",
    "Findings",
    "Item",
    "Paper",
    "Reproduction",
    "Skip",
    "Table",
    "choose",
    "measured",
    "mnist_from",
    "papers",
    "read",
    "run_item",
]
