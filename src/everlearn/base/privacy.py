"""What could be read from a model about single rows of its stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everlearn.typing import Array

MIN_ROWS = 20
"""Rows that a component should stand for at least, unless told otherwise."""

# A component of fewer rows than this was opened by one row, and no other has joined it: its mean is that row.
_ONE_ROW = 1.5


class Privacy(NamedTuple):
    """What could be read from a model, and so from its file, about single rows.

    Attributes
    ----------
    rows : int
        Rows of the stream that are inside as they were: the sample, rows of the warm-up, rows that wait for a search.
    components : int
        Number of components.
    small : int
        Components that stand for fewer than `min_rows` rows.
    single : int
        Of these, components of one row: their mean is that row.
    min_rows : int
        Rows that a component should stand for.
    """

    rows: int
    components: int
    small: int
    single: int
    min_rows: int

    @property
    def is_aggregated(self) -> bool:
        """Whether there is no row inside, and no component of fewer than `min_rows` rows."""
        return self.rows == 0 and self.small == 0

    def sentences(self) -> list[str]:
        """What could be read, in words."""
        found = []
        if self.rows:
            found.append(f"{self.rows:,} rows of the stream are inside, as they were.")
        if self.single:
            found.append(f"{self.single:,} of {self.components:,} components have one row each: their means are rows.")
        if self.small:
            found.append(f"{self.small:,} of {self.components:,} components stand for fewer than {self.min_rows} rows.")
        if self.is_aggregated:
            found.append(
                f"No row is inside, and each component stands for {self.min_rows} rows or more. Means, covariances and "
                "counts are inside: they are no secret, and no noise is added to them."
            )
        return found


def privacy_of(rows: int, counts: Array, min_rows: int) -> Privacy:
    """The report of a model with so many rows inside, and components of so many rows each."""
    # Counts are sums of responsibilities and weights, not whole numbers.
    counts = np.asarray(counts)
    return Privacy(rows, len(counts), int((counts < min_rows).sum()), int((counts < _ONE_ROW).sum()), min_rows)
