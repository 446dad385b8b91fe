"""Compiled loops of FIGMN."""
