"""Compiled loops of forgetting."""
