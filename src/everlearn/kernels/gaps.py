"""The incremental mixture on rows with gaps: the marginal of what is observed, and the EM answer to what is not.

With e_o = x_o - mu_o and zeros in the gaps, g = Lambda e holds Lambda_oo e_o and Lambda_mo e_o, and with
Lambda_mm = L L' the distance in the marginal of the observed part is d^2 = e_o' g_o - |L^-1 g_m|^2. Only the components
that a row changes need more.
"""

import numpy as np

from everlearn.kernels.distance import least, log_height
from everlearn.kernels.jit import inner
from everlearn.kernels.linalg import (
    cholesky_of_block,
    solve_lower,
    solve_lower_transposed,
    symmetric_product,
)

LANES = 8  # components whose small factorisations run in step, as lanes of vector instructions
LANE_GAPS = 24  # more gaps than these make factorisations that are long enough by themselves


@inner
def observed_first(x, index):
    """Write the observed columns of x, then the missing ones, into index; returns how many are observed."""
    D = x.shape[0]
    observed = 0
    for a in range(D):
        if not np.isnan(x[a]):
            index[observed] = a
            observed += 1
    missing = observed
    for a in range(D):
        if np.isnan(x[a]):
            index[missing] = a
            missing += 1
    return observed


@inner
def deviate(x, mean, precision, e, g):
    """e = x - mu, zero in the gaps, and g = Lambda e; returns e' g."""
    for a in range(x.shape[0]):
        e[a] = x[a] - mean[a] if x[a] == x[a] else 0.0
    return symmetric_product(precision, e, g)


@inner
def gap_terms(precision, index, observed, g, L, b):
    """|L^-1 g_m|^2 and log|Lambda_mm|."""
    m = index.shape[0] - observed
    log_det = cholesky_of_block(precision, index, observed, L)
    for i in range(m):
        b[i] = g[index[observed + i]]
    solve_lower(L, m, b)
    square = 0.0
    for i in range(m):
        square += b[i] * b[i]
    return square, log_det


@inner
def gather_lanes(precisions, index, observed, G, first, n, F, b):
    """Lambda_mm and g_m of components first, first + 1, ... beside each other; the last one fills the lanes left."""
    last = n - 1
    for i in range(index.shape[0] - observed):
        a = index[observed + i]
        for lane in range(LANES):
            b[i, lane] = G[min(first + lane, last), a]
        for k in range(i + 1):
            c = index[observed + k]
            for lane in range(LANES):
                F[i, k, lane] = precisions[min(first + lane, last), a, c]


@inner
def factorise_lanes(m, F, b):
    """Cholesky factors over the matrices, with inverted diagonals, and L^-1 b over b: all lanes in step."""
    for i in range(m):
        for k in range(i):
            for q in range(k):
                for lane in range(LANES):
                    F[i, k, lane] -= F[i, q, lane] * F[k, q, lane]
            for lane in range(LANES):
                F[i, k, lane] *= F[k, k, lane]
                F[i, i, lane] -= F[i, k, lane] * F[i, k, lane]
                b[i, lane] -= F[i, k, lane] * b[k, lane]
        for lane in range(LANES):
            F[i, i, lane] = 1.0 / np.sqrt(F[i, i, lane])
            b[i, lane] *= F[i, i, lane]


@inner
def gap_terms_of_all(precisions, index, observed, G, n, d2, log_det, F, b):
    """d^2 = e'g - |L^-1 g_m|^2 and log|Lambda_mm| of all components, eight at a time; NaN where it has no factor."""
    m = index.shape[0] - observed
    for first in range(0, n, LANES):
        gather_lanes(precisions, index, observed, G, first, n, F, b)
        factorise_lanes(m, F, b)
        for lane in range(min(LANES, n - first)):
            square, product, logs = 0.0, 1.0, 0.0
            for i in range(m):
                square += b[i, lane] * b[i, lane]
                product *= F[i, i, lane]
                if not 1e-200 < product < 1e200:
                    logs += np.log(product)
                    product = 1.0
            d2[first + lane] -= square
            log_det[first + lane] = -2.0 * (logs + np.log(product))


@inner
def measure_with_gaps(
    x, index, observed, means, precisions, log_dets, counts, n, E, G, d2, log_joint, L, b, lanes, lane_rows
):  # fmt: skip
    """Distances and log joint densities of a row with gaps to every component; returns the smallest distance."""
    m = x.shape[0] - observed
    for j in range(n):
        d2[j] = deviate(x, means[j], precisions[j], E[j], G[j])
    if m <= lanes.shape[0]:
        gap_terms_of_all(precisions, index, observed, G, n, d2, log_joint, lanes, lane_rows)
    else:
        for j in range(n):
            square, log_joint[j] = gap_terms(precisions[j], index, observed, G[j], L, b)
            d2[j] -= square
    for j in range(n):
        log_joint[j] = log_height(counts[j], log_dets[j] + log_joint[j], observed) - 0.5 * d2[j]
    return least(d2, n)


@inner
def fill_gaps(precision, index, observed, e, g, L, b):
    """Conditional means into the gaps of e, e_m = -Lambda_mm^-1 Lambda_mo e_o, so that g = Lambda e vanishes there.

    Leaves the factor of Lambda_mm in L.
    """
    D = e.shape[0]
    m = D - observed
    cholesky_of_block(precision, index, observed, L)
    for i in range(m):
        b[i] = -g[index[observed + i]]
    solve_lower(L, m, b)
    solve_lower_transposed(L, m, b)
    for i in range(m):
        row = precision[index[observed + i]]
        e[index[observed + i]] = b[i]
        for a in range(D):
            g[a] += b[i] * row[a]
    for i in range(observed, D):
        g[index[i]] = 0.0


@inner
def regress(precision, index, observed, L, scale, C):
    """Rows scale L^-1 Lambda_mo into C, as wide as Lambda and zero in the gaps; returns how many.

    Zero rows fill up to a multiple of four.
    """
    D = precision.shape[0]
    m = D - observed
    for i in range(m):
        row, target = precision[index[observed + i]], C[i]
        for a in range(D):
            target[a] = scale * row[a]
        for k in range(observed, D):
            target[index[k]] = 0.0
        for k in range(i):
            c, source = L[i, k], C[k]
            for a in range(D):
                target[a] -= c * source[a]
        c = 1.0 / L[i, i]
        for a in range(D):
            target[a] *= c
    rows = m + (-m) % 4
    for i in range(m, rows):
        for a in range(D):
            C[i, a] = 0.0
    return rows


@inner
def subtract_rows(row, a, C, s):
    """row less column a of C times C, for rows s to s + 3 of C, from column a on."""
    r, z0, z1, z2, z3 = row[a:], C[s, a:], C[s + 1, a:], C[s + 2, a:], C[s + 3, a:]
    c0, c1, c2, c3 = z0[0], z1[0], z2[0], z3[0]
    for b in range(r.shape[0]):
        r[b] -= c0 * z0[b] + c1 * z1[b] + c2 * z2[b] + c3 * z3[b]


@inner
def downdate_observed(precision, index, observed, C, rows, h, sign, scale):
    """Lambda_oo = scale (Lambda_oo - C'C + sign h h'), symmetric to the last bit; C and h are zero in the gaps."""
    for i in range(observed):
        a = index[i]
        row = precision[a]
        for s in range(0, rows, 4):
            subtract_rows(row, a, C, s)
        c = sign * h[a]
        for k in range(i, observed):
            value = scale * (row[index[k]] + c * h[index[k]])
            row[index[k]] = value
            precision[index[k], a] = value


@inner
def update_component_with_gaps(mean, precision, index, observed, e, g, d2, w, c, L, C, b):
    """The EM update from the observed part of a row.

    With Sigma_mm += w Lambda_mm^-1 for the gaps, only the observed block of the precision changes:
    Lambda_oo = (Lambda_oo - w C'C - k g g')/(1-w), with C = L^-1 Lambda_mo and k = c/(1 + c d^2), c as for a complete
    row. The marginal of the observed columns is updated as by a complete row, and the regression of the gaps on them
    stays as it is.
    """
    stretch = 1.0 + c * d2
    if stretch <= 0.0:
        return np.nan
    fill_gaps(precision, index, observed, e, g, L, b)
    rows = regress(precision, index, observed, L, np.sqrt(w), C)
    root = np.sqrt(abs(c) / stretch)
    for a in range(e.shape[0]):
        g[a] *= root
        mean[a] += w * e[a]
    downdate_observed(precision, index, observed, C, rows, g, 1.0 if c < 0.0 else -1.0, 1.0 / (1.0 - w))
    return observed * np.log(1.0 - w) + np.log(stretch)
