"""Eigenvalues and noise of a component from its sketch, right also where there are fewer rows than columns."""

import numpy as np

from everlearn.linalg.compile import kernel

# Rows that the prior noise counts for.
KAPPA = 1.0
# Rows that the answer of the spiked model counts for against held-out energies.
SPIKED_ROWS = 4.0
# A direction is kept if the variance along it is so many times the noise.
LEAST_RATIO = 1.02
# Held-out energy above the expected one, at most: a bound for streams whose new rows are of another law.
MOST_RATIO = 1000.0
# Noise of a column, at least, in units of the mean noise.
PSI_FLOOR = 1e-3
# Noise, at least, in units of the largest variance: with less, the rounding of W psi^-1 W' is larger than the identity
# that is added to it, and the sum has no Cholesky factor. Rows that repeat exactly have no noise at all.
NOISE_FLOOR = 1e-10


@kernel
def spiked_shape(N, scatter, trace, D, prior_noise):
    """Noise and the variance along each direction, by the spiked covariance model (Baik and Silverstein, 2006).

    A sample eigenvalue y of D / N columns a row, in units of the noise, is l + g l / (l - 1) for a variance l; along
    the sample's direction the variance is 1 + (l - 1) cos^2. Directions that noise alone would show have the noise.
    """
    used = len(scatter)
    lam = np.empty(used)
    dof = max(N - 1.0, 1e-12)
    g = D / dof
    # The upper edge of the spectrum of pure noise (Marchenko and Pastur): larger sample eigenvalues are signal.
    edge = (1.0 + np.sqrt(g)) ** 2
    r, s = used, prior_noise
    for _ in range(8):
        rest = trace
        for k in range(r):
            rest -= scatter[k]
        s = (max(rest, 0.0) + KAPPA * (D - r) * prior_noise) / ((D - r) * (max(N - 1.0 - r, 0.0) + KAPPA))
        kept = 0
        for k in range(r):
            if scatter[k] / dof > edge * s:
                kept += 1
        if kept == r:
            break
        r = kept
    for k in range(used):
        lam[k] = s
        y = scatter[k] / dof / s
        if k < r and y > edge:
            # y = l + g l/(l - 1) solved for l; its larger root, less one.
            u = y + 1.0 - g
            above = max((u + np.sqrt(max(u * u - 4.0 * y, 0.0))) / 2.0 - 1.0, 1e-12)
            # Squared cosine between the sample's direction and the true one: the shorter the stream, the more of the
            # variance along the sample's direction is noise.
            cos2 = max((1.0 - g / above**2) / (1.0 + g / above), 0.0)
            lam[k] = s * (1.0 + above * cos2)
    return s, lam


@kernel
def shape(c, j, prior_noise):
    """Noise variance, the variance along each direction and the rank of component j.

    The spiked answer is drawn to what rows had along the directions before they were folded in, as far as there are
    few rows: overfitting is of order D / N, and beyond that the rows of a changed stream would be taken for it.
    """
    D, used = c.mean.shape[1], c.used[j]
    N = c.n[j] + c.borrowed[j]
    scatter = c.scatter[j, :used]
    s, lam = spiked_shape(N, scatter, c.trace[j], D, prior_noise)
    if c.held_rows[j] >= 1.0 and N >= 3.0 and used > 0:
        omega = min(1.0, D / N)
        least = np.inf
        for k in range(used):
            x = scatter[k] / (N - 1.0)
            ratio = (c.held[j, k] + SPIKED_ROWS * lam[k]) / max(c.expected[j, k] + SPIKED_ROWS * x, 1e-300)
            # Sample variance times held-out over expected energy: what the
            # direction was worth to rows that it had not seen.
            out = max(x * min(ratio, MOST_RATIO), 1e-300)
            # Directions are sorted: a later one cannot have more variance than one before it.
            least = min(least, lam[k] ** (1.0 - omega) * out**omega)
            lam[k] = least
        left = (c.residual[j] + SPIKED_ROWS * s * (D - used)) / ((c.held_rows[j] + SPIKED_ROWS) * (D - used))
        s = s ** (1.0 - omega) * left**omega
    rank = 0
    while rank < used and lam[rank] > LEAST_RATIO * s:
        rank += 1
    if rank < used:
        # What is dropped goes to the noise, so that the trace is kept.
        total = s * (D - used)
        for k in range(rank, used):
            total += lam[k]
        s = total / (D - rank)
    if rank > 0:
        s = max(s, NOISE_FLOOR * lam[0])
    return s, lam, rank


@kernel
def refresh(c, j, prior_noise, out):
    """Make the read-out of component j from its sketch."""
    D = c.mean.shape[1]
    s, lam, r = shape(c, j, prior_noise)
    grow = 1.0 + 1.0 / max(c.n[j], 1e-300)  # predictive: the mean is known to 1 / n of the covariance
    s *= grow
    out.rank[j], out.noise[j] = r, s
    psi = c.diagonal[j].copy()
    # The noise of a column is its scatter off the directions.
    for k in range(r):
        a, u = c.scatter[j, k], c.directions[j, k]
        for i in range(D):
            psi[i] -= a * u[i] * u[i]
    rows = max(c.n[j] + c.borrowed[j] - 1.0 - r, 0.0) + KAPPA
    log_det = 0.0
    inverse, B = out.inverse_psi[j], out.B[j]
    for i in range(D):
        if out.isotropic:
            psi[i] = s
        else:
            psi[i] = max((grow * max(psi[i], 0.0) + KAPPA * s) / rows, PSI_FLOOR * s)
        log_det += np.log(psi[i])
        inverse[i] = 1.0 / psi[i]
        B[0, i] = c.mean[j, i] * inverse[i]
    out.loading[j] = 0.0
    if r > 0:
        W = np.empty((r, D))
        for k in range(r):
            out.loading[j, k] = max(lam[k] * grow - s, 0.0)
            root = np.sqrt(out.loading[j, k])
            for i in range(D):
                W[k, i] = root * c.directions[j, k, i]
                B[1 + k, i] = W[k, i] * inverse[i]
        # I + W psi^-1 W', made symmetric to the last bit for the factor.
        M = B[1 : 1 + r] @ W.T
        L = np.linalg.cholesky((M + M.T) / 2.0 + np.eye(r))
        # By the inverse of the factor, of few rows, and one product: D columns of the triangular system at a time.
        B[1 : 1 + r] = inverse_lower(L) @ B[1 : 1 + r]
        for k in range(r):
            log_det += 2.0 * np.log(L[k, k])
    B[1 + r :] = 0.0
    out.log_det[j] = log_det
    out.offset[j] = 0.0
    out.offset[j, : 1 + r] = B[: 1 + r] @ c.mean[j]


@kernel
def inverse_lower(L):
    """Inverse of a lower triangle, by forward substitution."""
    n = len(L)
    X = np.zeros((n, n))
    for j in range(n):
        X[j, j] = 1.0 / L[j, j]
        for i in range(j + 1, n):
            total = 0.0
            for k in range(j, i):
                total += L[i, k] * X[k, j]
            X[i, j] = -total / L[i, i]
    return X
