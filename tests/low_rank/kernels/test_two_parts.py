"""One Gaussian and two in principal coordinates, beside dense algebra."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from everlearn.low_rank.keep import evidence
from everlearn.low_rank.kernels import two_parts
from everlearn.low_rank.kernels.two_parts import CONVERGED, DIED, UNDER_WAY, Part
from low_rank_toys import one, several
from naive import low_rank as naive


def coordinates(X, weights):
    return evidence.coordinates(evidence.group_of(X, weights))


def group(seed, n=60, D=12, K=2):
    rng = np.random.default_rng(seed)
    return coordinates(several(rng, n, D, K=K), rng.uniform(0.5, 2.0, size=n))


def test_densities_are_those_of_gaussians_of_all_columns():
    """Gaussians with directions inside the coordinates: the same as in 6 columns, by scipy."""
    rng = np.random.default_rng(1)
    X, U = rng.normal(size=(8, 6)), np.linalg.qr(rng.normal(size=(6, 6)))[0]
    rows = coordinates(X, np.ones(8))
    parts = [
        Part(3.0, rows.Z[0], np.eye(6)[:1], np.array([5.0]), 0.7),
        Part(1.0, rows.Z[1], np.eye(6)[2:4], np.array([2.0, 1.5]), 0.4),
    ]
    found = two_parts.log_joint(rows, *parts)
    for k, (share, noise) in enumerate(((0.75, 0.7), (0.25, 0.4))):
        C = noise * np.eye(6) + sum((v - noise) * np.outer(u, u) for v, u in zip(*parts[k][3:1:-1], strict=True))
        # Rotated: a density does not depend on the axes.
        wanted = np.log(share) + multivariate_normal(U @ rows.Z[k], U @ C @ U.T).logpdf(rows.Z @ U.T)
        np.testing.assert_allclose(found[:, k], wanted, atol=1e-4)
    assert two_parts.log_likelihood(rows, *parts) == pytest.approx(np.logaddexp(*found.T).sum())
    alone = found[:, 0] - np.log(0.75)
    assert two_parts.log_likelihood_of_one(rows, parts[0]) == pytest.approx(alone.sum())


@pytest.mark.parametrize("rank", [2, 8])
def test_a_fit_is_that_of_an_eigendecomposition(rank):
    rows, share = group(0), np.random.default_rng(9).uniform(size=60)
    found, wanted = two_parts.fit(rows, share, rank), naive.part_of_rows(rows, share, rank)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-12)
    np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-10)
    assert found.noise == pytest.approx(wanted.noise, rel=1e-12)
    np.testing.assert_allclose(np.abs(found.directions @ wanted.directions.T), np.eye(len(found.variance)), atol=1e-8)


def test_a_fit_finds_noise_and_directions_and_counts_rows_by_their_share():
    X = one(np.random.default_rng(2), 400, 16)
    part = two_parts.fit(coordinates(X, np.ones(400)), np.ones(400), 8)
    assert part.weight == 400.0
    np.testing.assert_allclose(part.variance, [50.0, 20.0, 8.0], rtol=0.25)
    assert part.noise == pytest.approx(1.0, abs=0.1)
    share = np.ones(400)
    share[:50] = 2.0
    double = two_parts.fit(coordinates(X, np.ones(400)), share, 8)
    twice = two_parts.fit(coordinates(np.concatenate([X, X[:50]]), np.ones(450)), np.ones(450), 8)
    np.testing.assert_allclose(double.variance, twice.variance, rtol=0.02)


def test_rounds_are_those_of_em_whether_run_at_once_or_one_by_one():
    rows, start = group(3), (np.random.default_rng(4).random(60) < 0.5).astype(float)
    start[:25] = 1.0
    at_once, step, wanted = start.copy(), start.copy(), start
    two_parts.em(rows, at_once, 3, 4)
    for _ in range(3):
        two_parts.em(rows, step, 1, 4)
        parts = [naive.part_of_rows(rows, share, 4) for share in (wanted, 1.0 - wanted)]
        joint = two_parts.log_joint(rows, *parts)
        wanted = np.exp(joint[:, 0] - np.logaddexp(*joint.T))
    np.testing.assert_array_equal(step, at_once)
    np.testing.assert_allclose(at_once, wanted, atol=1e-8)


def test_how_rounds_end():
    rows = group(5)
    assert two_parts.em(rows, (np.arange(60) < 30).astype(float), 20, 4)[0] == CONVERGED
    mixed = (np.arange(60) % 2).astype(float)
    assert two_parts.em(rows, mixed, 1, 4)[0] == UNDER_WAY
    assert two_parts.em(rows, (np.arange(60) < 2).astype(float), 1, 4)[0] == DIED
    assert two_parts.em(rows, (np.arange(60) > 1).astype(float), 1, 4)[0] == DIED
