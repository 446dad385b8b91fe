"""The slides that the items of this folder belong to."""

from everlearn.experiments.papers.registry import Paper

PAPER = Paper(
    "continual",
    "Bayesian Continual Learning (slides)",
    "Jifei Luo, 2022",
    order=("streaming", "imm", "pool", "reduction", "hierarchy", "ridgeline", "disjoint", "shuffled"),
)
