"""Compiled loops of the incremental Gaussian mixture."""
