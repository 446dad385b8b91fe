"""Change signals on a stream of numbers, one at a time."""

import numpy as np

from everlearn.linalg.compile import kernel

# What `memory` holds: values since the last change, their mean, their scatter about it, the drop accumulated.
COUNT, MEAN, SCATTER, DROP = 0, 1, 2, 3


@kernel
def page_hinkley_step(value, memory, drift, threshold, min_rows, limit):
    """Take one value into `memory`; returns whether values have been dropping for too long to be chance.

    The value that signals is not among those from which the test starts again: it may be an outlier, beside which no
    later drop would stand out.
    """
    deviation = value - memory[MEAN]
    if memory[COUNT] >= min_rows:
        std = np.sqrt(memory[SCATTER] / memory[COUNT])
        if std > 0.0:
            deviation = min(max(deviation, -limit * std), limit * std)
            memory[DROP] = max(0.0, memory[DROP] - deviation / std - drift)
        if memory[DROP] > threshold:
            memory[:] = 0.0
            return True
    memory[COUNT] += 1.0
    step = deviation / memory[COUNT]
    memory[MEAN] += step
    memory[SCATTER] += deviation * (deviation - step)
    return False


@kernel
def page_hinkley_rows(values, memory, drift, threshold, min_rows, limit, fired):
    """Take values in order, marking those at which a change is signalled."""
    for t in range(values.shape[0]):
        fired[t] = page_hinkley_step(values[t], memory, drift, threshold, min_rows, limit)
