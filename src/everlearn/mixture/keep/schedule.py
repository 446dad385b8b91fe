"""When a search is due, when it is adopted, and on how many rows: row counts only, so that batches do not matter."""

from __future__ import annotations

# Rows that a search may take to be worked out, at most: they are kept in double precision until it is adopted.
MAX_LAG = 512
# Rows of the reservoir: enough for 50 components of few columns; 135 kB at D = 8.
MIN_RESERVOIR, MAX_RESERVOIR, RESERVOIR_NUMBERS = 1000, 2800, 65536
# A question is worth a search of its own when there are so many times more rows than at the last one.
ASK_AGAIN = 1.05


def reservoir_rows(D: int) -> int:
    """Rows that the reservoir keeps unless told otherwise."""
    return min(max(RESERVOIR_NUMBERS // D, MIN_RESERVOIR, 100 * D), MAX_RESERVOIR)


def warmup_rows(D: int, reservoir: int) -> int:
    """Rows after which the first search is due."""
    return min(max(200, 5 * D), 2000, reservoir) if reservoir else min(max(500, 50 * D), 2000)


def has_grown(n: int, since: int, interval: int) -> bool:
    """Whether so many rows have come since row `since` that a question is worth a search of its own.

    A single row more never is, so that who asks after every row does not pay for a search each time.
    """
    return since == 0 or (n - since > 1 and (n >= ASK_AGAIN * since or n - since >= interval // 4))


def lag(due: int, interval: int) -> int:
    """Rows between the one at which a search is due and the one at which it is adopted."""
    return min(due // 4, interval // 4, MAX_LAG)


def apart(searched: int) -> int:
    """Rows between two searches of which the second is made because the room for components is used up."""
    return max(50, searched // 20)


def next_search(searched: int, warmup: int, reservoir: int, interval: int) -> int:
    """Row at which the next search is due: at four times the rows while all are at hand, the last time when the
    reservoir is full, then at twice the rows.

    Under forgetting searches are at most `interval` rows apart.
    """
    if searched == 0:
        return warmup
    due = min(4 * searched, reservoir) if 2 * searched <= reservoir else 2 * searched
    return min(due, searched + interval)
