"""Continual learning: protocols that order data into tasks, metrics of what is kept and lost, results to look at."""

from everlearn.continual.change import ChangeReport, ChangeScores, change_report
from everlearn.continual.metrics import (
    accuracy,
    anytime,
    backward_transfer,
    forgetting,
    forward_transfer,
    running_mean,
)
from everlearn.continual.protocols import Task, class_by_class, disjoint, iid, permuted
from everlearn.continual.results import Results
from everlearn.continual.running import interference, prequential, run

__all__ = [
    "ChangeReport",
    "ChangeScores",
    "Results",
    "Task",
    "accuracy",
    "anytime",
    "backward_transfer",
    "change_report",
    "class_by_class",
    "disjoint",
    "forgetting",
    "forward_transfer",
    "iid",
    "interference",
    "permuted",
    "prequential",
    "run",
    "running_mean",
]
