"""Rows of sensors as dicts, for the river learners."""

import numpy as np

NAMES = ["flow", "heat", "load"]


def make_dicts(n, seed=0, gaps=0.0):
    """Rows of three features that go together, in the columns' order, and the same as an array."""
    rng = np.random.default_rng(seed)
    heat = rng.normal(20.0, 5.0, n)
    X = np.column_stack([heat * 2 + rng.normal(0, 1, n), heat, 100 + 50 * (rng.random(n) < 0.5) + rng.normal(0, 1, n)])
    X[rng.random(X.shape) < gaps] = np.nan
    return [{name: v for name, v in zip(NAMES, row, strict=True) if v == v} for row in X.tolist()], X
