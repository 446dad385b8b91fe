"""Random numbers without a generator's state: functions of a number, and so the same in any batch."""

import numpy as np

from everlearn.linalg.compile import inlined, inner


@inlined
def uniform(seed, number):
    """A uniform number in (0, 1) from a row's number (splitmix64)."""
    z = np.uint64(seed) + (np.uint64(number) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    # The upper 53 bits, each at the middle of its interval: never 0 or 1, because logarithms are taken of it.
    return (np.float64(z >> np.uint64(11)) + 0.5) / 9007199254740992.0


@inner
def normal_numbers(seed, weight, out):
    """Normal numbers (Box and Muller, 1958) from the weight of all rows so far."""
    first = np.int64(weight * 16.0) * len(out) * 2
    for i in range(len(out)):
        u, v = uniform(seed, first + 2 * i), uniform(seed, first + 2 * i + 1)
        out[i] = np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * v)
