"""Distances of one complete row to the components of a mixture, its density, and the posterior probabilities."""

import numpy as np

from everlearn.linalg.compile import inner
from everlearn.linalg.dense import softmax, symmetric_product, total

LOG_2PI = np.log(2.0 * np.pi)


@inner
def complete_distance(x, j, state, scratch):
    """d^2 of a complete row to component j; fills e = x - mu and g = Lambda e."""
    E, means = scratch.E, state.means
    for a in range(x.shape[0]):
        E[j, a] = x[a] - means[j, a]
    return symmetric_product(state.precisions[j], E[j], scratch.G[j])


@inner
def log_height(count, log_det, observed):
    """Log joint density (weights not normalised) at the mean of a component."""
    return np.log(count) - 0.5 * (log_det + observed * LOG_2PI)


@inner
def least(values, n):
    """Smallest of the first n values: infinite when there are none, NaN when one of them is."""
    smallest = np.inf
    for j in range(n):
        # A comparison with NaN is false: `not >=` lets NaN in, the second condition keeps it. A component that has lost
        # its precision must not hide behind another one's distance.
        if not values[j] >= smallest and smallest == smallest:
            smallest = values[j]
    return smallest


@inner
def measure_complete(x, state, n, scratch):
    """Distances and log joint densities of a complete row to every component; returns the smallest distance."""
    d2, log_joint = scratch.d2, scratch.log_joint
    for j in range(n):
        d2[j] = complete_distance(x, j, state, scratch)
        log_joint[j] = log_height(state.counts[j], state.log_dets[j], x.shape[0]) - 0.5 * d2[j]
    return least(d2, n)


@inner
def respond(counts, n, scratch):
    """Posterior probabilities of the components; returns the log-density, NaN when there is no component."""
    density = np.nan
    if n > 0:
        density = softmax(scratch.log_joint, n, scratch.posterior) - np.log(total(counts, n))
    return density


@inner
def log_unit(x, log_scale):
    """Sum of the log-scales of the observed columns: what a density in scaled columns exceeds that of the data by."""
    value = 0.0
    for a in range(x.shape[0]):
        value += log_scale[a] if x[a] == x[a] else 0.0
    return value
