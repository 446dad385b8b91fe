"""Mixtures of low-rank Gaussians, for hundreds to thousands of columns."""
