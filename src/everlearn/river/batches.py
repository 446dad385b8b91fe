"""Rows from dicts and data frames: features by name, any of which a row may lack."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.errors import InputError, require

# river's own helpers for frames of any library: answers have the type and index of what was asked.
dataframe = require("river.utils.dataframe", extra="river")

Array = NDArray[np.float64]
Features = Mapping[Hashable, Any]
Names = tuple[Hashable, ...]


def rows_of(dicts: Sequence[Features], names: Names) -> Array:
    """Values of the named features, a row for each dict; NaN where a dict lacks one or has None.

    Parameters
    ----------
    dicts : sequence of dict
        Features by name.
    names : tuple
        The feature in each column.

    Returns
    -------
    ndarray of shape (len(dicts), len(names))
        The rows.
    """
    shape = len(dicts), len(names)
    try:
        # The quick way for all rows together; only when it fails is each cell looked at, to name the one to blame. None
        # becomes NaN in float64.
        values = chain.from_iterable([map(x.get, names) for x in dicts])
        return np.fromiter(values, np.float64, shape[0] * shape[1]).reshape(shape)
    except (AttributeError, TypeError, ValueError):
        for x in dicts:
            _refuse(x, names)
        raise


def _copied(x: Any) -> dict[Hashable, Any]:
    if not isinstance(x, Mapping):
        raise InputError(f"x must be a dict of features; got a {type(x).__name__}. stream.iter_array gives dicts.")
    return dict(x)


def _refuse(x: Any, names: Iterable[Hashable]) -> None:
    """Say which feature of x is not a number, if one is not."""
    x = _copied(x)
    for name in names:
        try:
            np.fromiter((x.get(name),), np.float64, 1)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"Feature {name!r} is {x[name]!r}, which is not a number. Leave it out with "
                "compose.SelectType(float, int), or encode it, for example with preprocessing.OneHotEncoder."
            ) from error


def observed_in(dicts: Iterable[Features], wanted: Set[Hashable] | None = None) -> set[Hashable]:
    """Names of the features, or of those that are wanted, that have a value in at least one of the dicts."""
    # A feature that has only ever been None or NaN is not a column: nothing could be learned for it.
    seen = {name for x in dicts for name, value in x.items() if value is not None and value == value}
    return seen if wanted is None else seen & wanted


def in_order(names: Iterable[Hashable]) -> Names:
    """The names in an order that does not depend on the order in which they came."""
    try:
        return tuple(sorted(names))  # type: ignore[type-var]
    except TypeError:
        # Names of several types, such as 1 and "a", have no order of their own.
        return tuple(sorted(names, key=repr))


class Dicts:
    """A batch of dicts; its answers are lists of what the same questions about one dict give.

    Parameters
    ----------
    dicts : iterable of dict
        The rows.
    """

    def __init__(self, dicts: Iterable[Features]) -> None:
        self._dicts = list(dicts)

    def __len__(self) -> int:
        return len(self._dicts)

    def __iter__(self) -> Iterator[dict[Hashable, Any]]:
        return map(_copied, self._dicts)

    def rows(self, names: Names) -> Array:
        """Values of the named features."""
        return rows_of(self._dicts, names)

    def features(self) -> set[Hashable]:
        """All features of the batch."""
        return set().union(*self._dicts)

    def series(self, values: NDArray[Any]) -> list[Any]:
        """An answer a row."""
        return values.tolist()

    def frame(self, values: Array, names: Sequence[Hashable]) -> list[dict[Hashable, float]]:
        """Several named answers a row."""
        return [dict(zip(names, row, strict=True)) for row in values.tolist()]

    def filled(self, values: Array, names: Names) -> list[dict[Hashable, Any]]:
        """The rows with the values of the named features put in."""
        return [{**x, **row} for x, row in zip(self._dicts, self.frame(values, names), strict=True)]


class Table:
    """A data frame (pandas, polars, Arrow); its answers are series and frames of the same sort and index.

    Parameters
    ----------
    X : data frame
        The rows.
    """

    def __init__(self, X: Any) -> None:
        self._frame = dataframe.into_frame(X)
        self._names: Names = tuple(self._frame.columns)
        try:
            self._values: Array = dataframe.to_numpy(self._frame)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The data frame has a column that is not numbers: {error}. Leave it out, or encode it as numbers."
            ) from error

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[dict[Hashable, Any]]:
        return (dict(zip(self._names, row.tolist(), strict=True)) for row in self._values)

    def rows(self, names: Names) -> Array:
        """Values of the named features."""
        place = {name: i for i, name in enumerate(self._names)}
        rows = np.full((len(self), len(names)), np.nan)
        for i, name in enumerate(names):
            if name in place:
                rows[:, i] = self._values[:, place[name]]
        return rows

    def features(self) -> set[Hashable]:
        """All features of the batch."""
        return set(self._names)

    def series(self, values: NDArray[Any]) -> Any:
        """An answer a row."""
        return dataframe.to_native_series(values, name=None, like=self._frame)

    def frame(self, values: Array, names: Sequence[Hashable]) -> Any:
        """Several named answers a row."""
        # river takes names other than text with a dict of columns only, and that cannot hold a frame without columns.
        data = dict(zip(names, values.T, strict=True)) if names else values
        return dataframe.to_native_frame(data, like=self._frame, columns=list(names))

    def filled(self, values: Array, names: Names) -> Any:
        """The rows with the values of the named features put in."""
        columns = dict(zip(self._names, self._values.T, strict=True))
        columns.update(zip(names, values.T, strict=True))
        return self.frame(np.column_stack(list(columns.values())), list(columns))


def batch_of(X: Any) -> Dicts | Table:
    """A data frame or an iterable of dicts as a batch."""
    return Table(X) if hasattr(X, "columns") or hasattr(X, "column_names") else Dicts(X)
