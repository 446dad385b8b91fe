"""Learning rows one by one with frozen factors, and the priority sample of rows."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.arrays import empty_indices, empty_matrix, empty_vector, zero_stack
from everlearn.linalg.column_scan import has_gaps
from everlearn.linalg.compile import inlined, inner, kernel
from everlearn.linalg.dense import copy_vector
from everlearn.linalg.handle import hold, lent, machine_code
from everlearn.linalg.priority_sample import offer_row
from everlearn.linalg.simd import larger, minus, put, smaller, spread, take, times
from everlearn.linalg.uniforms import normal_numbers
from everlearn.mixture.kernels.covariance import LOG_2PI, covariance_factor, invert_factor, posterior_scatter
from everlearn.mixture.kernels.distances import LANES, distances_of_eight
from everlearn.mixture.kernels.missing import fill_row
from everlearn.mixture.kernels.parts import Background, Components, Frame, Reservoir, Settings, Shape
from everlearn.mixture.kernels.projection import SHARE, draw_gaps, learn_projection
from everlearn.monitoring.kernels.event_log import Watch, watch_row

# A cell that lies more spreads than this from its centre counts as lying so far: squares of it stay finite.
FARTHEST = 1e15
# Responsibilities below this change no component: what they would add is lost in rounding after few rows.
SMALL = 1e-5
# A component this many nats below the best takes no part.
NEGLIGIBLE = 30.0
LOG_TWO = np.log(2.0)


class Block(NamedTuple):
    """Eight rows that are learned together: between two refreshes factors are frozen, and distances do not change."""

    X: np.ndarray  # (D, 8), in the coordinates of the frame
    E: np.ndarray  # (D, 8), room for deviations
    distances: np.ndarray  # (C, 8)
    observed: np.ndarray  # (8,), columns without a gap
    x: np.ndarray  # (D,), the row that is learned
    e: np.ndarray  # (D,), room for its deviation
    drawn: np.ndarray  # (D,), the row with draws in its gaps
    normals: np.ndarray  # (D,)
    joints: np.ndarray  # (C + 1,), its log joints, then its responsibilities
    filled: np.ndarray  # (C, D), the row with what is expected in its gaps
    rest: np.ndarray  # (C, D, D), and their covariance


class Task(NamedTuple):
    """What rows are learned by."""

    components: Components
    shape: Shape
    background: Background
    frame: Frame
    reservoir: Reservoir
    rule: Settings
    along: np.ndarray | None  # that of the components, or None where rows are kept: projections are not compiled then
    watch: Watch  # log of the rows that are learned
    block: Block  # room for rows without gaps


@kernel
def unpack(task):
    """A handle on a task, for as many calls of `learn_rows` as there will be."""
    return hold(task)


@kernel
def refresh(k, components, shape):
    """Take what component k gathered since its last refresh into its mean, scatter, factor and height, in place."""
    c = components
    D = c.means.shape[1]
    c.counts[k] += c.fresh[k]
    c.fresh[k] = 0.0
    count = c.counts[k]
    B = empty_matrix(D, D)
    for i in range(D):
        c.shift[k, i] /= count
        c.means[k, i] += c.shift[k, i]
    # Deviations were gathered about the frozen mean: count d d' takes the scatter to the new one.
    for i in range(D):
        for j in range(i + 1):
            c.scatter[k, i, j] -= count * c.shift[k, i] * c.shift[k, j]
    c.shift[k] = 0.0
    # Sigma = scale B; the factor and the height are frozen from here until the component has grown again.
    posterior_scatter(count, c.scatter[k], shape, B)
    scale = covariance_factor(count, shape.tau)
    log_det = invert_factor(B, c.factors[k])
    for i in range(D):
        for j in range(i + 1):
            c.factors[k, i, j] /= np.sqrt(scale)
    c.heights[k] = np.log(c.mass[k]) - 0.5 * (D * (LOG_2PI + np.log(scale)) + log_det)


@kernel
def refresh_all(components, shape):
    """`refresh` of every component, in place."""
    for k in range(components.size[0]):
        refresh(k, components, shape)


@inner
def squared_distance(factor, mean, x, e, limit):
    """|factor (x - mean)|^2, or what has added up when it exceeds `limit`; e is room for the deviation."""
    D = x.shape[0]
    for i in range(D):
        e[i] = x[i] - mean[i]
    total = 0.0
    for i in range(D):
        row, y = factor[i], 0.0
        for j in range(i + 1):
            y += row[j] * e[j]
        total += y * y
        # Squares only add up: what is beyond the limit stays beyond it.
        if total > limit:
            break
    return total


@inner
def limited(z):
    """A coordinate within FARTHEST; NaN stays."""
    if np.isnan(z):
        return z
    return min(max(z, -FARTHEST), FARTHEST)


@kernel
def fade(K, factor, components):
    """Multiply by `factor` what the first K components know, in place; `total` is left to the caller."""
    c, D = components, components.means.shape[1]
    for k in range(K):
        c.mass[k] *= factor
        c.counts[k] *= factor
        c.fresh[k] *= factor
        c.heights[k] += np.log(factor)
        for i in range(D):
            c.shift[k, i] *= factor
            for j in range(i + 1):
                c.scatter[k, i, j] *= factor
        for q in range(c.along.shape[1]):
            c.along[k, q, 0] *= factor
            c.along[k, q, 2] *= factor
        c.progress[k, 0] *= factor
        c.progress[k, 1] *= factor


@inlined
def background_joint(x, background, e):
    """Log joint of the broad Gaussian behind the components: half a row of N(mean, 4 covariance) of all rows."""
    d2 = squared_distance(background.factor, background.centre, x, e, np.inf)
    # N(mean, 4 C): ln|4 C| = ln|C| + 2 D ln 2, and a quarter of the distance.
    return np.log(background.rows) + background.height - x.shape[0] * LOG_TWO - 0.125 * d2


@inlined
def add_to(k, r, x, rest, gaps, components):
    """Add a row of weight r to component k; `rest` is the covariance of its gaps."""
    c = components
    c.mass[k] += r
    c.fresh[k] += r
    D = x.shape[0]
    mean, shift, scatter = c.means[k], c.shift[k], c.scatter[k]
    for i in range(D):
        e = r * (x[i] - mean[i])
        shift[i] += e
        row = scatter[i]
        for j in range(i + 1):
            row[j] += e * (x[j] - mean[j])
    if gaps:
        for i in range(D):
            for j in range(i + 1):
                scatter[i, j] += r * rest[i, j]


@kernel
def create(K, weight, x, components):
    """Make component K of one row; it must be refreshed."""
    c = components
    # The row counts as gathered; the refresh that follows makes it the count.
    c.mass[K], c.counts[K], c.fresh[K] = weight, 0.0, weight
    copy_vector(x, c.means[K])
    c.shift[K] = 0.0
    c.scatter[K] = 0.0
    c.progress[K] = 0.0


@kernel
def renew_distances(k, components, shape, block):
    """`refresh` component k in the midst of eight rows, whose distances to it change."""
    refresh(k, components, shape)
    distances_of_eight(components.means, components.factors, k, block)


@kernel
def block_for(C, D, gaps):
    """Room for eight rows; that for what is expected in gaps is large in many columns, and made if there are any."""
    G = C if gaps else 1
    return Block(
        empty_matrix(D, LANES), empty_matrix(D, LANES), empty_matrix(C, LANES), empty_indices(LANES), empty_vector(D),
        empty_vector(D), empty_vector(D), empty_vector(D), empty_vector(C + 1), empty_matrix(G, D), zero_stack(G, D, D),
    )  # fmt: skip


@inlined
def load_eight(X, first, frame, block):
    """Eight rows of the data into a block; the last row stands for those beyond the end."""
    n, D = X.shape
    for lane in range(LANES):
        row, observed = X[min(first + lane, n - 1)], 0
        for i in range(D):
            observed += not np.isnan(row[i])
            block.X[i, lane] = row[i]
        block.observed[lane] = observed
    low, high = spread(-FARTHEST), spread(FARTHEST)
    for i in range(D):
        z = times(minus(take(block.X, i * LANES), 1.0, spread(frame.centre[i])), frame.inverse[i])
        # Of a comparison with NaN the second one is left, which is z.
        put(block.X, i * LANES, larger(low, smaller(high, z)))


@kernel
def learn_rows(X, weights, handle, out):
    """Learn rows of the data in their order, offer them to the reservoir and watch them, all in place.

    `handle` is of a `Task`, and `out` takes the log-density of each row before it was learned and its squared distance
    to the nearest component, (2, n). One call does it all, and has few arguments: for a single row, a call costs more
    than the arithmetic.

    The posterior probabilities of a row come from factors that are frozen until their component has grown by a share
    `rule.growth`: a row costs O(K D^2 / 2), and O(D^3) only 10 ln(n) times a component. A row beyond the
    threshold of all components opens one; where there is no room, the broad Gaussian of all rows takes its
    share, so that an outlier does not spoil the nearest component. Returns the number of rows learned: with
    `rule.stops`, learning ends with the row that has taken the last room.
    """
    if has_gaps(X):
        return learn_in(block_for(n_places(handle), X.shape[1], True), X, weights, handle, out)
    return learn_in_own_block(X, weights, handle, out)


@inner
def n_places(handle):
    """Components that a task has room for."""
    return lent(handle).components.mass.shape[0]


@inner
def learn_in_own_block(X, weights, handle, out):
    """`learn_rows` in the block of the task."""
    return learn_in(lent(handle).block, X, weights, handle, out)


@inner
def learn_in(block, X, weights, handle, out):
    """`learn_rows` in a block."""
    c, shape, background, frame, reservoir, rule, along, watch, _ = lent(handle)
    log_scale = frame.log_scale.sum()
    for first in range(0, X.shape[0], LANES):
        load_eight(X, first, frame, block)
        for k in range(c.size[0]):
            distances_of_eight(c.means, c.factors, k, block)
        for t in range(first, min(first + LANES, X.shape[0])):
            lane, w = t - first, weights[t]
            out[0, t], out[1, t] = np.nan, np.nan
            observed = block.observed[lane]
            if observed == 0 or w <= 0.0:
                if watch.counts[0] >= 0:
                    watch.counts[0] += 1
                continue
            for i in range(X.shape[1]):
                block.x[i] = block.X[i, lane]
            # Offered before anything else: the sample takes every row, also one that opens a component.
            if len(reservoir.keys) > 0:
                offer_row(block.x, w, reservoir, rule.fading.rate, rule.seed)
            if rule.fading.rate > 0.0:
                fade_in_steps(c, rule.fading)
            gaps = observed < X.shape[1]
            if gaps:
                fill_gaps(lane, c, shape, block)
            threshold = rule.thresholds[observed]
            distance = join(lane, c, gaps, block)
            beyond = distance > threshold and not gaps
            block.joints[c.size[0]] = background_joint(block.x, background, block.e) if beyond else -np.inf
            in_frame = share(c.size[0] + 1, block.joints) - np.log(c.total[0])
            log_density = in_frame - (log_scale_of(X[t], frame) if gaps else log_scale)
            out[0, t], out[1, t] = log_density, distance
            if watch.counts[0] >= 0:
                watch_next(observed, log_density, distance, watch)
            # After the density, which is that of before the row.
            c.total[0] += w
            if beyond and c.size[0] < c.mass.shape[0]:
                k = c.size[0]
                create(k, w, block.x, c)
                renew_distances(k, c, shape, block)
                c.size[0] = k + 1
                if k + 1 == c.mass.shape[0] and rule.stops:
                    return t + 1
            else:
                spread_row(w, gaps, c, shape, rule, along, block)
    return X.shape[0]


def learn_contiguous(handle):
    """`learn_rows` for this kind of handle, and C-contiguous arrays of float64, as machine code.

    It does not look at its arguments: for a single row of eight columns, numba's look takes a quarter of the call.
    """
    rows, weights = np.empty((1, 1)), np.empty(1)
    return machine_code(learn_rows, rows, weights, handle, rows)


@inlined
def log_scale_of(x, frame):
    """What a log-density in the coordinates of the frame is larger by than that in the units of the data."""
    total = 0.0
    for i in range(x.shape[0]):
        total += 0.0 if np.isnan(x[i]) else frame.log_scale[i]
    return total


@inner
def watch_next(observed, log_density, distance, watch):
    """Watch the row that is being learned, and count it."""
    rules, log, counts = watch
    counts[1] = watch_row(counts[0], observed, log_density, distance, rules, log, counts[1])
    counts[0] += 1


@inlined
def fade_in_steps(components, fading):
    """Count a row; every so many rows, all that components know fades."""
    c = components
    c.rows[0] += 1
    if c.rows[0] % fading.every == 0:
        fade(c.size[0], fading.factor, c)
        c.total[0] *= fading.factor


@kernel
def fill_gaps(lane, components, shape, block):
    """Log joints of the observed part of a row, its squared distances, and what is expected in its gaps."""
    c = components
    for k in range(c.size[0]):
        # Conditional moments need the covariance itself, not the frozen factor.
        if c.fresh[k] > 0.0:
            renew_distances(k, c, shape, block)
        block.joints[k], block.distances[k, lane] = fill_row(block.x, k, c, shape, block.filled[k], block.rest[k])


@inlined
def join(lane, components, gaps, block):
    """Log joints of a row, unless `fill_gaps` has left them, and its least squared distance."""
    nearest = np.inf
    for k in range(components.size[0]):
        nearest = min(nearest, block.distances[k, lane])
        if not gaps:
            block.joints[k] = components.heights[k] - 0.5 * block.distances[k, lane]
    return nearest


@inlined
def share(n, joints):
    """Turn log joints into probabilities that sum to one, in place; returns the logarithm of their sum."""
    top = -np.inf
    for k in range(n):
        top = max(top, joints[k])
    s = 0.0
    # The exponential stands where it cannot be taken before the comparison: LLVM would take all of them.
    for k in range(n):
        v = joints[k] - top
        joints[k] = 0.0
        if v > -NEGLIGIBLE:
            joints[k] = 1.0 if v == 0.0 else np.exp(v)
            s += joints[k]
    # Where groups are apart, most rows belong to one component alone.
    if s == 1.0:
        return top
    for k in range(n):
        joints[k] /= s
    return top + np.log(s)


@inlined
def spread_row(w, gaps, components, shape, rule, along, block):
    """Add a row to its components, and refresh those that have grown."""
    c = components
    for k in range(c.size[0]):
        r = w * block.joints[k]
        if r > SMALL * w:
            add_to(k, r, block.filled[k] if gaps else block.x, block.rest[k if gaps else 0], gaps, c)
            if r > SHARE * w:
                project_row(along, k, r, gaps, c, rule.seed, block)
            if c.fresh[k] > rule.growth * c.counts[k] + 0.5:
                renew_distances(k, c, shape, block)


@kernel
def project_row(along, k, r, gaps, components, seed, block):
    """Let the projections of component k learn a row, with draws in its gaps; nothing where there are none."""
    if along is None:
        return
    normal_numbers(seed, components.total[0], block.normals)
    if gaps:
        draw_gaps(block.x, block.filled[k], block.rest[k], block.normals, block.drawn)
    learn_projection(k, r, block.drawn if gaps else block.x, components, block.e, block.normals)


@kernel
def sample_rows(X, weights, frame, reservoir, rule):
    """Offer rows of the data to the priority sample, in place."""
    x = empty_vector(X.shape[1])
    for t in range(X.shape[0]):
        for i in range(len(x)):
            x[i] = limited((X[t, i] - frame.centre[i]) * frame.inverse[i])
        offer_row(x, weights[t], reservoir, rule.fading.rate, rule.seed)
