"""Divisions of a component, tried by EM: the same as by two components and scipy's densities."""

import numpy as np
import pytest

from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import fitting
from everlearn.mixture.kernels.division import (
    DIVIDED,
    STARTS,
    Effort,
    Whole,
    evidence_of_divisions,
    first_divisions,
)
from mixture_toys import groups, rows_of, shape_of
from naive import structure as naive


def case(D, n=60, *, diagonal=False):
    """Rows of one component that are two groups, their prior, and three first divisions."""
    rng = np.random.default_rng(D)
    Z, label = groups(rng, n, D, 2, apart=1.0)
    masks = np.array([label == 0, rng.random(n) < 0.1, Z[:, 0] > np.median(Z[:, 0])])
    return rows_of(Z, rng.uniform(0.2, 1.0, n)), shape_of(D, diagonal=diagonal), np.where(masks, 0.95, 0.05)


def whole_of(rows):
    counts, means, scatters = fitting.moments_of(rows, np.ones((len(rows.Z), 1)))
    return Whole(rows.Z - means[0], rows.weights, float(counts[0]), means[0], scatters[0])


def divided(rows, shape, shares, steps, tolerance=-np.inf, least=0.0):
    """Evidence and shares after EM."""
    shares, out = shares.copy(), np.empty(len(shares))
    background = world_of_rows(rows.Z, rows.weights, 1.0).background
    evidence_of_divisions(whole_of(rows), shape, background, shares, Effort(steps, tolerance, least), out)
    return out, shares


def halves(share):
    return np.ascontiguousarray(np.column_stack([share, 1.0 - share]))


@pytest.mark.parametrize("D", [1, 3, 6])
def test_shares_are_those_of_em_with_scipys_densities(D):
    rows, shape, shares = case(D)
    rows = rows._replace(weights=np.ones(60))
    _, found = divided(rows, shape, shares, 3)
    for share, after in zip(shares, found, strict=True):
        R = halves(share)
        for _ in range(3):
            R = naive.responsibilities(rows.Z, R, *shape[:3])
        np.testing.assert_allclose(after, R[:, 0], atol=1e-5)


@pytest.mark.parametrize("D", [1, 3, 9])
@pytest.mark.parametrize("diagonal", [False, True])
def test_evidence_is_that_of_two_components(D, diagonal):
    rows, shape, shares = case(D, diagonal=diagonal)
    background = world_of_rows(rows.Z, rows.weights, 1.0).background
    values, after = divided(rows, shape, shares, 2)
    for value, share in zip(values, after, strict=True):
        R = halves(share)
        wanted = fitting.evidence_of(rows, R, fitting.moments_of(rows, R), shape, background)
        assert value == pytest.approx(wanted, abs=1e-4)


def test_a_half_of_few_rows_is_refused():
    rows, shape, shares = case(2)
    _, after = divided(rows, shape, shares[:1], 2)
    count = min(rows.weights @ after[0], rows.weights @ (1.0 - after[0]))
    assert divided(rows, shape, shares[:1], 2, least=count - 0.01)[0][0] > -np.inf
    assert divided(rows, shape, shares[:1], 2, least=count + 0.01)[0][0] == -np.inf


def test_em_stops_below_its_tolerance():
    """The first step has nothing to be compared with; the second gains less than infinity."""
    rows, shape, shares = case(3)
    (_, stopped), (_, two), (_, three) = (divided(rows, shape, shares, *how) for how in ((9, np.inf), (2,), (3,)))
    np.testing.assert_array_equal(stopped, two)
    assert np.abs(three - two).max() > 1e-4


def test_rows_without_spread_can_be_divided():
    """Two values only: each half has no scatter but the prior's."""
    Z = np.repeat([[0.0, 1.0], [5.0, 1.0]], 20, axis=0)
    rows, shape = rows_of(Z), shape_of(2)
    values, after = divided(rows, shape, np.where(Z[:, 0] > 1.0, 0.95, 0.05)[None], 4)
    assert np.isfinite(values).all()
    np.testing.assert_allclose(after[0], Z[:, 0] > 1.0, atol=1e-6)


@pytest.mark.parametrize("D", [1, 2, 5, 9])
@pytest.mark.parametrize("seed", range(4))
def test_first_divisions(D, seed):
    rng = np.random.default_rng([D, seed])
    Z = groups(rng, 70, D, 2, apart=1.0)[0]
    Z, weights = Z - Z.mean(axis=0), rng.uniform(0.1, 1.0, 70)
    E = Z / Z.std(axis=0)
    P = E @ rng.normal(size=(D, D))
    shares, counts = np.empty((STARTS, 70)), np.empty(STARTS)
    first_divisions(E, P, weights, 3, 11, shares, counts)
    wanted = naive.first_divisions(E, P, weights, 3, 11)
    assert len(wanted) == STARTS
    for mask, share, count in zip(wanted, shares, counts, strict=True):
        if mask is None:
            assert count == 0.0
        else:
            np.testing.assert_array_equal(share, np.where(mask, *DIVIDED))
            assert count == pytest.approx(weights @ mask)
