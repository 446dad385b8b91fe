"""Learning rows one by one with frozen factors, and the priority sample of rows."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.compile import inner, kernel
from everlearn.linalg.handle import Handle
from everlearn.mixture.kernels.covariance import LOG_2PI, covariance_factor, invert_factor, posterior_scatter
from everlearn.mixture.kernels.missing import fill_row
from everlearn.mixture.kernels.parts import Background, Components, Frame, Reservoir, Settings, Shape
from everlearn.mixture.kernels.projection import SHARE, draw_gaps, learn_projection
from everlearn.mixture.kernels.uniforms import normal_numbers, uniform

# A cell that lies more spreads than this from its centre counts as lying so far: squares of it stay finite.
FARTHEST = 1e15
# Responsibilities below this change no component: what they would add is lost in rounding after few rows.
SMALL = 1e-5
# A component this many nats below the best takes no part.
NEGLIGIBLE = 30.0
LOG_TWO = np.log(2.0)


class Task(NamedTuple):
    """What rows are learned by."""

    components: Components
    shape: Shape
    background: Background
    frame: Frame
    reservoir: Reservoir
    rule: Settings


@kernel
def unpack(task):
    """A handle on a task, for as many calls of `learn_rows` as there will be."""
    return Handle(task)


@kernel
def refresh(k, components, shape):
    """Take what component k gathered since its last refresh into its mean, scatter, factor and height, in place."""
    c = components
    D = c.means.shape[1]
    c.counts[k] += c.fresh[k]
    c.fresh[k] = 0.0
    count = c.counts[k]
    B = np.empty((D, D))
    for i in range(D):
        c.shift[k, i] /= count
        c.means[k, i] += c.shift[k, i]
    for i in range(D):
        for j in range(i + 1):
            c.scatter[k, i, j] -= count * c.shift[k, i] * c.shift[k, j]
    c.shift[k] = 0.0
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
        c.progress[k, :2] *= factor


@inner
def background_joint(x, background, e):
    """Log joint of the broad Gaussian behind the components: half a row of N(mean, 4 covariance) of all rows."""
    d2 = squared_distance(background.factor, background.centre, x, e, np.inf)
    return np.log(background.rows) + background.height - x.shape[0] * LOG_TWO - 0.125 * d2


@inner
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
def create(K, weight, x, components, shape):
    """Make component K of one row."""
    c = components
    c.mass[K], c.counts[K], c.fresh[K] = weight, 0.0, weight
    c.means[K] = x
    c.shift[K] = 0.0
    c.scatter[K] = 0.0
    c.progress[K] = 0.0
    refresh(K, c, shape)


@kernel
def learn_rows(X, weights, handle, out):
    """Learn rows of the data in their order and offer them to the reservoir, all in place; `handle` is of a `Task`.

    The posterior probabilities of a row come from factors that are frozen until their component has grown by a share
    `rule.growth`: a row costs O(K D^2 / 2), and O(D^3) only 10 ln(n) times a component. A row beyond the
    threshold of all components opens one; where there is no room, the broad Gaussian of all rows takes its
    share, so that an outlier does not spoil the nearest component. Returns the number of rows learned: with
    `rule.stops`, learning ends with the row that has taken the last room.
    """
    c, shape, background, frame, reservoir, rule = handle.content
    K, D = c.size[0], X.shape[1]
    room = c.mass.shape[0]
    x, e, joint = np.empty(D), np.empty(D), np.empty(room + 1)
    projects, drawn, normals = c.along.shape[1] > 0, np.empty(D), np.empty(D)
    # Room for what is expected in the gaps; in many columns it is large.
    fillable = room if np.isnan(np.sum(X)) else 1
    filled, rest = np.empty((fillable, D)), np.zeros((fillable, D, D))
    total = c.total[0]
    best = 0
    for t in range(X.shape[0]):
        observed = 0
        for i in range(D):
            x[i] = limited((X[t, i] - frame.centre[i]) * frame.inverse[i])
            observed += not np.isnan(x[i])
        out.distance[t], out.log_density[t] = np.nan, np.nan
        w = weights[t]
        if observed == 0 or w <= 0.0:
            continue
        if len(reservoir.keys) > 0:
            offer_row(x, w, reservoir, rule)
        if rule.fading.rate > 0.0:
            c.rows[0] += 1
            if c.rows[0] % rule.fading.every == 0:
                fade(K, rule.fading.factor, c)
                total *= rule.fading.factor
        gaps = observed < D
        threshold = rule.thresholds[observed]
        top, nearest = -np.inf, np.inf
        for step in range(K):
            # The component of the last row comes first: a good start makes the early exit work for the others.
            k = best if step == 0 else (step - 1 if step <= best else step)
            if gaps:
                if c.fresh[k] > 0.0:
                    refresh(k, c, shape)
                joint[k], d2 = fill_row(x, k, c, shape, filled[k], rest[k])
            else:
                limit = max(threshold, 2.0 * (c.heights[k] - top + NEGLIGIBLE))
                d2 = squared_distance(c.factors[k], c.means[k], x, e, limit)
                joint[k] = c.heights[k] - 0.5 * d2
            nearest = min(nearest, d2)
            top = max(top, joint[k])
        out.distance[t] = nearest
        last = K
        if nearest > threshold and not gaps:
            joint[K] = background_joint(x, background, e)
            top = max(top, joint[K])
            last = K + 1
        s, high = 0.0, -np.inf
        for k in range(last):
            if k < K and joint[k] > high:
                high, best = joint[k], k
            v = joint[k] - top
            joint[k] = np.exp(v) if v > -NEGLIGIBLE else 0.0
            s += joint[k]
        out.log_density[t] = top + np.log(s) - np.log(total)
        total += w
        if last > K and K < room:
            create(K, w, x, c, shape)
            best = K
            K += 1
            if K == room and rule.stops:
                c.size[0], c.total[0] = K, total
                return t + 1
            continue
        for k in range(K):
            r = w * joint[k] / s
            if r > SMALL * w:
                add_to(k, r, filled[k] if gaps else x, rest[k if gaps else 0], gaps, c)
                if projects and r > SHARE * w:
                    normal_numbers(rule.seed, total, normals)
                    if gaps:
                        draw_gaps(x, filled[k], rest[k], normals, drawn)
                    learn_projection(k, r, drawn if gaps else x, c, e, normals)
                if c.fresh[k] > rule.growth * c.counts[k] + 0.5:
                    refresh(k, c, shape)
    c.size[0] = K
    c.total[0] = total
    return X.shape[0]


@kernel
def background_of(Z, background):
    """`background_joint` of every row."""
    out, e = np.empty(len(Z)), np.empty(Z.shape[1])
    for t in range(len(Z)):
        out[t] = background_joint(Z[t], background, e)
    return out


@kernel
def offer_row(x, weight, reservoir, rule):
    """Offer a row, in the coordinates of the frame, to the priority sample, in place.

    Under forgetting a row weighs more than the one before it, instead of the old ones losing weight: priorities never
    change, and the sample is biased exponentially.
    """
    room, size = reservoir.rows.shape[0], reservoir.size[0]
    log_weight = np.log(weight) + rule.fading.rate * reservoir.offered[0]
    key = log_weight - np.log(uniform(rule.seed, reservoir.offered[0]))
    reservoir.offered[0] += 1
    slot = size
    if size < room:
        reservoir.size[0] = size + 1
    else:
        # Most rows of a long stream end here: no kept priority is below the level.
        if key <= reservoir.level[0]:
            return
        slot = np.argmin(reservoir.keys)
        reservoir.level[0] = min(key, reservoir.keys[slot])
        if key <= reservoir.keys[slot]:
            return
    for i in range(len(x)):
        reservoir.rows[slot, i] = x[i]
    reservoir.keys[slot] = key
    reservoir.log_weights[slot] = log_weight


@kernel
def sample_rows(X, weights, frame, reservoir, rule):
    """Offer rows of the data to the priority sample, in place."""
    x = np.empty(X.shape[1])
    for t in range(X.shape[0]):
        for i in range(len(x)):
            x[i] = limited((X[t, i] - frame.centre[i]) * frame.inverse[i])
        offer_row(x, weights[t], reservoir, rule)
