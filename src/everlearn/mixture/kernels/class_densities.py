"""Class probabilities of a few complete rows; see `everlearn.mixture.class_densities`."""

import numpy as np

from everlearn.figmn.kernels.responsibilities import LOG_2PI
from everlearn.linalg.compile import inner, kernel


@inner
def whitened_distance(x, mean, U, e):
    """|e'U|^2 with e = x - mu and an upper triangle U."""
    D = x.shape[0]
    total = 0.0
    for b in range(D):
        e[b] = x[b] - mean[b]
        z = 0.0
        for a in range(b + 1):
            z += e[a] * U[a, b]
        total += z * z
    return total


@inner
def add_exponential(log_sum, value):
    """log(exp(log_sum) + exp(value))."""
    top = max(log_sum, value)
    if top == -np.inf:
        return top
    return top + np.log(np.exp(log_sum - top) + np.exp(value - top))


@kernel
def log_likelihoods(X, classes, counts, means, U, log_dets, out):
    """Log-density of each row under the mixture of each class, (n, C); -inf for a class without a Gaussian."""
    D, C = X.shape[1], out.shape[1]
    e, totals = np.empty(D), np.zeros(C)
    for k in range(classes.shape[0]):
        totals[classes[k]] += counts[k]
    out[:] = -np.inf
    for t in range(X.shape[0]):
        for k in range(classes.shape[0]):
            c = classes[k]
            d2 = whitened_distance(X[t], means[k], U[k], e)
            joint = np.log(counts[k] / totals[c]) - 0.5 * (d2 + log_dets[k] + D * LOG_2PI)
            out[t, c] = add_exponential(out[t, c], joint)


@inner
def add_voice(spoken, log_weight, out):
    """Let a voice with log-probabilities `spoken`, once they are normalised, speak with a weight."""
    top, mass = -np.inf, 0.0
    for c in range(spoken.shape[0]):
        top = max(top, spoken[c])
    for c in range(spoken.shape[0]):
        spoken[c] -= top
        mass += np.exp(spoken[c])
    for c in range(spoken.shape[0]):
        out[c] = add_exponential(out[c], spoken[c] - np.log(mass) + log_weight)


@kernel
def blend(likelihoods, temperatures, log_prior, weights, out):
    """Log-probabilities (n, C) by all voices: each view (V, n, C) at each temperature, and the class frequencies."""
    V, T = likelihoods.shape[0], temperatures.shape[0]
    spoken = np.empty(log_prior.shape[0])
    out[:] = -np.inf
    for t in range(out.shape[0]):
        for v in range(V):
            for i in range(T):
                spoken[:] = temperatures[i] * likelihoods[v, t] + log_prior
                add_voice(spoken, np.log(weights[v * T + i]), out[t])
        spoken[:] = log_prior
        add_voice(spoken, np.log(weights[V * T]), out[t])
