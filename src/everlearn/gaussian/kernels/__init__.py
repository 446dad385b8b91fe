"""Compiled loops of Gaussian mathematics."""
