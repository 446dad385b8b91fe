"""The papers behind everlearn: every table and figure made anew and set beside the printed one.

One file or folder a paper; `everlearn reproduce` runs them. An item is a function that takes a `Context` and returns
`Findings`, registered with `Paper.item`.
"""

from everlearn.papers.data import mnist_from
from everlearn.papers.registry import Context, Item, Paper, Skip, choose, papers
from everlearn.papers.results import Claim, Figure, Findings, Table, measured
from everlearn.papers.running import Reproduction, read, run_item

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
