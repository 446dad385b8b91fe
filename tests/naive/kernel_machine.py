"""Kernel ridge regression on landmarks as one least-squares problem, and two pooled opinions by a general minimiser."""

import numpy as np
from scipy.optimize import minimize


def kernel(x, z, width):
    """Radial kernel of two rows."""
    return np.exp(-((x - z) @ (x - z)) / width)


def machine_coefficients(Z, Y, weights, landmarks, width, ridge, rounding):
    """A of least sum of w |y - k(x, B) A|^2 + A' (ridge k(B, B) + rounding) A: least squares of stacked equations."""
    F = np.array([[kernel(x, b, width) for b in landmarks] for x in Z])
    values, V = np.linalg.eigh(np.array([[kernel(a, b, width) for b in landmarks] for a in landmarks]))
    penalty = np.sqrt(ridge * np.maximum(values, 0.0) + rounding)[:, None] * V.T
    root = np.sqrt(weights)[:, None]
    left = np.concatenate([root * F, penalty])
    right = np.concatenate([root * Y, np.zeros((len(landmarks), Y.shape[1]))])
    return np.linalg.lstsq(left, right, rcond=None)[0]


def machine_value(x, landmarks, coefficients, width):
    """What the machine says of one row."""
    return sum(kernel(x, b, width) * a for b, a in zip(landmarks, coefficients, strict=True))


def pool_weights(log_p, f, labels, weights):
    """Weights of two opinions of least log-loss, with one row's worth of prior at (1, 0)."""

    def loss(w):
        total = 0.5 * ((w[0] - 1.0) ** 2 + w[1] ** 2)
        for i, c in enumerate(labels):
            logits = w[0] * log_p[i] + w[1] * f[i]
            total += weights[i] * (np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[c])
        return total

    return minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
