"""Ranks and tails of the latest values of a statistic, against sorting and against laws that are known."""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import expon, genpareto, uniform

from everlearn.anomaly.kernels.memory import LEAST, fit_tail, log_p_value, remember
from everlearn.anomaly.learn import init_memory
from naive import anomaly as naive


def memory_of(values):
    """A memory that holds ascending values, with the tail fitted to them."""
    memory = init_memory(np.ones(1), np.ones(1), len(values))
    memory.ordered[0], memory.size[0] = values, len(values)
    fit_tail(memory, 0)
    return memory


def quantiles(law, n):
    return law.ppf((np.arange(n) + 0.5) / n)


def test_p_values_by_rank_and_in_the_tail():
    rng = np.random.default_rng(4)
    memory, values = init_memory(np.ones(1), np.ones(1), 2000), rng.exponential(size=5000)
    for value in values:
        remember(memory, 0, value)
    kept = values[-2000:]
    assert np.array_equal(memory.ordered[0], np.sort(kept))
    for value in (0.2, 0.7, 1.5):
        assert log_p_value(memory, 0, value) == pytest.approx(naive.log_p_by_rank(value, kept), abs=2e-3)
    # Beyond all ranks the law is known: P(value > v) = exp(-v).
    assert log_p_value(memory, 0, 10.0) == pytest.approx(-10.0, rel=0.3)


def test_the_order_holds_after_every_value_ties_included():
    rng = np.random.default_rng(0)
    memory, values = init_memory(np.ones(2), np.ones(2), 25), rng.integers(0, 8, size=120).astype(float)
    for t, value in enumerate(values):
        remember(memory, 1, value)
        kept = values[max(0, t - 24) : t + 1]
        assert memory.size.tolist() == [0, len(kept)]
        np.testing.assert_array_equal(memory.ordered[1, : len(kept)], np.sort(kept))


def test_ties_share_their_middle_rank():
    """Nearly all values may be equal: as many are counted below the value as above it."""
    values = np.r_[np.zeros(900), np.arange(1.0, 101.0)]
    memory = memory_of(values)
    assert log_p_value(memory, 0, 0.0) == pytest.approx(np.log((1000 - 450 + 0.5) / 1001))
    memory = memory_of(np.sort(np.r_[-np.arange(1.0, 301.0), np.zeros(500), np.arange(1.0, 201.0)]))
    assert log_p_value(memory, 0, 0.0) == pytest.approx(np.log((1000 - 300 - 250 + 0.5) / 1001))


def test_few_values_or_none_have_no_p_value():
    memory = init_memory(np.ones(1), np.ones(1), 100)
    for value in range(LEAST - 1):
        remember(memory, 0, float(value))
    assert np.isnan(log_p_value(memory, 0, 3.0))
    remember(memory, 0, 3.5)
    assert log_p_value(memory, 0, 3.0) < 0.0
    assert np.isnan(log_p_value(memory, 0, np.nan))


def test_a_larger_value_is_never_more_probable_and_no_p_value_is_zero():
    memory = memory_of(np.sort(np.random.default_rng(1).integers(0, 30, size=300) / 3.0))
    told = np.array([log_p_value(memory, 0, value) for value in np.linspace(-1, 40, 800)])
    assert (np.diff(told) <= 1e-12).all()
    assert told[0] > -0.01
    assert np.isfinite(log_p_value(memory, 0, 1e12))


@pytest.mark.parametrize(("law", "shape"), [(expon(), 0.0), (genpareto(0.5), 0.5)], ids=["exponential", "heavy"])
def test_the_tail_of_a_known_law_is_found(law, shape):
    """An excess over a threshold u of a generalised Pareto law has the same shape and the scale 1 + shape u.

    The scale is that of an exponential law without its largest excesses: 15 % too small where the shape is 0.5.
    """
    memory = memory_of(quantiles(law, 100_000))
    assert memory.threshold[0] == pytest.approx(law.ppf(1.0 - 1.0 / 80.0), rel=1e-3)
    assert memory.shape[0] == pytest.approx(shape, abs=0.02)
    assert memory.scale[0] == pytest.approx(1.0 + shape * memory.threshold[0], rel=0.02 + 0.3 * shape)
    far = law.isf(1e-6)
    assert log_p_value(memory, 0, far) == pytest.approx(np.log(1e-6), rel=0.02 + 0.05 * shape)


@pytest.mark.parametrize("rho", [0.3, 0.9, 0.99])
def test_a_slow_statistic_that_wanders_has_fewer_independent_values(rho):
    """The shape grows by 1 / (independent excesses): of an autoregression (1 - rho) / (1 + rho) of the excesses."""
    values = lfilter([1.0], [1.0, -rho], np.random.default_rng(0).normal(size=200_000))
    shapes = []
    for least in (1.0, 0.0):
        memory = init_memory(np.ones(1), np.array([least]), len(values))
        memory.ring[0], memory.ordered[0], memory.size[0] = values, np.sort(values), len(values)
        fit_tail(memory, 0)
        # Gaussian values: the ratio of their quantiles gives no positive shape, and what is left is the error's.
        shapes.append(memory.shape[0])
    assert shapes[0] == pytest.approx(1.0 / 20_000, rel=1e-6)
    assert shapes[1] == pytest.approx((1 + rho) / (1 - rho) / 20_000, rel=0.15)


def test_noise_around_a_slow_walk_hides_no_correlation():
    """Half of the variance is noise, the other half has rho = 0.998: neighbours alone would tell 1 in 3 independent.

    The variance of their mean has 1 / (1 + 2 sum_L rho_L) = 1 / (1 + rho / (1 - rho)) = 0.002 independent in one.
    """
    rng = np.random.default_rng(1)
    slow = lfilter([np.sqrt(1.0 - 0.998**2)], [1.0, -0.998], rng.normal(size=200_000))
    values = slow + rng.normal(size=200_000)
    memory = init_memory(np.ones(1), np.zeros(1), len(values))
    memory.ring[0], memory.ordered[0], memory.size[0] = values, np.sort(values), len(values)
    fit_tail(memory, 0)
    assert 1.0 / memory.shape[0] / 20_000 == pytest.approx(0.002, rel=0.3)


def test_heaviness_is_the_mean_excess_over_the_distance_from_the_median_to_the_top_tenth():
    """Of an exponential law: 1 / (log 10 - log 2)."""
    assert memory_of(quantiles(expon(), 100_000)).heaviness[0] == pytest.approx(1.0 / np.log(5.0), rel=1e-2)


def test_a_group_in_the_tail_makes_it_heavier_than_its_mean_says():
    """Seven rows in a hundred at 9: the median of the top tenth is there, and ln 2 of the mean in an exponential law.

    Of counts, many of which are equal, the median is no group.
    """
    values = np.concatenate([quantiles(expon(), 9300), np.linspace(8.999, 9.001, 700)])
    u = np.sort(values)[-1001]
    spread = u - np.median(values)
    assert memory_of(values).heaviness[0] == pytest.approx((9.0 - u) / np.log(2.0) / spread, rel=1e-2)
    values[-700:] = 9.0
    assert memory_of(values).heaviness[0] == pytest.approx((np.sort(values)[-1000:].mean() - u) / spread, rel=1e-2)


def test_the_largest_values_do_not_move_the_tail():
    """4 % of the excesses may be anomalies: 8 of 200 here."""
    values = quantiles(expon(), 2000)
    strange = values.copy()
    strange[-8:] = 1e6
    clean, moved = memory_of(values), memory_of(strange)
    for name in ("threshold", "scale", "shape", "share"):
        assert getattr(moved, name)[0] == getattr(clean, name)[0], name
    assert moved.heaviness[0] > 100 * clean.heaviness[0]


def ending(n):
    """Values of which a tenth lies between 1 and 2, evenly: a Pareto law has no end there."""
    return np.concatenate([quantiles(uniform(0, 1), n - n // 10), quantiles(uniform(1, 1), n // 10)])


def test_values_that_have_an_end_are_judged_by_rank():
    """One in 100 is one in 100; beyond the top 80th the tail goes on with the law of the excess over the top tenth."""
    large, small = memory_of(ending(8000)), memory_of(ending(3990))
    for share in (0.05, 0.02, 0.0126):
        assert log_p_value(large, 0, 2.0 - 10.0 * share) == pytest.approx(np.log(share), abs=1e-2)
    assert large.threshold[0] == pytest.approx(2.0 - 10.0 / 80.0, abs=1e-2)
    assert small.threshold[0] == pytest.approx(1.0, abs=1e-2)
    assert log_p_value(small, 0, 1.875) > np.log(1.2 / 80.0)
    for value in (1.9, 2.0, 2.6):
        more = log_p_value(small, 0, value) - log_p_value(small, 0, 1.875)
        assert log_p_value(large, 0, value) == pytest.approx(np.log(1.0 / 80.0) + more, abs=4e-2)


def test_values_that_follow_each_other_are_not_sure_enough_for_a_rank():
    """Of an autoregression of 0.95 a hundred values are two or three excursions."""
    values = lfilter([1.0], [1.0, -0.95], np.random.default_rng(2).normal(size=8000))
    for least, begin in ((1.0, 1.0 / 80.0), (0.0, 0.1)):
        memory = init_memory(np.ones(1), np.array([least]), 8000)
        for value in values:
            remember(memory, 0, value)
        fit_tail(memory, 0)
        assert memory.threshold[0] == pytest.approx(np.quantile(values, 1.0 - begin), rel=1e-2)
