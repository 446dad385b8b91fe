"""Distances of one complete row to the components of a mixture, its density, and the posteriors."""

import numpy as np

from everlearn.linalg.compile import inner
from everlearn.linalg.dense import symmetric_product

LOG_2PI = np.log(2.0 * np.pi)


@inner
def complete_distance(x, j, means, precisions, E, G):
    """d^2 of a complete row to component j; fills e = x - mu and g = Lambda e."""
    for a in range(x.shape[0]):
        E[j, a] = x[a] - means[j, a]
    return symmetric_product(precisions[j], E[j], G[j])


@inner
def log_height(count, log_det, observed):
    """Log joint density (weights not normalised) at the mean of a component."""
    return np.log(count) - 0.5 * (log_det + observed * LOG_2PI)


@inner
def least(values, n):
    """Smallest of the first n values: infinite when there are none, NaN when one of them is."""
    smallest = np.inf
    for j in range(n):
        if not values[j] >= smallest and smallest == smallest:
            smallest = values[j]
    return smallest


@inner
def measure(x, means, precisions, log_dets, counts, n, E, G, d2, log_joint):
    """Distances and log joint densities of a complete row to every component; returns the smallest distance."""
    for j in range(n):
        d2[j] = complete_distance(x, j, means, precisions, E, G)
        log_joint[j] = log_height(counts[j], log_dets[j], x.shape[0]) - 0.5 * d2[j]
    return least(d2, n)


@inner
def normalise(log_joint, n, posterior):
    """Softmax of the log joint densities; returns their log-sum-exp."""
    top = -np.inf
    for j in range(n):
        top = max(top, log_joint[j])
    mass = 0.0
    for j in range(n):
        posterior[j] = np.exp(log_joint[j] - top) if top > -np.inf else 0.0
        mass += posterior[j]
    if mass > 0.0:
        for j in range(n):
            posterior[j] /= mass
    return top + np.log(mass) if mass > 0.0 else top


@inner
def total(counts, n):
    """Sum of the first n counts."""
    value = 0.0
    for j in range(n):
        value += counts[j]
    return value


@inner
def weigh(log_joint, counts, n, posterior):
    """Posteriors of the components; returns the log density, NaN when there is no component."""
    density = np.nan
    if n > 0:
        density = normalise(log_joint, n, posterior) - np.log(total(counts, n))
    return density
