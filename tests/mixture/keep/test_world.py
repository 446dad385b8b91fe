"""What all rows have in common: frame, covariance, trimmed variances, smooth columns."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.mixture.keep import world as worlds
from everlearn.mixture.kernels.wide import distances


@pytest.fixture
def Z():
    return np.random.default_rng(0).normal(size=(500, 3)) @ np.array(
        [[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 5.0]]
    )


def test_a_frame_is_made_of_medians_and_powers_of_two(Z):
    X = Z * [1e-6, 1.0, 1e6] + [3.0, -2.0, 5e6]
    X[::7, 1] = np.nan
    frame = worlds.frame_of_rows(X)
    np.testing.assert_allclose(frame.centre, np.nanmedian(X, axis=0))
    np.testing.assert_array_equal(frame.inverse, 2.0 ** np.round(np.log2(frame.inverse)))
    spread = np.nanstd(X, axis=0) * frame.inverse
    assert ((spread > 0.65) & (spread < 1.6)).all()
    np.testing.assert_allclose(frame.log_scale, -np.log(frame.inverse))


def test_copies_outliers_and_constant_columns_do_not_move_the_frame(Z):
    plain = worlds.frame_of_rows(Z)
    spoiled = np.concatenate([Z, np.repeat(Z[:1], 5000, axis=0)])
    np.testing.assert_array_equal(worlds.frame_of_rows(spoiled).centre, plain.centre)
    far = Z.copy()
    far[:3] = 1e9
    np.testing.assert_array_equal(worlds.frame_of_rows(far).inverse, plain.inverse)
    constant = np.column_stack([Z, np.full(500, 7.0), np.full(500, np.nan)])
    frame = worlds.frame_of_rows(constant)
    assert frame.inverse[3] == frame.inverse[4] == plain.inverse.min()
    assert frame.centre[3:].tolist() == [7.0, 0.0]


def test_the_background_is_the_gaussian_of_all_rows(Z):
    world = worlds.world_of_rows(Z, np.ones(500), 1.0)
    np.testing.assert_allclose(world.covariance, np.cov(Z.T), rtol=1e-9)
    wide = np.cov(Z.T) + worlds.RIDGE * np.diag(world.variance)
    wanted = multivariate_normal(Z.mean(axis=0), wide).logpdf(Z)
    d2 = distances(Z, world.background.centre[None], world.background.factor[None])[:, 0]
    np.testing.assert_allclose(world.background.height - 0.5 * d2, wanted, rtol=1e-9)
    assert world.background.rows == 0.5


def test_gross_outliers_are_not_typical_but_a_group_is(Z):
    few, many = Z.copy(), Z.copy()
    few[:5], many[:50] = 1e4, 1e4  # 1 % and 10 % of the rows
    world = worlds.world_of_rows(few, np.ones(500), 1.0)
    np.testing.assert_allclose(world.typical, np.cov(few[5:].T), rtol=1e-9)
    assert world.covariance[0, 0] > 1e5
    np.testing.assert_allclose(worlds.world_of_rows(many, np.ones(500), 1.0).typical, np.cov(many.T), rtol=1e-9)


def test_correlations_of_few_rows_are_taken_for_chance(Z):
    """Of 3 varying columns they are trusted from 30 rows on; of one row there are none."""
    full = np.cov(Z.T)
    half = worlds.uncorrelated_by_chance(full, 15.0, 3)
    np.testing.assert_allclose(half, 0.5 * full + 0.5 * np.diag(np.diag(full)))
    np.testing.assert_allclose(worlds.uncorrelated_by_chance(full, 0.0, 3), np.diag(np.diag(full)))
    np.testing.assert_array_equal(worlds.uncorrelated_by_chance(full, 30.0, 3), full)


def test_trimmed_variances_leave_out_the_farthest_hundredth():
    X = np.concatenate([np.tile([-1.0, 1.0], 99), [1e6, -1e6]])[:, None]
    np.testing.assert_allclose(worlds.trimmed_variances(X, np.zeros(1)), 1.0)
    rare = np.zeros((200, 1))
    rare[7] = 3.0  # without it nothing varies
    assert worlds.trimmed_variances(rare, np.zeros(1))[0] == pytest.approx(np.var(rare))


def test_the_ridge_is_small_only_where_values_do_not_come_twice(Z):
    lattice = np.column_stack([Z[:, 0], np.round(Z[:, 1])])
    smooth = worlds.smooth_columns(lattice)
    assert smooth.tolist() == [True, False]
    ridge = worlds.ridge_of(np.array([2.0, 3.0]), smooth, 0.01)
    np.testing.assert_allclose(ridge, worlds.RIDGE * np.array([0.02, 3.0]))
    assert not worlds.smooth_columns(Z[:10]).any()  # too few to tell


def test_columns_that_nobody_has_seen_have_variance_one(Z):
    filled = np.column_stack([Z, np.zeros(500)])
    world = worlds.world_of_rows(filled, np.ones(500), 1.0, unseen=np.array([3]))
    assert world.covariance[3, 3] == 1.0
