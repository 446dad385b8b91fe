"""NAT-oEM: a natural constraint for online EM of probabilistic PCA."""

from everlearn.experiments.papers.nat_oem import convergence
from everlearn.experiments.papers.nat_oem import table_1 as start
from everlearn.experiments.papers.nat_oem.protocol import PAPER

__all__ = ["PAPER", "convergence", "start"]
