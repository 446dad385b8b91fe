"""Kernels of the deep Q-network: one pass over its weights or outputs, where NumPy would make several."""

import numpy as np

from everlearn.linalg.compile import kernel

# Moments below this are zero. Those of a unit that is never active decay into denormal numbers, on which arithmetic
# takes a hundred times as long; beside the 1e-8 of Adam's denominator they move no weight.
TINY = 1e-30


@kernel
def add_and_rectify(out, b):
    """out = max(out + b, 0), in place."""
    zero = out.dtype.type(0.0)  # a zero in double precision would make the loop one in double precision
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = max(out[i, j] + b[j], zero)


@kernel
def mask_and_sum(gradient, outputs, sums):
    """Clear the gradient of rectified outputs where these are zero, and fill the sums of its columns."""
    zero = gradient.dtype.type(0.0)
    sums[:] = zero
    for i in range(gradient.shape[0]):
        for j in range(gradient.shape[1]):
            gradient[i, j] = gradient[i, j] if outputs[i, j] > zero else zero
            sums[j] += gradient[i, j]


@kernel
def adam_step(values, gradients, m, v, rate, scale):
    """Move values against the gradients, times `scale`, by Adam; updates both moments. `rate` corrects their bias."""
    number = values.dtype.type
    first, second, least, tiny = number(0.1), number(0.001), number(1e-8), number(TINY)
    step, factor, zero = number(rate), number(scale), number(0.0)
    for i in range(values.shape[0]):
        g = factor * gradients[i]
        first_moment = m[i] + first * (g - m[i])
        second_moment = v[i] + second * (g * g - v[i])
        m[i] = first_moment if abs(first_moment) > tiny else zero
        v[i] = second_moment if second_moment > tiny else zero
        values[i] -= step * m[i] / (np.sqrt(v[i]) + least)


@kernel
def move_towards(values, goals, share):
    """Move values a share of the way towards their goals."""
    part = values.dtype.type(share)
    for i in range(values.shape[0]):
        values[i] += part * (goals[i] - values[i])
