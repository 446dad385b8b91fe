"""Kernels of the detector against slow twins that derive the answers in another way."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from everlearn.anomaly import learn
from everlearn.anomaly.ask import given_others
from everlearn.anomaly.estimator import AnomalyDetector
from everlearn.anomaly.kernels.density import atypicality, log_chi2_tail
from everlearn.anomaly.kernels.memory import log_p_value, remember
from everlearn.anomaly.kernels.sample import NEAR, column_rarity, distances_to_mass, refresh_sample
from everlearn.anomaly.kernels.season import find_period
from everlearn.anomaly.learn import _factorised, init_memory, scratch_for
from everlearn.anomaly.state import Units
from everlearn.linalg.compile import kernel
from naive import anomaly as naive


def random_mixture(rng, K=3, D=4):
    A = rng.normal(size=(K, D, D))
    return rng.dirichlet(np.ones(K)), rng.normal(size=(K, D)), A @ A.transpose(0, 2, 1) + 0.5 * np.eye(D)


@pytest.fixture
def state():
    from everlearn import AnomalyDetector

    detector = AnomalyDetector()
    return learn.init(4, detector._settings("guarded"))


def frozen_density(rng, D=4):
    weights, means, covariances = random_mixture(rng, D=D)
    units = Units(np.zeros(D), np.ones(D))
    return _factorised(units, weights, means, covariances.copy(), np.ones(D)), (weights, means, covariances)


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


@kernel
def chi2_tail(square, m):
    return log_chi2_tail(square, m)


def test_the_tail_of_chi_squared_agrees_with_scipy():
    for m in (1, 2, 3, 4, 9, 30, 31, 201):
        for square in (0.0, 1e-3, 0.5 * m, 1.0 * m, 3.0 * m, m + 200.0):
            assert chi2_tail(square, m) == pytest.approx(chi2.logsf(square, m), rel=1e-9, abs=1e-12), (square, m)
    assert chi2_tail(1e7, 5) == pytest.approx(-4999977.147, abs=1e-2)  # -x + 3/2 log x - log Gamma(5/2), x = 5e6


def test_conditionals_agree_with_integrals_of_the_joint():
    rng = np.random.default_rng(2)
    density, mixture = frozen_density(rng, D=2)
    x = np.array([0.3, -0.8])
    p, mean, low, high = given_others(density, x)
    grid = np.linspace(-30, 30, 20001)
    weight = np.exp(-naive.surprisal(np.column_stack([np.full_like(grid, x[0]), grid]), *mixture))
    weight /= weight.sum()
    below = weight[grid < x[1]].sum()
    assert mean[1] == pytest.approx((weight * grid).sum(), abs=1e-3)
    assert p[1] == pytest.approx(2 * min(below, 1 - below), abs=2e-3)
    assert np.cumsum(weight)[np.searchsorted(grid, low[1])] == pytest.approx(0.05, abs=2e-3)
    assert np.cumsum(weight)[np.searchsorted(grid, high[1])] == pytest.approx(0.95, abs=2e-3)


def test_rarity_and_distances_agree_with_sorting(state):
    rng = np.random.default_rng(3)
    sample, rows = state.sample, rng.normal(size=(150, 4)) * [1, 10, 0.1, 1]
    sample.rows[:150] = rows
    sample.size[0] = 150
    refresh_sample(sample, 150)
    centres, scales = sample.units
    for x in (rows[3] * 1.1, rows[5] + 40):
        assert column_rarity(x, sample) == pytest.approx(naive.column_rarity(x, rows, scales, NEAR))
        near, far = distances_to_mass(x, sample, scratch_for(state))
        assert near == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.1))
        assert far == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.3))


def test_p_values_by_rank_and_in_the_tail():
    rng = np.random.default_rng(4)
    memory, values = init_memory(np.ones(1), 2000), rng.exponential(size=5000)
    for value in values:
        remember(memory, 0, value)
    kept = values[-2000:]
    assert np.array_equal(memory.ordered[0], np.sort(kept))
    for value in (0.2, 0.7, 1.5):
        assert log_p_value(memory, 0, value) == pytest.approx(naive.log_p_by_rank(value, kept), abs=2e-3)
    # Beyond all ranks the law is known: P(value > v) = exp(-v).
    assert log_p_value(memory, 0, 10.0) == pytest.approx(-10.0, rel=0.3)


def test_the_period_of_a_season_is_found():
    t = np.arange(1500)
    noise = np.random.default_rng(5).normal(size=1500)
    assert find_period((np.sin(2 * np.pi * t / 96) + 0.3 * noise)[:, None]) == 96
    assert find_period(noise[:, None]) == 0


def test_a_gap_is_no_silence():
    """A sensor that is gone does not look like a frozen one: its activity stays what it was."""
    rng = np.random.default_rng(3)
    X = np.cumsum(rng.normal(size=(1500, 3)), axis=0) * 0.01 + rng.normal(size=(1500, 3))
    X[1300:, 1] = np.nan
    scores = AnomalyDetector().prequential(X)
    assert np.median(scores[1400:]) > -4.0
