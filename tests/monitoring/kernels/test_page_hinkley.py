"""The parts of Page and Hinkley's test, each beside a twin that keeps all values."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal

import naive
from everlearn.monitoring.kernels import page_hinkley as kernels
from everlearn.monitoring.kernels.page_hinkley import (
    COEFFICIENT,
    CORRELATION,
    LAG,
    MEAN,
    NUMBERS,
    ORDER,
    ORDER_USED,
    SCATTER,
    VARIANCE,
    WAITING,
    N,
)

SETTINGS = kernels.TestSettings(0.5, 5.0, 30.0, 2.5)
SEEDS = range(5)


def heavy_tails(seed, n, denominator=(1.0,)):
    return scipy.signal.lfilter([1.0], denominator, np.random.default_rng(seed).standard_t(3, size=n))


def detected(values, memory, settings=SETTINGS):
    statistics = np.empty(len(values))
    kernels.detect(values, memory, settings, statistics)
    return statistics


@pytest.mark.parametrize("seed", SEEDS)
def test_the_burn_in_ends_with_the_moments_of_values_whose_extremes_are_clipped(seed):
    values, memory = heavy_tails(seed, 30), np.zeros(NUMBERS)
    values[seed] = -80.0  # an outlier among the first values
    detected(values, memory)
    kept = naive.robust_start(values, SETTINGS.limit)
    assert memory[N] == 30.0
    assert memory[MEAN] == pytest.approx(np.mean(kept))
    assert memory[SCATTER] == pytest.approx(30 * np.var(kept))


@pytest.mark.parametrize("denominator", [(1.0,), (1.0, -0.7), (1.0, -0.5, -0.3), (1.0, 0.4)])
def test_the_filter_is_that_of_the_yule_walker_equations_order_by_order(denominator):
    deviations = np.clip(heavy_tails(1, 400, denominator), -4.0, 4.0)
    memory = np.zeros(NUMBERS)
    for lag in range(ORDER + 1):
        memory[LAG + lag] = deviations[lag:] @ deviations[: len(deviations) - lag]
    kernels.estimate_filter(memory, len(deviations) + 1.0)
    coefficients, variance, used = naive.autoregression(deviations, deviations)
    found = memory[COEFFICIENT : COEFFICIENT + ORDER]
    np.testing.assert_allclose(found, coefficients, atol=1e-12)
    assert memory[VARIANCE] == pytest.approx(variance)
    assert memory[ORDER_USED] == pytest.approx(used)
    # The correlations that are kept are those for which the filter is the best one.
    order = np.count_nonzero(found)
    correlations = memory[CORRELATION : CORRELATION + order]
    matrix = scipy.linalg.toeplitz([1.0, *correlations[:-1]]) if order else np.zeros((0, 0))
    np.testing.assert_allclose(matrix @ found[:order], correlations, atol=1e-12)


@pytest.mark.parametrize(("size", "tested", "long_run", "used"), [(1.0, 5.0, 1.0, 0.0), (0.3, 400.0, 4.0, 2.5)])
def test_the_ratio_that_signals_is_the_run_length_less_the_overshoot(size, tested, long_run, used):
    wanted = naive.threshold_ratio(SETTINGS.drift, SETTINGS.threshold, size, tested, long_run, used)
    assert kernels.signalling_ratio(size, tested, long_run, used, SETTINGS) == pytest.approx(wanted)


def test_values_that_wait_count_as_if_they_had_never_waited():
    """Mean and scatter of both groups together; what waited is zero then."""
    rng = np.random.default_rng(0)
    counted, waiting = rng.normal(2.0, 1.0, 40), rng.normal(1.0, 2.0, 25)
    memory = np.zeros(NUMBERS)
    memory[N], memory[MEAN], memory[SCATTER] = 40.0, counted.mean(), 40 * counted.var()
    deviations = waiting - counted.mean()
    memory[WAITING], memory[WAITING + MEAN], memory[WAITING + SCATTER] = 25.0, deviations.sum(), deviations @ deviations
    memory[WAITING + LAG] = deviations @ deviations
    kernels.count_waiting(memory, 30.0)
    both = np.concatenate([counted, waiting])
    assert memory[N] == 65.0
    assert memory[MEAN] == pytest.approx(both.mean())
    assert memory[SCATTER] == pytest.approx(65 * both.var())
    assert memory[LAG] == pytest.approx(deviations @ deviations)
    assert not memory[WAITING:COEFFICIENT].any()


def test_estimates_below_their_noise_count_as_zero_and_clear_ones_nearly_as_they_are():
    factors = [kernels.shrinkage(squared, 4.0) for squared in (0.0, 4.0, 8.0, 40.0, 4e6)]
    assert factors == pytest.approx([0.0, 0.0, 0.75, 0.99, 1.0])


@pytest.mark.parametrize("cut", [0, 7, 30, 31, 149, 160])
def test_values_in_two_calls_are_those_of_one(cut):
    values = heavy_tails(2, 200)
    values[150:] -= 6.0
    whole, parts = np.zeros(NUMBERS), np.zeros(NUMBERS)
    once = detected(values, whole)
    twice = np.concatenate([detected(values[:cut], parts), detected(values[cut:], parts)])
    assert once.any()
    np.testing.assert_array_equal(once, twice)
    np.testing.assert_array_equal(whole, parts)


def test_a_signal_starts_anew_without_the_value_that_signalled():
    """The unit does not matter either: values in thousandths signal at the same place with the same ratio."""
    values = np.random.default_rng(3).normal(size=120)
    values[80:] -= 5.0
    statistics = detected(values, np.zeros(NUMBERS))
    (at, *_) = np.flatnonzero(statistics)
    assert 80 <= at < 90
    memory = np.zeros(NUMBERS)
    detected(values[: at + 1], memory)
    assert not memory.any()
    np.testing.assert_allclose(detected(values * 1e3 + 7e4, np.zeros(NUMBERS)), statistics, rtol=1e-6)
