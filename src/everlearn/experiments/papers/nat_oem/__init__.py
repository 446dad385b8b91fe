"""NAT-oEM: a natural constraint for online EM of probabilistic PCA."""

from everlearn.experiments.papers.nat_oem import convergence, mixtures, table_1, titterington, variations
from everlearn.experiments.papers.nat_oem.protocol import PAPER

__all__ = ["PAPER", "convergence", "mixtures", "table_1", "titterington", "variations"]
