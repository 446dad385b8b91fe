"""One Gaussian or two: distances in principal coordinates are those of all columns, and held-out rows decide."""

import numpy as np
import pytest

from everlearn.low_rank.keep.evidence import PRICE, Folds, Trial, confirm, coordinates, group_of, judge, two_means
from everlearn.low_rank.keep.slices import at_once
from low_rank_toys import one, several


def test_coordinates_keep_all_distances_from_the_mean():
    X = np.random.default_rng(0).normal(size=(30, 200))
    rows = coordinates(group_of(X, np.ones(30)))
    E = X - X.mean(axis=0)
    np.testing.assert_allclose((rows.Z**2).sum(axis=1) + rows.rest, (E**2).sum(axis=1), rtol=1e-4)
    # With fewer rows than coordinates all inner products are kept, too.
    np.testing.assert_allclose(rows.Z @ rows.Z.T, E @ E.T, atol=1e-2)


def test_coordinates_are_along_the_axes_of_the_learned_rows():
    """Beside a singular value decomposition of the learned rows."""
    rng = np.random.default_rng(1)
    X, weights, learned = one(rng, 30, 200), rng.uniform(0.5, 2.0, size=30), np.arange(30) % 3 != 1
    rows = coordinates(group_of(X, weights), learned)
    E = X - np.average(X[learned], axis=0, weights=weights[learned])
    axes = np.linalg.svd(E[learned], full_matrices=False)[2][:19]
    np.testing.assert_allclose(np.abs(rows.Z[:, ::-1]), np.abs(E @ axes.T), atol=1e-3)
    np.testing.assert_allclose(rows.rest, ((E - E @ axes.T @ axes) ** 2).sum(axis=1), atol=1e-2)


@pytest.mark.parametrize("m", [250, 500])
def test_one_gaussian_that_is_full_of_directions_loses_by_being_two(m):
    """In axes that the rows to be predicted had a say in it seems to gain, and fresh rows lose 1 to 3 nats each."""
    X = np.random.default_rng(m).normal(size=(m, 784))
    group = group_of(X, np.ones(m))
    rows = coordinates(group)
    trial = Trial(Folds(rows, 16), rows.Z[:, -1] > 0.0)
    assert at_once(trial.go_on(5), 784) > PRICE
    assert at_once(confirm(trial, group), 784) < -0.3 * m
    assert at_once(judge(group, 16), 784).gain < PRICE


@pytest.mark.parametrize("D", [20, 300])
def test_two_groups_pay_and_one_does_not(D):
    rng = np.random.default_rng(3)
    order = rng.permutation(80)
    apart = several(rng, 80, D, K=2)[order]
    verdict = at_once(judge(group_of(apart, np.ones(80)), 8), D)
    assert verdict.gain > 10.0 * PRICE
    assert abs((verdict.side == (order < 40)).mean() - 0.5) >= 0.475  # but for a row or two that fit both
    assert verdict.gain_of_given == -np.inf
    single = at_once(judge(group_of(one(rng, 80, D), np.ones(80)), 8), D)
    assert single.gain < PRICE


def test_a_given_parting_is_judged_as_it_is():
    rng = np.random.default_rng(4)
    rows = group_of(several(rng, 80, 40, K=2), np.ones(80))
    right, wrong = np.arange(80) < 40, rng.random(80) < 0.5
    gains = [at_once(judge(rows, 8, side), 40).gain_of_given for side in (right, wrong)]
    assert gains[0] > PRICE > gains[1]


def test_a_trial_that_goes_on_is_one_that_was_not_interrupted():
    rng = np.random.default_rng(5)
    rows = coordinates(group_of(several(rng, 80, 40, K=2), np.ones(80)))
    folds, start = Folds(rows, 8), rng.random(80) < 0.5
    whole, parted = Trial(folds, start), Trial(folds, start)
    assert at_once(whole.go_on(4), 40) == whole.gain
    first = at_once(parted.go_on(1), 40)
    assert at_once(parted.go_on(3), 40) == whole.gain != first


def test_a_part_of_few_rows_dies_out():
    rows = coordinates(group_of(one(np.random.default_rng(5), 30, 20), np.ones(30)))
    assert at_once(Trial(Folds(rows, 4), np.arange(30) < 3).go_on(2), 20) == -np.inf


def test_two_clusters_that_an_axis_cuts_through():
    """Three clusters on a line: the middle one is on both sides of the axis, and goes to one of the others."""
    rng = np.random.default_rng(6)
    label = rng.integers(3, size=90)
    X = rng.normal(size=(90, 30))
    X[:, 0] += 12.0 * label
    rows = coordinates(group_of(X, np.ones(90)))
    side = rows.Z[:, -1] > 0.0
    assert 0 < side[label == 1].sum() < (label == 1).sum()
    found = two_means(rows, side)
    assert all(len(set(found[label == k])) == 1 for k in range(3))
