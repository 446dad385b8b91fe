"""Folding rows into the sketch of a component: one symmetric eigenproblem for some rows."""

import numpy as np

from everlearn.linalg.compile import kernel
from everlearn.linalg.eigen import eigen

# Directions with less than this share of the largest eigenvalue are rounding errors of the Gram matrix.
LEAST_EIGENVALUE = 1e-12


# Up to so many rows our own eigenproblem is faster than LAPACK's: 33 rows in 70 us against 190 to 300.
OWN_EIGENPROBLEM = 96


@kernel
def descending_eigenvectors(G):
    """Eigenvalues of a symmetric matrix, descending, and its eigenvectors, as rows."""
    if len(G) <= OWN_EIGENPROBLEM:
        return eigen(G)
    value, V = np.linalg.eigh(G)
    return value[::-1].copy(), np.ascontiguousarray(V[:, ::-1].T)


@kernel
def directions_of(Z, G, most, directions, scatter):
    """`top_directions` of Z, of which the Gram matrix G = Z Z' is known."""
    directions[:] = 0.0
    scatter[:] = 0.0
    # Z has few rows and many columns: eigenvectors V of Z Z' give those of Z'Z as diag(value)^-1/2 V'Z.
    value, V = descending_eigenvectors(G)
    size = len(value)
    if not value[0] > 0.0:
        return 0
    k = 0
    while k < min(most, size) and value[k] > LEAST_EIGENVALUE * value[0]:
        k += 1
    mix = np.empty((k, size))
    for i in range(k):
        scatter[i] = value[i]
        # Of both signs of an eigenvector the one with a positive sum: draws for gaps depend on it, and every solver
        # would have its own.
        mix[i] = V[i, :size] * (np.copysign(1.0, V[i, :size].sum()) / np.sqrt(value[i]))
    directions[:k] = mix @ Z
    return k


@kernel
def top_directions(Z, most, directions, scatter):
    """Principal directions of Z'Z and the energy along them, at most `most`; returns their number."""
    return directions_of(Z, Z @ Z.T, most, directions, scatter)


@kernel
def take_gaps(c, waiting, j):
    """Add the conditional covariance of filled gaps to the sketch of component j."""
    used = c.used[j]
    total = waiting.variance[j].sum()
    if used > 0:
        # The conditional covariance within the span of the directions turns them;
        # what lies off it shows in the trace only.
        S = waiting.along[j, :used, :used].copy()
        for k in range(used):
            S[k, k] += c.scatter[j, k]
        value, V = np.linalg.eigh(S)
        turned = np.ascontiguousarray(V[:, ::-1].T) @ c.directions[j, :used]
        c.directions[j, :used] = turned
        for k in range(used):
            c.scatter[j, k] = max(value[used - 1 - k], 0.0)
    c.trace[j] += total
    c.diagonal[j] += waiting.variance[j]


@kernel
def hold_out(c, waiting, j):
    """Energies that waiting rows with filled gaps have along directions that have not seen them, beside those expected.

    Gaps turn the directions before the fold, so that its Gram matrix does not have these energies.
    """
    m, used, n = waiting.size[j], c.used[j], c.n[j]
    if n + c.borrowed[j] < 3.0:
        return
    w = waiting.weights[j, :m]
    E = waiting.rows[j, :m] - c.mean[j]
    total = waiting.variance[j].sum()
    for i in range(m):
        total += w[i] * np.sum(E[i] * E[i])
    energy = np.zeros(used)
    if used > 0:
        P = E @ c.directions[j, :used].T
        for k in range(used):
            energy[k] = waiting.along[j, k, k]
            for i in range(m):
                energy[k] += w[i] * P[i, k] ** 2
    take_energies(c, j, w.sum(), energy, total)


@kernel
def hold_out_gram(c, j, R, G, first, scale, step):
    """`hold_out` of rows without gaps from the Gram matrix of their fold, in which they begin at row `first`.

    y - mu = (y - ybar) + (ybar - mu), both rows of Z, which were scaled by `scale` and, the last one, by `step`.
    """
    used, last = c.used[j], G.shape[0] - 1
    # Where all before was forgotten, the step between both means counts for nothing and is not in G.
    if c.n[j] + c.borrowed[j] < 3.0 or not step > 0.0:
        return
    total = 0.0
    for i in range(first, last):
        w = scale[i] / step
        total += G[i, i] + 2.0 * w * G[i, last] + w * w * G[last, last]
    energy = np.zeros(used)
    for k in range(used):
        for i in range(first, last):
            energy[k] += ((G[i, k] + scale[i] / step * G[last, k]) / max(scale[k], 1e-300)) ** 2
    take_energies(c, j, R, energy, total)


@kernel
def take_energies(c, j, R, energy, total):
    """Add the held-out energy along each direction, and that off all of them, of rows of weight R."""
    n = c.n[j]
    N = n + c.borrowed[j]
    # About a mean of n rows a new row has 1 + 1/n times the variance; `fresh` takes that off.
    keep, fresh = (n / (n + R)) ** 2, 1.0 / (1.0 + 1.0 / n)
    c.held[j] *= keep
    c.expected[j] *= keep
    along = 0.0
    for k in range(len(energy)):
        along += energy[k]
        c.held[j, k] += fresh * energy[k]
        c.expected[j, k] += R * c.scatter[j, k] / (N - 1.0)
    c.residual[j] = c.residual[j] * keep + fresh * max(total - along, 0.0)
    c.held_rows[j] = c.held_rows[j] * keep + R


@kernel
def fold(c, waiting, j, fading):
    """Take the waiting rows of component j into its sketch: exact up to the cut to the directions that are kept.

    The rows of Z are the scaled directions, the rows about their own mean, and the step between both means: Z'Z is
    the scatter about the common mean (Chan, Golub and LeVeque, 1983).
    """
    m = waiting.size[j]
    if m == 0:
        return
    w = waiting.weights[j, :m]
    Y = waiting.rows[j, :m]
    D, R = Y.shape[1], w.sum()
    f = fading**R
    gaps = waiting.variance[j].any()
    if gaps:
        # First of all: once they are folded in, the directions have seen these rows.
        hold_out(c, waiting, j)
        fade(c, j, f)
        take_gaps(c, waiting, j)
        f = 1.0
    used, n = c.used[j], c.n[j] * f
    scale, step = np.empty(used + m), np.sqrt(n * R / (n + R))
    Z = np.zeros((used + m + 1, D))
    mean = Z[used + m]
    for i in range(m):
        share = w[i] / R
        for d in range(D):
            mean[d] += share * Y[i, d]
    for k in range(used):
        scale[k] = root = np.sqrt(c.scatter[j, k] * f)
        for d in range(D):
            Z[k, d] = root * c.directions[j, k, d]
    for d in range(D):
        c.diagonal[j, d] *= f
    for i in range(m):
        scale[used + i] = root = np.sqrt(w[i])
        for d in range(D):
            e = root * (Y[i, d] - mean[d])
            Z[used + i, d] = e
            c.diagonal[j, d] += e * e
    # The step between both means, weighted so that Z'Z is the scatter about the common one.
    for d in range(D):
        delta = mean[d] - c.mean[j, d]
        Z[used + m, d] = step * delta
        c.mean[j, d] += R / (n + R) * delta
        c.diagonal[j, d] += (step * delta) ** 2
    G = gram(Z, used)
    if not gaps:
        hold_out_gram(c, j, R, G, used, scale, step)
    c.n[j] = n + R
    c.trace[j] *= f
    for k in range(used, used + m + 1):
        c.trace[j] += G[k, k]
    # One direction at least is left for the noise.
    most = min(c.scatter.shape[1], D - 1)
    c.used[j] = directions_of(Z, G, most, c.directions[j], c.scatter[j])
    waiting.size[j] = 0
    if gaps:
        waiting.along[j] = 0.0
        waiting.variance[j] = 0.0


@kernel
def gram(Z, used):
    """Z Z', of which the part right of the first `used` rows is that below their columns: a quarter less work."""
    size = len(Z)
    G = np.empty((size, size))
    G[used:] = Z[used:] @ Z.T
    if used > 0:
        G[:used, :used] = Z[:used] @ Z[:used].T
        G[:used, used:] = G[used:, :used].T
    return G


@kernel
def fade(c, j, f):
    """Let what component j has learned count f times."""
    c.n[j] *= f
    c.scatter[j] *= f
    c.trace[j] *= f
    c.diagonal[j] *= f
