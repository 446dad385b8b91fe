"""Probabilistic PCA by online EM with the natural constraint (NAT-oEM)."""
