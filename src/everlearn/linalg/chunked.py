"""Passes over the cells of many rows, in parts that go to several cores. The answers do not depend on their number.

Few rows, of which there may be a million batches, go to the kernel without detours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from everlearn.linalg import column_scan as cells
from everlearn.linalg import parallel as threads

Array = NDArray[np.float64]
Answer = TypeVar("Answer")

# Numbers in a part (8 MiB): a millisecond's work.
PART = 2**20


def sweep(work: Callable[[slice], Answer], X: Array) -> list[Answer]:
    """Do `work` on consecutive rows, part by part, and give its answers in their order."""
    if X.size <= PART:
        return [work(slice(0, len(X)))]
    # Cuts depend on the size of X alone, never on the number of threads: sums
    # are added in the same order on any machine.
    n, step = len(X), max(1, PART * len(X) // X.size)
    return threads.each(work, [slice(start, min(start + step, n)) for start in range(0, n, step)])


def first_invalid(X: Array, *, allow_nan: bool) -> int:
    """Flat index of the first infinite (or, unless allowed, NaN) cell of X, -1 when there is none."""
    if X.size <= PART:
        return int(cells.first_invalid(X, allow_nan))
    found = sweep(lambda rows: (rows.start, cells.first_invalid(X[rows], allow_nan)), X)
    return next((start * X.shape[1] + cell for start, cell in found if cell >= 0), -1)


def has_gaps(X: Array) -> bool:
    """Whether some cell is NaN."""
    if X.size <= PART:
        return bool(cells.has_gaps(X))
    return any(sweep(lambda rows: cells.has_gaps(X[rows]), X))


def to_internal(X: Array, inverse_scale: Array, limit: float) -> Array:
    """X times the inverse scale of each column, kept within +-limit so that squares stay finite."""
    return to_internal_with_gaps(X, inverse_scale, limit)[0]


def to_internal_with_gaps(X: Array, inverse_scale: Array, limit: float) -> tuple[Array, bool]:
    """The same, and whether some cell is NaN."""
    out = np.empty_like(X)
    if X.size <= PART:
        return out, cells.rescale(X, inverse_scale, limit, out)
    gaps = sweep(lambda rows: cells.rescale(X[rows], inverse_scale, limit, out[rows]), X)
    return out, any(gaps)
