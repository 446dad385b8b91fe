"""Periods and profiles, against NumPy and streams whose period is known."""

import numpy as np
import pytest

from everlearn.anomaly.kernels.season import (
    autocorrelation,
    find_period,
    latest_rows,
    look_for_period,
    rebuild_profile,
    vertex,
    without_trend,
)
from everlearn.anomaly.state import Season, Units


def wave(period, n=1500, noise=0.3, seed=5):
    t = np.arange(n)
    return (np.sin(2 * np.pi * t / period) + noise * np.random.default_rng(seed).normal(size=n))[:, None]


def empty_season(ring=64, D=2):
    return Season(np.full((ring, D), np.nan), np.zeros((ring, D)), np.zeros(ring))


@pytest.mark.parametrize("period", [12, 50, 96])
def test_the_period_of_a_season_is_found(period):
    assert [find_period(wave(period, seed=seed)) for seed in range(10)] == [period] * 10


@pytest.mark.parametrize(("noise", "error"), [(0.3, 0.3), (1.0, 1.5)])
def test_a_long_period_is_found_to_the_row(noise, error):
    """Five cycles, the peaks of which are flat: their highest lags are two and five rows off in the mean."""
    found = [find_period(wave(288, noise=noise, seed=seed)) for seed in range(20)]
    assert np.abs(np.array(found) - 288).mean() <= error


def test_a_slope_of_the_autocorrelation_does_not_move_the_period():
    """Days of 288 rows, of which two in seven are another way of working: 8 rows off with the slope in."""
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        t = np.arange(2048) + rng.integers(2016)
        works = t // 288 % 7 < 5
        X = np.column_stack([5.0 * np.sin(2 * np.pi * t / 288) * works, 10.0 * works]) + rng.normal(size=(2048, 2))
        errors.append(abs(find_period(X) - 288))
    assert np.mean(errors) <= 3.0


def test_a_vertex_is_that_of_a_parabola_fitted_with_numpy():
    r = np.random.default_rng(0).normal(size=60) - 0.05 * (np.arange(60) - 31.3) ** 2
    for lag, width in ((28, 7), (33, 12), (58, 9), (31, 1)):
        inside = min(width, 59 - lag)
        x = np.arange(lag - inside, lag + inside + 1)
        c, b, _ = np.polyfit(x - lag, r[x], 2)
        expected = lag + np.clip(-b / (2 * c), -inside, inside) if c < 0 else lag
        assert vertex(r, lag, width) == pytest.approx(expected, abs=1e-9)


def test_the_trend_of_autocorrelations_is_their_mean_over_a_period():
    r = np.random.default_rng(1).normal(size=50)
    for k, value in enumerate(without_trend(r, 12)):
        assert value == pytest.approx(r[k] - r[max(k - 6, 0) : k + 6].mean(), abs=1e-12)


def test_no_period_is_found_where_there_is_none():
    """Neither in noise, nor in a walk whose neighbours are alike, nor in too few rows."""
    noise = np.random.default_rng(5).normal(size=(1500, 1))
    assert find_period(noise) == 0
    assert find_period(np.linspace(0.0, 1.0, 1500)[:, None]) == 0
    assert find_period(np.zeros((1500, 1))) == 0
    assert find_period(wave(7, n=29)) == 0


def test_autocorrelation_agrees_with_numpy_and_leaves_constants_out():
    rng = np.random.default_rng(0)
    B = np.cumsum(rng.normal(size=(200, 3)), axis=0)
    B[:, 1] = 4.0
    expected = []
    for b in (B[:, [0, 2]] - B[:, [0, 2]].mean(axis=0)).T:
        full = np.correlate(b, b, "full")[199:231] / (b @ b)
        expected.append(full * 200 / (200 - np.arange(32)))
    np.testing.assert_allclose(autocorrelation(B, 31)[1:], np.mean(expected, axis=0)[1:], rtol=1e-12)


def test_the_latest_rows_come_in_their_order_and_gaps_are_the_value_before():
    season, X = empty_season(), np.random.default_rng(1).normal(size=(100, 2))
    X[70, 0] = np.nan
    for t, x in enumerate(X):
        season.ring[t % 64] = x
    units = Units(np.array([1.0, -1.0]), np.array([2.0, 0.5]))
    found = latest_rows(season, units, 100)
    expected = X[36:].copy()
    expected[34, 0] = expected[33, 0]
    np.testing.assert_allclose(np.sinh(found) * units.scale + units.centre, expected, rtol=1e-12)
    assert len(latest_rows(season, units, 20)) == 20


def test_the_profile_is_the_mean_of_each_phase():
    """Of up to five visits a plain mean; later ones weigh a fifth."""
    season, U = empty_season(), np.random.default_rng(2).normal(size=(48, 2))
    rebuild_profile(season, U, 106, 12)
    for phase in range(12):
        own = U[(106 - 48 + np.arange(48)) % 12 == phase]
        np.testing.assert_allclose(season.profile[phase], own.mean(axis=0), rtol=1e-12)
    assert season.visits.sum() == 48
    rebuild_profile(season, U, 48, 1)
    weights = np.r_[np.full(5, 0.2) * 0.8**43, 0.2 * 0.8 ** np.arange(42, -1, -1.0)]
    np.testing.assert_allclose(season.profile[0], weights @ U, rtol=1e-12)
    rebuild_profile(season, U, 48, 0)
    assert not season.profile.any()


def test_a_new_period_makes_a_new_profile_and_the_same_one_keeps_it():
    X = wave(24, n=256, noise=0.05)
    season = Season(X.copy(), np.zeros((256, 1)), np.zeros(256))
    units = Units(np.zeros(1), np.ones(1))
    assert look_for_period(season, units, 256, 0) == 24
    np.testing.assert_allclose(season.profile[:24, 0], np.arcsinh(np.sin(2 * np.pi * np.arange(24) / 24)), atol=0.15)
    season.profile[:] = 7.0
    assert look_for_period(season, units, 256, 24) == 24
    assert (season.profile == 7.0).all()


@pytest.mark.parametrize(("before", "expected"), [(201, 201), (196, 200), (24, 200)])
def test_of_a_full_ring_a_period_like_the_one_before_is_the_same(before, expected):
    X = wave(200, n=2048, noise=0.05)
    season = Season(X.copy(), np.zeros((2048, 1)), np.zeros(2048))
    units = Units(np.zeros(1), np.ones(1))
    assert look_for_period(season, units, 2048, before, False) == 200
    assert look_for_period(season, units, 2048, before, True) == expected
