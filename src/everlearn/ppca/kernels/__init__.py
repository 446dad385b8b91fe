"""Compiled loops of online EM."""
