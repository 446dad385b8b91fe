"""Which rows of a stream a bounded sample keeps: reservoir sampling without the state of a generator."""

import numpy as np

from everlearn.linalg.column_scan import count_observed
from everlearn.linalg.compile import inner, kernel


@inner
def splitmix64(number):
    """A uniform 64-bit number from a row's number (Steele, Lea and Flood, 2014)."""
    z = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def slot_of(number, size):
    """Slot of row `number` in a uniform sample of `size` rows; `size` or more for none (Vitter's algorithm R)."""
    slot = np.int64(number)
    if slot >= size:
        # The modulus favours small slots by less than n / 2^64, which no stream is long enough to show.
        slot = np.int64(splitmix64(number) % np.uint64(number + 1))
    return slot


@kernel
def reservoir_slots(first, n, size):
    """Slot in a uniform sample of `size` rows for each of n rows, the first being row number `first`; -1 for none.

    Numbers are drawn from the row numbers, so that any split of a stream keeps the same rows.
    """
    slots = np.empty(n, np.int64)
    for t in range(n):
        slot = slot_of(first + t, size)
        slots[t] = slot if slot < size else -1
    return slots


@kernel
def sample_rows(X, sample, n_seen):
    """Uniform sample of the rows seen so far that observe anything; returns how many those are."""
    size = sample.shape[0]
    for t in range(X.shape[0]):
        if count_observed(X[t]) == 0:
            continue
        slot = slot_of(n_seen, size)
        if slot < size:
            for a in range(X.shape[1]):
                sample[slot, a] = X[t, a]
        n_seen += 1
    return n_seen
