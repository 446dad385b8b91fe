"""Slow twins of the structure search: everything by leaving out, refitting and summing, with scipy's densities."""

import numpy as np
from scipy.special import multigammaln
from scipy.stats import multivariate_normal


def posterior_covariance(rows, weights, shape, ridge, tau):
    """Mean of the inverse-Wishart posterior of a covariance, widened for the unknown mean, from rows and weights."""
    n = weights.sum()
    mean = np.average(rows, axis=0, weights=weights)
    scatter = sum(w * np.outer(x - mean, x - mean) for x, w in zip(rows, weights, strict=True))
    body = tau * shape + scatter + (n + tau) * np.diag(ridge)
    return mean, body * (1.0 + 1.0 / max(n, 1.0)) / (tau + max(n - 1.0, 0.0))


def responsibilities(rows, R, shape, ridge, tau):
    """One step of EM: components from R, then posterior probabilities of each row."""
    parts = [posterior_covariance(rows, R[:, k], shape, ridge, tau) for k in range(R.shape[1])]
    joint = np.array(
        [R[:, k].sum() * multivariate_normal(mean, cov).pdf(rows) for k, (mean, cov) in enumerate(parts)]
    ).T
    return joint / joint.sum(axis=1, keepdims=True)


def leave_one_out(rows, R, shape, ridge, tau):
    """Log-density of each row under components fitted to all other rows, with the responsibilities of all.

    The common shape is an average over all rows: what the row itself gave to it goes, too, of every component alike.
    """
    out = []
    for t in range(len(rows)):
        rest = np.arange(len(rows)) != t
        density = 0.0
        for k in range(R.shape[1]):
            deviation = rows[t] - np.average(rows, axis=0, weights=R[:, k])
            others = shape - np.outer(deviation, deviation) / len(rows)
            mean, cov = posterior_covariance(rows[rest], R[rest, k], others, ridge, tau)
            density += R[rest, k].sum() * multivariate_normal(mean, cov).pdf(rows[t])
        out.append(np.log(density) - np.log(R[rest].sum()))
    return np.array(out)


def log_marginal(rows, shape, ridge, tau, centre, covariance):
    """Log marginal likelihood of rows with a flat prior of the mean: by the predictive densities of one after another.

    The first row says the mean, with the density of all rows; each next one has a Student-t density given those before.
    The ridge enters as the scatter of that much noise in every row.
    """
    D = rows.shape[1]
    v, prior = D + 1.0 + tau, tau * (shape + np.diag(ridge))
    n = len(rows)
    mean = rows.mean(axis=0)
    scatter = (rows - mean).T @ (rows - mean) + n * np.diag(ridge)
    logdet = lambda a: np.linalg.slogdet(a)[1]  # noqa: E731
    value = multigammaln(0.5 * (v + n - 1), D) - multigammaln(0.5 * v, D) - 0.5 * (n - 1) * D * np.log(np.pi)
    value += 0.5 * v * logdet(prior) - 0.5 * (v + n - 1) * logdet(prior + scatter) - 0.5 * D * np.log(n)
    return value + multivariate_normal(centre, covariance).logpdf(mean)


def dirichlet_multinomial(counts):
    """Probability of labels with these counts under uniform weights, by multiplying the predictive probabilities."""
    K, seen, value = len(counts), np.zeros(len(counts)), 0.0
    for k, count in enumerate(counts):
        for _ in range(int(count)):
            value += np.log((1.0 + seen[k]) / (K + seen.sum()))
            seen[k] += 1
    return value


def first_divisions(E, P, weights, a, b):
    """Masks of the rows by which a component is divided first, in the order of the kernel; None if there is none."""
    D = E.shape[1]
    humped, far = np.argmin(weights @ P**4), np.argmax((P**2).sum(axis=1) * (weights > 0.5))

    def nearer(first, second):
        return np.linalg.norm(P - first, axis=1) < np.linalg.norm(P - second, axis=1)

    column, tails = E[:, np.argmin(weights @ E**4)], E[:, np.argmax(weights @ E**4)]
    return [
        P[:, -1] > 0.0,
        P[:, humped] > 0.0 if humped != D - 1 else None,
        nearer(P[far], np.zeros(D)),
        nearer(P[a], P[b]),
        (P**2).sum(axis=1) > 1.6 * D,
        column > 0.0 if D > 1 else None,
        np.abs(tails) > 1.0 if D > 1 else None,
    ]
