"""Learning rows one after the other: posteriors, the room for strange rows, waiting lists, the priority sample."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.priority_sample import offer_row, slot_for_row
from everlearn.low_rank.kernels.fold import fold
from everlearn.low_rank.kernels.shape import refresh
from everlearn.typing import Array

# Responsibilities below this teach no component; the others are scaled up to one.
SMALL = 1e-3
# Memory of the calibration, in rows.
CALIBRATION_ROWS = 2000.0
LOG_2PI = np.log(2.0 * np.pi)
# Rows that are scored by one matrix product, at most: after a fold what is left of them is scored anew.
CHUNK = 64


class Chunk(NamedTuple):
    """Some rows in the coordinates of the frame, and what is told of them."""

    rows: Array  # (n, D)
    weights: Array  # (n,)
    z: Array  # (n,), filled: how strange the row is, in standard deviations of the cube root; NaN uncalibrated
    log_density: Array  # (n,), filled: before the row was learned


@inner
def quota(n, most):
    """Rows that may wait for a component of n rows: a quarter of those it has."""
    return max(1, min(most, int(np.ceil(n / 4.0))))


@inner
def is_due(model, rule):
    """Whether a component is to be folded, or the room is full."""
    c, waiting = model.components, model.waiting
    for j in range(len(c.n)):
        if waiting.size[j] >= quota(c.n[j], rule.quota):
            return True
    H = len(model.room.weights)
    return H > 0 and model.room.size[0] == H


@inner
def strangeness(d2, observed, D, calibration):
    """Cube root of a squared distance, about Gaussian (Wilson and Hilferty, 1931), in running standard deviations."""
    c = np.cbrt(max(d2, 0.0) * D / max(observed, 1))
    if calibration[0] < 2.0 or calibration[2] <= 0.0:
        return c, np.nan
    return c, (c - calibration[1]) / np.sqrt(calibration[2])


@inner
def calibrate(c, calibration):
    """Take a cube root into its running mean and variance."""
    calibration[0] += 1.0
    # A plain mean at first; later the last 2,000 rows or so, because the components change.
    gain = max(1.0 / calibration[0], 1.0 / CALIBRATION_ROWS)
    e = c - calibration[1]
    calibration[1] += gain * e
    calibration[2] = (1.0 - gain) * (calibration[2] + gain * e * e)


@inner
def posteriors(mass, height, p):
    """Posterior probabilities from mixture weights and log-densities; returns the log-density and the best."""
    best, top, total = 0, -np.inf, 0.0
    for j in range(len(mass)):
        p[j] = np.log(max(mass[j], 1e-300)) + height[j]
        total += mass[j]
        if p[j] > top:
            best, top = j, p[j]
    norm = 0.0
    for j in range(len(mass)):
        p[j] = np.exp(p[j] - top)
        norm += p[j]
    # Scaled up again, so that the whole weight of the row is learned by somebody.
    kept = 0.0
    for j in range(len(mass)):
        p[j] /= norm
        if p[j] <= SMALL:
            p[j] = 0.0
        kept += p[j]
    for j in range(len(mass)):
        p[j] /= kept
    return top + np.log(norm) - np.log(total), best


@inner
def take_mass(model, p, weight, fading):
    """Count a row for the components that learn it."""
    mass = model.components.mass
    for j in range(len(mass)):
        mass[j] = mass[j] * fading + p[j] * weight


@kernel
def to_frame(X, frame, farthest, out):
    """Rows in the coordinates of the frame, within +-farthest so that squares stay finite; returns which have gaps."""
    gaps = np.zeros(len(X), np.bool_)
    for t in range(len(X)):
        x, row, missing = X[t], out[t], 0
        for i in range(X.shape[1]):
            z = (x[i] - frame.centre[i]) * frame.inverse[i]
            # Comparisons with NaN are false: it passes through both.
            z = farthest if z > farthest else z
            row[i] = -farthest if z < -farthest else z
            missing += np.isnan(z)
        gaps[t] = missing > 0
    return gaps


@kernel
def squared_distances(rows, readout, first, last, out):
    """Squared distances of rows without gaps to the components from `first` up to `last`, into these columns of `out`.

    Two matrix products: x'psi^-1 mu and L^-1 W psi^-1 x, whose square Woodbury's identity takes off, for all components
    at once; and (x*x)'psi^-1.
    """
    n, D = rows.shape
    K, size = last - first, readout.B.shape[1]
    if n == 0:
        return
    P = rows @ readout.B[first:last].reshape(K * size, D).T
    squares = (rows * rows) @ readout.inverse_psi[first:last].T
    for j in range(K):
        offset, rank = readout.offset[first + j], readout.rank[first + j]
        for t in range(n):
            p = P[t, j * size : (j + 1) * size]
            d2 = squares[t, j] - 2.0 * p[0] + offset[0]
            for k in range(1, 1 + rank):
                d2 -= (p[k] - offset[k]) ** 2
            out[t, first + j] = max(d2, 0.0)


@kernel
def learn_block(chunk, start, model, readout, rule):
    """Learn rows without gaps from `start` on, with the folds that fall due, until the room is full.

    Returns the next row. A block of rows is scored by one product; after a fold only its component scores the rest of
    the block anew.
    """
    c, waiting = model.components, model.waiting
    n, K, at = len(chunk.rows), len(c.n), start
    distance = np.empty((min(CHUNK, n - start), K))
    while at < n:
        # With one component the rows up to its next fold: none is scored twice.
        size = max(1, quota(c.n[0], rule.quota) - waiting.size[0]) if K == 1 else CHUNK
        first, stop = at, min(n, at + min(size, CHUNK))
        squared_distances(chunk.rows[first:stop], readout, 0, K, distance)
        while at < stop:
            at = walk(chunk, at, stop, distance[at - first :], model, readout.log_det, rule)
            for j in range(K):
                if 0 < waiting.size[j] >= quota(c.n[j], rule.quota):
                    fold(c, waiting, j, rule.fading)
                    refresh(c, j, rule.prior_noise, readout)
                    if at < stop:
                        squared_distances(chunk.rows[at:stop], readout, j, j + 1, distance[at - first :])
            if 0 < len(model.room.weights) == model.room.size[0]:
                return at
    return at


@kernel
def walk(chunk, start, stop, distance, model, log_det, rule):
    """Let rows without gaps, from `start` up to `stop`, wait for their components until a fold is due or the room full.

    `distance` are the squared distances from row `start` on, (n, K). Returns the next row.
    """
    D = chunk.rows.shape[1]
    K = len(log_det)
    height, p = np.empty(K), np.empty(K)
    waiting, room = model.waiting, model.room
    for t in range(start, stop):
        for j in range(K):
            height[j] = -0.5 * (distance[t - start, j] + log_det[j] + D * LOG_2PI)
        chunk.log_density[t], best = posteriors(model.components.mass, height, p)
        c, chunk.z[t] = strangeness(distance[t - start, best], D, D, model.calibration)
        strange = chunk.z[t] > rule.novelty and model.calibration[0] >= rule.calibrated
        # A row in the room is not learned and does not calibrate: a wave of novelties would become the usual.
        if strange and len(room.weights) > 0:
            room.rows[room.size[0]] = chunk.rows[t]
            room.weights[room.size[0]] = chunk.weights[t]
            room.size[0] += 1
        else:
            calibrate(c, model.calibration)
            take_mass(model, p, chunk.weights[t], rule.fading)
            for j in range(K):
                if p[j] > 0.0:
                    waiting.rows[j, waiting.size[j]] = chunk.rows[t]
                    waiting.weights[j, waiting.size[j]] = p[j] * chunk.weights[t]
                    waiting.size[j] += 1
        if is_due(model, rule):
            return t + 1
    return stop


@kernel
def distance_with_gaps(x, c, readout, j, L):
    """Squared distance and log-determinant of the observed cells of a row; L becomes the factor of I + W_o'W_o / psi_o.

    Returns also z = L^-T L^-1 W_o'(x_o - mu_o) / psi_o, the expected latent variables.
    """
    r = readout.rank[j]
    roots = np.sqrt(readout.loading[j, :r])
    observed = np.flatnonzero(~np.isnan(x))
    W = np.empty((r, len(observed)))
    scaled = np.empty((r, len(observed)))
    e = np.empty(len(observed))
    d2, log_det = 0.0, 0.0
    for i in range(len(observed)):
        o = observed[i]
        ip = readout.inverse_psi[j, o]
        e[i] = x[o] - c.mean[j, o]
        d2 += e[i] * e[i] * ip
        log_det -= np.log(ip)
        for k in range(r):
            W[k, i] = roots[k] * c.directions[j, k, o]
            scaled[k, i] = W[k, i] * ip
    z = np.zeros(r)
    if r > 0 and len(observed) > 0:
        # Woodbury and the determinant lemma on the observed cells: r x r, whatever is missing.
        L[:r, :r] = np.linalg.cholesky(np.eye(r) + scaled @ W.T)
        b = scaled @ e
        v = np.linalg.solve(L[:r, :r], b)
        z = np.linalg.solve(L[:r, :r].T, v)
        for k in range(r):
            d2 -= v[k] * v[k]
            log_det += 2.0 * np.log(L[k, k])
    elif r > 0:
        L[:r, :r] = np.eye(r)
    return d2, log_det, z, len(observed)


@kernel
def learn_row_with_gaps(chunk, t, model, readout, rule):
    """Learn a row with gaps: filled by the conditional mean of each component, whose covariance is kept beside it."""
    x, weight = chunk.rows[t], chunk.weights[t]
    c, waiting = model.components, model.waiting
    K, Q, D = c.directions.shape
    height, p = np.empty(K), np.empty(K)
    factors, latent, distance = np.zeros((K, Q, Q)), np.zeros((K, Q)), np.empty(K)
    observed = 0
    for j in range(K):
        distance[j], log_det, z, observed = distance_with_gaps(x, c, readout, j, factors[j])
        latent[j, : len(z)] = z
        height[j] = -0.5 * (distance[j] + log_det + observed * LOG_2PI)
    chunk.log_density[t], best = posteriors(c.mass, height, p)
    root, chunk.z[t] = strangeness(distance[best], observed, D, model.calibration)
    calibrate(root, model.calibration)
    take_mass(model, p, weight, rule.fading)
    for j in range(K):
        if p[j] > 0.0:
            slot = waiting.size[j]
            waiting.weights[j, slot] = p[j] * weight
            waiting.size[j] += 1
            fill(x, latent[j], factors[j], c, readout, j, waiting)


@kernel
def fill(x, z, L, c, readout, j, waiting):
    """Put a row with its gaps filled into the last place of a waiting list, and its covariance beside."""
    r, slot = readout.rank[j], waiting.size[j] - 1
    row, w = waiting.rows[j, slot], waiting.weights[j, slot]
    gaps = np.flatnonzero(np.isnan(x))
    row[:] = x
    grow = 1.0 + 1.0 / max(c.n[j], 1e-300)  # the read-out is predictive; what is learned must not be
    W = np.empty((r, len(gaps)))
    U = np.empty((c.used[j], len(gaps)))
    for i in range(len(gaps)):
        g = gaps[i]
        row[g] = c.mean[j, g]
        for k in range(r):
            W[k, i] = np.sqrt(readout.loading[j, k]) * c.directions[j, k, g]
            row[g] += W[k, i] * z[k]
        for k in range(c.used[j]):
            U[k, i] = c.directions[j, k, g]
        waiting.variance[j, g] += w / grow / readout.inverse_psi[j, g]
    if r > 0:
        # Conditional covariance of the gaps: T'T + psi, kept as its diagonal and as its part along the directions.
        T = np.linalg.solve(L[:r, :r], W)
        for i in range(len(gaps)):
            waiting.variance[j, gaps[i]] += w / grow * np.sum(T[:, i] ** 2)
        if c.used[j] > 0:
            P = U @ T.T
            waiting.along[j, : c.used[j], : c.used[j]] += w / grow * (P @ P.T)


@kernel
def offer_rows(rows, weights, reservoir, rate, seed):
    """Offer rows to the priority sample, in place; each row weighs exp(rate) times as much as the one before it."""
    for t in range(len(rows)):
        offer_row(rows[t], weights[t], reservoir, rate, seed)


@kernel
def sample_rows(X, weights, frame, reservoir, rate, seed, farthest):
    """`offer_rows` of rows in the units of the data: only those that are taken are put into the frame."""
    for t in range(len(X)):
        slot = slot_for_row(weights[t], reservoir, rate, seed)
        if slot >= 0:
            for i in range(X.shape[1]):
                z = (X[t, i] - frame.centre[i]) * frame.inverse[i]
                reservoir.rows[slot, i] = min(max(z, -farthest), farthest)
