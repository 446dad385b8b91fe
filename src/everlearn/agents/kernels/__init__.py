"""Compiled loops of the value function."""
