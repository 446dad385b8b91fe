"""Log-densities of rows under components that go on learning."""

from typing import NamedTuple

import numpy as np

from everlearn.linalg.arrays import empty_vector
from everlearn.linalg.compile import kernel
from everlearn.linalg.dense import copy_matrix, copy_vector, total
from everlearn.linalg.handle import hold
from everlearn.mixture.kernels.parts import Background, Components, Frame, Shape
from everlearn.mixture.kernels.rows import NEGLIGIBLE, background_joint, limited, refresh, squared_distance


class Scorer(NamedTuple):
    """Components and their copy that is refreshed when asked."""

    components: Components
    answers: Components  # masses tell which of them are those of `components` still
    shape: Shape
    background: Background
    frame: Frame


@kernel
def unpack(scorer):
    """A handle on a scorer, for as many questions as there will be."""
    return hold(scorer)


@kernel
def renew(components, answers, shape):
    """Refresh copies of the components that have learned since the last time: few, if questions come often."""
    c, a = components, answers
    for k in range(c.size[0]):
        # Every row that a component learns changes its mass: an equal one means that the copy is up to date.
        if k >= a.size[0] or a.mass[k] != c.mass[k]:
            a.mass[k], a.counts[k], a.fresh[k] = c.mass[k], c.counts[k], c.fresh[k]
            copy_vector(c.means[k], a.means[k])
            copy_vector(c.shift[k], a.shift[k])
            copy_matrix(c.scatter[k], a.scatter[k])
            refresh(k, a, shape)
    a.size[0], a.total[0] = c.size[0], c.total[0]


@kernel
def log_densities(X, handle, out):
    """Log-density of each row into `out`, NaN where it has gaps; returns how many have."""
    components, answers, shape, background, frame = handle.content
    renew(components, answers, shape)
    K, D = answers.size[0], X.shape[1]
    x, e, joint = empty_vector(D), empty_vector(D), empty_vector(K)
    constant = np.log(total(answers.mass, K) + background.rows) + total(frame.log_scale, D)
    gaps = 0
    for t in range(X.shape[0]):
        for i in range(D):
            x[i] = limited((X[t, i] - frame.centre[i]) * frame.inverse[i])
        if np.isnan(total(x, D)):
            out[t] = np.nan
            gaps += 1
            continue
        behind = background_joint(x, background, e)
        top = behind
        for k in range(K):
            # A distance beyond this puts the component NEGLIGIBLE nats below the best so far.
            limit = 2.0 * (answers.heights[k] - top + NEGLIGIBLE)
            d2 = squared_distance(answers.factors[k], answers.means[k], x, e, limit) if limit > 0.0 else 0.0
            joint[k] = answers.heights[k] - 0.5 * d2 if limit > 0.0 else -np.inf
            top = max(top, joint[k])
        s = np.exp(behind - top)
        for k in range(K):
            v = joint[k] - top
            s += np.exp(v) if v > -NEGLIGIBLE else 0.0
        out[t] = top + np.log(s) - constant
    return gaps
