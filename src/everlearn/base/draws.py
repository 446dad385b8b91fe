"""Draws from a model: their number and their source of randomness."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.errors import InputError


def generator(random_state: Any) -> np.random.Generator:
    """A generator from any source of randomness that scikit-learn takes."""
    from sklearn.utils import check_random_state  # a second and a half to import, which `everlearn ask` does not need

    return np.random.default_rng(check_random_state(random_state).randint(2**31))


def check_draws(n_samples: int) -> None:
    """Refuse a number of draws that is none."""
    if n_samples < 1:
        raise InputError(f"n_samples must be at least 1; got {n_samples}.")
