"""NAT-oEM: a natural constraint for online EM of probabilistic PCA."""

from everlearn.papers.nat_oem import convergence, start
from everlearn.papers.nat_oem.protocol import PAPER

__all__ = ["PAPER", "convergence", "start"]
