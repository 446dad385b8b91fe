"""Compiled loops of the monitors."""
