"""Compiled loops of the mixture: rows, rows with gaps, expectation-maximisation on a sample."""
