"""Which rows of a stream a bounded sample keeps."""

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.monitoring.kernels.event_log import scrambled


@kernel
def reservoir_slots(first, n, size):
    """Slot in a uniform sample of `size` rows for each of n rows, the first being row number `first`; -1 for none.

    Reservoir sampling with numbers drawn from the row numbers, so that any split of a stream keeps the same rows.
    """
    slots = np.empty(n, np.int64)
    for t in range(n):
        slot = first + t
        if slot >= size:
            slot = np.int64(scrambled(first + t) % np.uint64(first + t + 1))
        slots[t] = slot if slot < size else -1
    return slots
