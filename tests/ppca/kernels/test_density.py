"""The compiled density of PPCA; short enough to run as plain Python too."""

import numpy as np
import pytest

from everlearn.ppca.kernels import density as kernels


def test_the_noise_floor_follows_variance_mean_and_zero():
    zero = np.zeros(3)
    assert kernels.least_noise(4.0, zero) == pytest.approx(4e-6)
    assert kernels.least_noise(0.0, np.array([0.0, -8.0, 1.0])) == pytest.approx(64 * 2.0**-104)
    assert kernels.least_noise(0.0, zero) > 0
