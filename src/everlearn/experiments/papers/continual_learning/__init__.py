"""Bayesian continual learning: merging Gaussian posteriors, reducing mixtures, ridgelines, and networks on MNIST."""

from everlearn.experiments.papers.continual_learning import gaussians, mixtures, networks, streaming
from everlearn.experiments.papers.continual_learning.paper import PAPER

__all__ = ["PAPER", "gaussians", "mixtures", "networks", "streaming"]
