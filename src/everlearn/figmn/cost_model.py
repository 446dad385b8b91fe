"""Which way of learning is cheapest: what each costs, by the size of the mixture and the share of pairs that matter.

Costs are nanoseconds a row on one thread, linear in what each method does; only their ratios matter. The constants
were fitted by `benchmarks/cost_model.py`, which times every method on the same rows and prints them again.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from everlearn.linalg.backend import LARGE

# A pass over a D x D matrix costs twice as much when the matrices do not fit into a core's own cache.
CACHED_NUMBERS = 2**18
# Re-evaluate the cost model after this many nanoseconds of sequential learning.
REVIEW_AFTER = 3e6
# Most rows in a block of screened rows.
MAX_SCREENED_ROWS = 1024


class Method(Enum):
    """The ways to learn rows: all give the same answers up to rounding."""

    ROWS = "rows"
    SCREENED_ROWS = "screened rows"
    BLOCKS = "blocks"
    SCREENED_BLOCKS = "screened blocks"

    @property
    def is_screened(self) -> bool:
        """Whether bounds leave out components that cannot matter."""
        return self in (Method.SCREENED_ROWS, Method.SCREENED_BLOCKS)


class Constants(NamedTuple):
    """Fitted nanoseconds; `benchmarks/cost_model.py` prints this tuple."""

    pass_cached: float = 0.14  # a number of a matrix-vector pass, in cache
    pass_uncached: float = 0.3  # and out of it
    row_component: float = 60.0  # a component evaluated, beside the pass
    row_update: float = 40.0  # a component updated, beside 1.3 passes
    screen_row: float = 600.0  # bounds for a row ...
    screen_component: float = 50.0  # ... for a component of it ...
    screen_square: float = 0.025  # ... and for a number of its matrix; half of it from LARGE columns on
    screen_features: float = 0.35  # products z_a z_b of a row, below LARGE columns
    block: float = 1.5e5  # a block, in calls
    block_component: float = 100.0  # a row and component in a block ...
    block_column: float = 13.0  # ... a column of it ...
    block_square: float = 0.07  # ... and a number of the matrix, at the speed of matrix products
    screened_block: float = 2e5
    screened_component: float = 6e4  # a component of a screened block, in calls


FITTED = Constants()


@lru_cache(maxsize=4096)
def block_rows(D: int, K: int = 1, *, screened: bool = False) -> int:
    """Rows in a block: a power of two near D/5, where products are fast and the recursion small.

    With screening, long enough for about 20 rows per component (clipped).
    """
    rows = int(np.clip(2 ** np.round(np.log2(max(D, 1) / 5)), 16, 256))
    return int(np.clip(20 * K, min(2 * rows, 256), MAX_SCREENED_ROWS)) if screened else rows


def costs(D: int, K: int, share: float, c: Constants = FITTED) -> dict[Method, float]:
    """Nanoseconds a row of each method, where the share `share` of the components matters to a row."""
    square = D * D
    matrix = (c.pass_cached if K * square <= CACHED_NUMBERS else c.pass_uncached) * square
    features = 0.0 if D >= LARGE else c.screen_features * square
    per_number = c.screen_square * (0.5 if D >= LARGE else 1.0)
    screen = c.screen_row + features + K * (c.screen_component + per_number * square)
    active = max(share * K, 1.0)
    screened_rows = block_rows(D, K, screened=True)
    return {
        Method.ROWS: K * (c.row_component + matrix) + active * (c.row_update + 1.3 * matrix),
        Method.SCREENED_ROWS: screen + active * (c.row_component + 20.0 + 2.3 * matrix),
        Method.BLOCKS: c.block / block_rows(D) + K * (c.block_component + c.block_column * D + c.block_square * square),
        Method.SCREENED_BLOCKS: screen
        + (c.screened_block + K * (c.screened_component + 2 * square)) / screened_rows
        + active * (20 * D + 0.1 * square),
    }


def choose(D: int, K: int, share: float | None = None, *, screening: bool = True) -> Method:
    """Return the cheapest method. If `share` is unknown, assume one active component."""
    if K == 0:
        return Method.ROWS
    prices = costs(D, K, 1.0 / K if share is None else share)
    return min((method for method in prices if screening or not method.is_screened), key=prices.__getitem__)


def rows_until_reconsidered(D: int, K: int) -> int:
    """Rows to learn one by one before the cost model is asked again.

    One, for an empty mixture whose first component would be learned in blocks.
    """
    if K == 0 and choose(D, 1) != Method.ROWS:
        return 1
    return max(16, int(REVIEW_AFTER / costs(D, max(K, 1), 1.0)[Method.ROWS]))
