"""Copies of a model's state, to go back to when learning fails."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

_IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes, np.float64, np.int64, np.bool_})


def copied(value: Any) -> Any:
    """Return a copy that shares no array with `value`.

    States are tuples of arrays, for which this takes a few microseconds where `copy.deepcopy` takes a hundred: a tuple
    cannot hold itself, so that there is no need to remember what was met.

    Parameters
    ----------
    value : object
        An array, a number, a tuple, list or dict of such, or anything that `copy.deepcopy` takes.

    Returns
    -------
    object
        The copy.
    """
    kind = type(value)
    # An array of objects would share them with its copy.
    if kind is np.ndarray and value.dtype != object:
        return value.copy(order="K")
    if kind in _IMMUTABLE:
        return value
    if isinstance(value, tuple):
        items = map(copied, value)
        return kind._make(items) if hasattr(kind, "_make") else tuple(items)
    if kind is list:
        return list(map(copied, value))
    return copy.deepcopy(value)
