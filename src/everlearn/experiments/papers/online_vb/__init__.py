"""On-line variational Bayes with adaptive forgetting: its figures, and the forms that came before."""

from everlearn.experiments.papers.online_vb import figures, forms, prior
from everlearn.experiments.papers.online_vb.paper import PAPER

__all__ = ["PAPER", "figures", "forms", "prior"]
