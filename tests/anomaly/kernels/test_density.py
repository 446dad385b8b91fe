"""How far a row lies from a frozen mixture, against scipy's distributions."""

import numpy as np
import pytest
from scipy.stats import chi2, norm

from detectors import SETTINGS, frozen_density, low_rank_density
from everlearn.anomaly.kernels.density import atypicality, log_chi2_tail
from everlearn.anomaly.learn import init, no_density, scratch_for
from everlearn.linalg.compile import kernel
from naive import anomaly as naive


@pytest.fixture
def state():
    return init(4, SETTINGS)


def test_atypicality_is_the_mass_farther_out_than_the_row(state):
    """The last component, the broad one, is left out; rows with gaps are judged by what they have."""
    rng = np.random.default_rng(0)
    density, mixture = frozen_density(rng)
    scratch = scratch_for(state._replace(density=density))
    for i in range(6):
        x = 3 * rng.normal(size=4)
        x[i % 4] = np.nan if i > 2 else x[i % 4]
        parts = [part[:-1] for part in mixture]
        assert atypicality(x, density, scratch) == pytest.approx(naive.atypicality(x, *parts), rel=1e-6)


def test_centre_and_scale_are_those_of_the_data(state):
    """A row in other units, under a density that knows them, is as strange as before."""
    rng = np.random.default_rng(1)
    density, _ = frozen_density(rng)
    centre, scale, x = rng.normal(size=4), rng.uniform(0.1, 10, 4), rng.normal(size=4)
    moved = density._replace(centre=centre, scale=scale)
    scratch = scratch_for(state._replace(density=density))
    assert atypicality(centre + scale * x, moved, scratch) == pytest.approx(atypicality(x, density, scratch))


def test_nothing_is_told_without_a_mixture_or_a_value(state):
    density, _ = frozen_density(np.random.default_rng(2))
    scratch = scratch_for(state._replace(density=density))
    assert np.isnan(atypicality(np.full(4, np.nan), density, scratch))
    assert np.isnan(atypicality(np.zeros(4), no_density(4), scratch))


def test_rows_beyond_the_range_of_numbers_are_still_told_apart(state):
    """exp(-d^2/2) is zero from 39 standard deviations on; its logarithm goes on."""
    density, _ = frozen_density(np.random.default_rng(3))
    scratch = scratch_for(state._replace(density=density))
    far = [atypicality(np.full(4, size), density, scratch) for size in (1e3, 1e4, 1e5)]
    assert far[1] / far[0] == pytest.approx(100, rel=0.05)
    assert far[2] / far[1] == pytest.approx(100, rel=0.01)


@kernel
def chi2_tail(square, m):
    return log_chi2_tail(square, m)


def test_the_tail_of_chi_squared_agrees_with_scipy():
    for m in (1, 2, 3, 4, 9, 30, 31, 201):
        for square in (0.0, 1e-3, 0.5 * m, 1.0 * m, 3.0 * m, m + 200.0):
            assert chi2_tail(square, m) == pytest.approx(chi2.logsf(square, m), rel=1e-9, abs=1e-12), (square, m)
    assert chi2_tail(2000.0, 1) == pytest.approx(np.log(2.0) + norm.logsf(np.sqrt(2000.0)), abs=2e-3)
    assert chi2_tail(1e7, 5) == pytest.approx(-4999977.147, abs=1e-2)  # -x + 3/2 log x - log Gamma(5/2), x = 5e6


def test_factors_say_what_their_covariances_do(state):
    """A low-rank density against the dense one of the same covariances, with gaps and without."""
    rng = np.random.default_rng(4)
    low, dense = low_rank_density(rng, D=4, Q=2)
    small, large = (scratch_for(state._replace(density=density)) for density in (low, dense))
    assert low.precisions.shape == (4, 2, 2)
    for i in range(8):
        x = 2 * rng.normal(size=4)
        x[: i // 2] = np.nan
        assert atypicality(x, low, small) == pytest.approx(atypicality(x, dense, large), rel=1e-6)
        np.testing.assert_allclose(small.joint[:3], large.joint[:3], rtol=1e-6)
