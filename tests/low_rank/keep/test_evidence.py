"""One Gaussian or two: distances in principal coordinates are those of all columns, and held-out rows decide."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.low_rank.keep.evidence import PRICE, Part, coordinates, em, fit, judge, log_joint, log_likelihood
from everlearn.low_rank.keep.slices import at_once
from low_rank_toys import one, several


def test_coordinates_keep_all_distances_from_the_mean():
    X = np.random.default_rng(0).normal(size=(30, 200))
    rows = coordinates(X, np.ones(30))
    E = X - X.mean(axis=0)
    np.testing.assert_allclose((rows.Z**2).sum(axis=1) + rows.rest, (E**2).sum(axis=1), rtol=1e-4)
    # With fewer rows than coordinates all inner products are kept, too.
    np.testing.assert_allclose(rows.Z @ rows.Z.T, E @ E.T, atol=1e-2)


def test_densities_are_those_of_gaussians_of_all_columns():
    """A Gaussian with a direction inside the coordinates: the same as in 6 columns, by scipy."""
    rng = np.random.default_rng(1)
    X, U = rng.normal(size=(8, 6)), np.linalg.qr(rng.normal(size=(6, 6)))[0]
    rows = coordinates(X, np.ones(8))
    parts = [
        Part(3.0, rows.Z[0], np.eye(6)[:1], np.array([5.0]), 0.7),
        Part(1.0, rows.Z[1], np.eye(6)[2:4], np.array([2.0, 1.5]), 0.4),
    ]
    found = log_joint(rows, parts)
    for k, (share, noise) in enumerate(((0.75, 0.7), (0.25, 0.4))):
        C = noise * np.eye(6) + sum((v - noise) * np.outer(u, u) for v, u in zip(*parts[k][3:1:-1], strict=True))
        # Rotated: a density does not depend on the axes.
        wanted = np.log(share) + multivariate_normal(U @ rows.Z[k], U @ C @ U.T).logpdf(rows.Z @ U.T)
        np.testing.assert_allclose(found[:, k], wanted, atol=1e-4)
    assert log_likelihood(rows, parts) == pytest.approx(np.logaddexp(*found.T).sum())


def test_a_fit_finds_noise_and_directions():
    X = one(np.random.default_rng(2), 400, 60)
    part = fit(coordinates(X, np.ones(400)), np.ones(400), 8)
    assert part.weight == 400.0
    np.testing.assert_allclose(part.variance, [50.0, 20.0, 8.0], rtol=0.25)
    assert part.noise == pytest.approx(1.0, abs=0.1)
    # A row that counts twice is two rows.
    share = np.ones(400)
    share[:50] = 2.0
    double = fit(coordinates(X, np.ones(400)), share, 8)
    twice = np.concatenate([X, X[:50]])
    again = fit(coordinates(twice, np.ones(450)), np.ones(450), 8)
    np.testing.assert_allclose(double.variance, again.variance, rtol=0.02)


@pytest.mark.parametrize("D", [20, 300])
def test_two_groups_pay_and_one_does_not(D):
    rng = np.random.default_rng(3)
    order = rng.permutation(80)
    apart = several(rng, 80, D, K=2)[order]
    verdict = at_once(judge(coordinates(apart, np.ones(80)), 8), D)
    assert verdict.gain > 10.0 * PRICE
    assert abs((verdict.side == (order < 40)).mean() - 0.5) >= 0.475  # but for a row or two that fit both
    assert verdict.gain_of_given == -np.inf
    single = at_once(judge(coordinates(one(rng, 80, D), np.ones(80)), 8), D)
    assert single.gain < PRICE


def test_a_given_parting_is_judged_as_it_is():
    rng = np.random.default_rng(4)
    rows = coordinates(several(rng, 80, 40, K=2), np.ones(80))
    right, wrong = np.arange(80) < 40, rng.random(80) < 0.5
    gains = [at_once(judge(rows, 8, side), 40).gain_of_given for side in (right, wrong)]
    assert gains[0] > PRICE > gains[1]


def test_a_part_of_few_rows_dies_out():
    rows = coordinates(one(np.random.default_rng(5), 30, 20), np.ones(30))
    assert em(rows, np.arange(30) < 3, 2, 4) is None
