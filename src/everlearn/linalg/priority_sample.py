"""Priority sampling (Duffield, Lund and Thorup, 2007) of a stream: weighted rows without replacement, in one pass."""

import numpy as np

from everlearn.linalg.compile import inlined
from everlearn.linalg.uniforms import uniform


@inlined
def slot_for_row(weight, sample, rate, seed):
    """Offer a row of this weight to the sample, in place; returns the slot that its cells go to, or -1.

    Under forgetting a row weighs exp(rate) times as much as the one before it, instead of the old ones losing weight:
    priorities never change, and the sample is biased exponentially.
    """
    room, size = sample.rows.shape[0], sample.size[0]
    # In logs: under forgetting weights grow exponentially with the number of rows and would overflow.
    log_weight = (0.0 if weight == 1.0 else np.log(weight)) + rate * sample.offered[0]
    u = uniform(seed, sample.offered[0])
    sample.offered[0] += 1
    # -log u <= 1/u - 1: most rows of a long stream are below the level by this bound, which needs no logarithm.
    if size == room and 1.0 - u <= (sample.level[0] - log_weight) * u:
        return -1
    key = log_weight - np.log(u)
    slot = size
    if size < room:
        sample.size[0] = size + 1
    else:
        # Most rows of a long stream end here: no kept priority is below the level.
        if key <= sample.level[0]:
            return -1
        # What falls out is the highest priority that is not kept, the threshold of priority sampling. It only rises.
        slot = np.argmin(sample.keys)
        sample.level[0] = min(key, sample.keys[slot])
        if key <= sample.keys[slot]:
            return -1
    sample.keys[slot] = key
    sample.log_weights[slot] = log_weight
    return slot


@inlined
def offer_row(x, weight, sample, rate, seed):
    """`slot_for_row` of a row, whose cells are copied there."""
    slot = slot_for_row(weight, sample, rate, seed)
    if slot >= 0:
        for i in range(len(x)):
            sample.rows[slot, i] = x[i]
