"""Columns by name or by number."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError

Indices = NDArray[np.intp]


def column_names(model: Any) -> list[str]:
    """Names of the columns of a fitted model; x0, x1, ... where it learned from data without names."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def column_numbers(select: Any, names: Sequence[str] | None, n_features: int, argument: str) -> Indices:
    """Numbers of the columns that `select` stands for: a name, a number, a list of them, a mask or a slice.

    Parameters
    ----------
    select : str, int, slice, array-like of str or int, or mask of bool
        The columns; negative numbers count from the end.
    names : sequence of str or None
        Names of all columns, where they have names.
    n_features : int
        Number of columns.
    argument : str
        What the caller calls the selection, for messages.
    """
    if isinstance(select, slice):
        select = range(*select.indices(n_features))
    items = list(select) if np.iterable(select) and not isinstance(select, str) else [select]
    if len(items) and all(isinstance(item, bool | np.bool_) for item in items):
        items = _masked(items, n_features, argument)
    found = [_number(item, names, n_features, argument) for item in items]
    if not found:
        raise InputError(f"{argument}={select!r} names no column; give at least one name or number.")
    if len(set(found)) < len(found):
        raise InputError(f"{argument}={select!r} names a column twice.")
    return np.array(found, dtype=np.intp)


def _masked(mask: list[Any], n_features: int, argument: str) -> list[int]:
    if len(mask) != n_features:
        raise InputError(f"{argument} is a mask of {len(mask)} values; the model has {n_features} columns.")
    return [number for number, chosen in enumerate(mask) if chosen]


def _number(item: Any, names: Sequence[str] | None, n_features: int, argument: str) -> int:
    if isinstance(item, str):
        return _named(item, names, argument)
    # True and False are integers to Python: as columns they would silently be 1 and 0.
    if not isinstance(item, int | np.integer) or isinstance(item, bool | np.bool_):
        raise InputError(f"{argument} holds {item!r}; columns are given by name or by number.")
    if not -n_features <= item < n_features:
        raise InputError(f"{argument} holds the column {item}; the model has the columns 0 to {n_features - 1}.")
    return int(item) % n_features


def _named(name: str, names: Sequence[str] | None, argument: str) -> int:
    if names is None:
        raise InputError(
            f"{argument} holds the name {name!r}, but the model learned from columns without names. "
            "Give column numbers, or learn from a data frame."
        )
    known = list(names)
    if name in known:
        return known.index(name)
    close = difflib.get_close_matches(name, map(str, known), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InputError(f"{argument} holds {name!r}, which is no column of the model.{hint} It has: {_some(known)}.")


def _some(names: list[str], most: int = 20) -> str:
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown}, and {len(names) - most} more"
