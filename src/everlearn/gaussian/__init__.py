"""Gaussians and mixtures of them as values: pure functions that do not learn."""
