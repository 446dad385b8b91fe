"""Compiled loops of the low-rank mixture."""
