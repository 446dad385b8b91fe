"""Which way of learning is cheapest: what each costs, by the size of the mixture and the share of pairs that matter."""

from __future__ import annotations

from enum import Enum

from everlearn.linalg.backend import LARGE as LARGE
from everlearn.linalg.backend import block_rows as block_rows

# A pass over a D x D matrix costs twice as much when the matrices do not fit into a core's own cache.
CACHED_NUMBERS = 2**18
# Rows in which the cheapest way is not looked for again, for as long as this many nanoseconds of them.
LEG = 3e6


class Method(Enum):
    """The ways to learn rows."""

    ROWS = "rows"
    NEAR_ROWS = "near rows"
    BLOCKS = "blocks"
    NEAR_BLOCKS = "near blocks"
    MARGINAL = "marginal"

    @property
    def is_near(self) -> bool:
        """Whether a screen leaves out components that cannot matter."""
        return self in (Method.NEAR_ROWS, Method.NEAR_BLOCKS)


def costs(D: int, K: int, share: float) -> dict[Method, float]:
    """Nanoseconds a row, roughly; only their ratios matter."""
    square = D * D
    touch = (0.14 if K * square <= CACHED_NUMBERS else 0.3) * square
    screen = 600 + K * (50 + 0.012 * square) if D >= LARGE else 600 + 0.35 * square + K * (50 + 0.025 * square)
    block, near_block = block_rows(D), block_rows(D, K, screened=True)
    active = max(share * K, 1.0)
    return {
        Method.ROWS: K * (60 + touch) + active * (40 + 1.3 * touch),
        Method.NEAR_ROWS: screen + active * (80 + 2.3 * touch),
        Method.BLOCKS: 1.5e5 / block + K * (100 + 13 * D + 0.07 * square),
        Method.NEAR_BLOCKS: screen + (2e5 + K * (6e4 + 2 * square)) / near_block + active * (20 * D + 0.1 * square),
    }


def choose(D: int, K: int, share: float | None = None, *, near: bool = True) -> Method:
    """The cheapest way, with a screen or not; a share that is not known yet is hoped to be small."""
    if K == 0:
        return Method.ROWS
    prices = costs(D, K, 1.0 / K if share is None else share)
    return min((method for method in prices if near or not method.is_near), key=prices.__getitem__)


def marginal_pays(D: int, K: int, gaps: int, rows: int) -> bool:
    """Whether so many rows with the same gaps cost less as complete rows of a marginal, once that is made."""
    saved = rows * K * (200 + 0.5 * D * D)
    return saved > 4e5 + K * D * D * (4 + gaps)


def leg(D: int, K: int) -> int:
    """Rows to learn one by one before the question is asked again: the first alone, if its component is for blocks."""
    if K == 0 and choose(D, 1) != Method.ROWS:
        return 1
    return max(16, int(LEG / costs(D, max(K, 1), 1.0)[Method.ROWS]))
