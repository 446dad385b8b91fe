"""The paper that the items of this folder belong to."""

from everlearn.experiments.papers.registry import Paper

PAPER = Paper(
    "figmn",
    "Scalable and Incremental Learning of Gaussian Mixture Models",
    "Rafael Coimbra Pinto and Paulo Martins Engel, 2017",
    order=(
        *("orders", "delta", "table1", "table2", "table3", "memory", "table4", "fig1", "two-step"),
        *("clustering", "pixels", "mnist", "table5"),
    ),
)
