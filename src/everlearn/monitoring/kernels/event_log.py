"""Signals on a stream that is being learned: likelihood before learning, novelties, changes; a sample of its rows."""

import numpy as np

from everlearn.linalg.column_scan import count_observed
from everlearn.linalg.compile import kernel
from everlearn.monitoring.kernels.page_hinkley import page_hinkley_step

NOVELTY, CHANGE = 0, 1


@kernel
def record(row, kind, value, rows, kinds, values, n_events):
    """Put an event into the ring."""
    slot = n_events % rows.shape[0]
    rows[slot] = row
    kinds[slot] = kind
    values[slot] = value
    return n_events + 1


@kernel
def observed_part(x, log_scale):
    """Number of columns of a row that are not NaN, and the sum of their log-scales."""
    observed, share = 0, 0.0
    for a in range(x.shape[0]):
        if not np.isnan(x[a]):
            observed += 1
            share += log_scale[a]
    return observed, share


@kernel
def watch_rows(
    X, gaps, log_density, distance, log_scale, alarm, first_row, totals, memory, detector, rows, kinds, values, n_events
):  # fmt: skip
    """Turn densities into those of the unscaled columns, add them up, and record novelties and changes.

    `gaps` is whether X has any; `alarm[d]` is the squared distance from which a row with d observed columns is a
    novelty; `totals` holds the number of rows and the sum of their log-densities; `memory` and `detector` belong to the
    Page-Hinkley test.
    """
    whole = np.sum(log_scale)
    for t in range(X.shape[0]):
        observed, share = X.shape[1], whole
        if gaps and np.isnan(np.sum(X[t])):
            observed, share = observed_part(X[t], log_scale)
        log_density[t] -= share
        if observed == 0 or np.isnan(log_density[t]):
            continue
        totals[0] += 1.0
        totals[1] += log_density[t]
        if distance[t] > alarm[observed]:
            n_events = record(first_row + t, NOVELTY, distance[t], rows, kinds, values, n_events)
        if page_hinkley_step(log_density[t], memory, detector[0], detector[1], detector[2], detector[3]):
            n_events = record(first_row + t, CHANGE, log_density[t], rows, kinds, values, n_events)
    return n_events


@kernel
def scrambled(number):
    """A uniform 64-bit number from a row's number (splitmix64), so that a sample needs no generator state."""
    z = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def sample_rows(X, sample, n_seen):
    """Uniform sample of the rows seen so far that observe anything (reservoir sampling); returns how many those are."""
    size = sample.shape[0]
    for t in range(X.shape[0]):
        if count_observed(X[t]) == 0:
            continue
        slot = n_seen
        if n_seen >= size:
            slot = np.int64(scrambled(n_seen) % np.uint64(n_seen + 1))
        if slot < size:
            sample[slot] = X[t]
        n_seen += 1
    return n_seen
