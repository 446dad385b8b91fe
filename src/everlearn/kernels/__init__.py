"""Compiled loops over arrays: the only layer that imports numba."""
