"""Periods and profiles, against NumPy and streams whose period is known."""

import numpy as np
import pytest

from everlearn.anomaly.kernels.season import autocorrelation, find_period, latest_rows, look_for_period, rebuild_profile
from everlearn.anomaly.state import Season, Units


def wave(period, n=1500, noise=0.3, seed=5):
    t = np.arange(n)
    return (np.sin(2 * np.pi * t / period) + noise * np.random.default_rng(seed).normal(size=n))[:, None]


def empty_season(ring=64, D=2):
    return Season(np.full((ring, D), np.nan), np.zeros((ring, D)), np.zeros(ring))


@pytest.mark.parametrize("period", [12, 50, 96, 288])
def test_the_period_of_a_season_is_found(period):
    assert find_period(wave(period)) == period


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
