"""Compiled loops of on-line variational Bayes."""
