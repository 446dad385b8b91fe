"""Compiled loops of the checks of sensors."""
