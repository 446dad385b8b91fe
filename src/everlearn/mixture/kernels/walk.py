"""A block of rows of many columns: their distances to all components are known, and they are shared out one by one."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inlined, kernel
from everlearn.linalg.priority_sample import offer_row
from everlearn.mixture.kernels.rows import SMALL, background_joint, create, fade, limited, share, watch_next


class Block(NamedTuple):
    """Rows between two refreshes of a component; C is the number of components that there is room for."""

    distances: np.ndarray  # (m, C), squared, of every row to every component as it is
    shares: np.ndarray  # (m, C), weight of a row that belongs to a component
    added: np.ndarray  # (C,), rows whose shares are in the moments of the component
    due: np.ndarray  # (C,), whether it is to be refreshed
    x: np.ndarray  # (D,), a row in the coordinates of the frame
    e: np.ndarray  # (D,), room for its deviation
    joints: np.ndarray  # (C + 1,), its log joints, then its responsibilities


@kernel
def walk(start, X, weights, handle, block, out):
    """Share out rows of the data without gaps from `start` on, up to one after which a component is due for a refresh.

    What `rows.learn_rows` does with each row, in the same order, but that `block.shares` takes what would be added to
    scatters and shifts: the caller adds it, by matrix products, before a refresh. Returns the row to go on with;
    `block.due` marks the components to refresh, among them one that was created of the last row.
    """
    c, _, background, frame, reservoir, rule, _, watch, _ = handle.content
    log_scale = 0.0
    for i in range(X.shape[1]):
        log_scale += frame.log_scale[i]
    for k in range(len(block.due)):
        block.due[k] = False
    for t in range(start, X.shape[0]):
        w = weights[t]
        if len(reservoir.keys) > 0:
            load(X[t], frame, block.x)
            offer_row(block.x, w, reservoir, rule.fading.rate, rule.seed)
        if rule.fading.rate > 0.0:
            fade_with_shares(t, c, rule.fading, block.shares)
        K, nearest = c.size[0], np.inf
        for k in range(K):
            nearest = min(nearest, block.distances[t, k])
            block.joints[k] = c.heights[k] - 0.5 * block.distances[t, k]
        beyond = nearest > rule.thresholds[X.shape[1]]
        block.joints[K] = -np.inf
        if beyond:
            load(X[t], frame, block.x)
            block.joints[K] = background_joint(block.x, background, block.e)
        log_density = share(K + 1, block.joints) - np.log(c.total[0]) - log_scale
        out[0, t], out[1, t] = log_density, nearest
        if watch.counts[0] >= 0:
            watch_next(X.shape[1], log_density, nearest, watch)
        c.total[0] += w
        if beyond and K < c.mass.shape[0]:
            create(K, w, block.x, c)
            c.size[0] = K + 1
            block.added[K] = t + 1
            block.due[K] = True
            return t + 1
        if assign(t, w, c, rule.growth, block):
            return t + 1
    return X.shape[0]


@inlined
def load(row, frame, x):
    """A row of the data into x, in the coordinates of the frame."""
    for i in range(len(x)):
        x[i] = limited((row[i] - frame.centre[i]) * frame.inverse[i])


@inlined
def fade_with_shares(t, components, fading, shares):
    """`rows.fade_in_steps`, of the rows before t too whose shares are not added yet."""
    c = components
    c.rows[0] += 1
    if c.rows[0] % fading.every == 0:
        fade(c.size[0], fading.factor, c)
        c.total[0] *= fading.factor
        for row in range(t):
            for k in range(c.size[0]):
                shares[row, k] *= fading.factor


@inlined
def assign(t, w, components, growth, block):
    """Count row t for its components; returns whether one of them has grown so much that it is to be refreshed."""
    c, found = components, False
    for k in range(c.size[0]):
        r = w * block.joints[k]
        if r > SMALL * w:
            block.shares[t, k] = r
            c.mass[k] += r
            c.fresh[k] += r
            if c.fresh[k] > growth * c.counts[k] + 0.5:
                block.due[k] = found = True
    return found
