"""Searches where no rows are kept: laws of dividing and joining components by their moments, and of the world."""

import numpy as np
import pytest

from everlearn.gaussian import mixture as mixtures
from everlearn.gaussian.mixture import Mixture
from everlearn.mixture.keep import by_moments, carry
from everlearn.mixture.keep.by_moments import PARTS, PAYS
from everlearn.mixture.keep.forgetting import fading_of
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.state import Model
from mixture_toys import components, groups, settings_for, shape_of

D, K = 3, 2


def model(Z, label, *, known=None, room=None):
    """Components of labelled rows; those from `known` on were opened since the last search."""
    R = np.eye(label.max() + 1)[label]
    shape, K = shape_of(Z.shape[1]), R.shape[1]
    own = components(Z, R, shape, room=room or K + 1, parts=PARTS)
    return Model(own, shape, world_of_rows(Z, np.ones(len(Z)), 1.0), 1.0, K if known is None else known)


def with_two_humps(evidence, left=0.0):
    """A component that has found two Gaussians at -0.9 and 1.1 standard deviations along an axis."""
    Z, label = groups(np.random.default_rng(0), 400, D, K)
    one = model(Z, label)
    c = one.components
    c.axes[1] = np.array([0.6, 0.0, 0.8])
    c.along[1] = [[55.0, -0.9, 5.0], [45.0, 1.1, 6.0], [100.0, 0.0, 100.0]]
    c.progress[1] = evidence, 300.0, left
    return one


def settings(**changes):
    return settings_for(D, parts=PARTS, **changes)


def moments_of(stock):
    both = carry.sum_of(stock)
    return both.mass[0], both.counts[0], both.means[0], both.scatter[0]


def test_a_division_has_the_moments_of_the_component():
    c = with_two_humps(PAYS + 1.0).components
    own = carry.Stock(*(values[1:2] for values in carry.stock_of_components(c)))
    parts = by_moments.divided(own, c, 1)
    assert len(parts.mass) == PARTS - 1
    for found, wanted in zip(moments_of(parts), moments_of(own), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    assert (np.linalg.eigvalsh(parts.scatter) > 0.0).all()
    # Along the axis they are where they were found: 2 standard deviations apart, as spread is about one.
    along = c.axes[1] @ c.factors[1] @ (parts.means[1] - parts.means[0])
    assert along == pytest.approx(2.0, rel=0.1)


def test_components_are_divided_where_that_pays():
    def size(evidence, left=0.0, **changes):
        return by_moments.reconsidered(with_two_humps(evidence, left), 400, 400, settings(**changes)).known

    assert size(PAYS + 1.0) == K + 1
    assert size(PAYS - 1.0) == K
    assert size(PAYS + 1.0, left=100.0) == K  # who tries many axes finds one by chance
    assert size(PAYS + 1.0, most=K) == K
    assert size(PAYS + 1.0, fixed=K) == K


def test_components_that_nothing_speaks_against_stay_exactly_as_they_are():
    """Twenty groups of few rows each: what a search of drawn rows would take apart, or find too dear."""
    Z, label = groups(np.random.default_rng(1), 300, D, 20, apart=2.0)
    old = model(Z, label)
    old.components.progress[:, 1] = 7.0
    new = by_moments.reconsidered(old, 400, 400, settings())
    assert new.known == 20
    for name in ("mass", "counts", "means", "scatter", "progress"):
        np.testing.assert_array_equal(getattr(new.components, name)[:20], getattr(old.components, name)[:20], name)


def test_rows_that_opened_several_components_for_one_group_leave_one():
    rng = np.random.default_rng(2)
    Z = np.concatenate([rng.normal(size=(400, D)), rng.normal(size=(60, D)) + 15.0])
    # The second group in three, by the sign of one column and then of another.
    label = np.where(np.arange(460) < 400, 0, 1 + (Z[:, 0] > 15.0) * (1 + (Z[:, 1] > 15.0)))
    new = by_moments.reconsidered(model(Z, label, known=1), 400, 400, settings())
    assert new.known == 2
    np.testing.assert_allclose(new.components.means[1], Z[400:].mean(axis=0), atol=1e-9)
    assert new.components.mass[1] == pytest.approx(60.0)
    # The same components, if a search has found them, are not in question.
    assert by_moments.reconsidered(model(Z, label), 400, 400, settings()).known == 4


def test_a_row_that_no_other_has_joined_does_not_stay():
    Z, label = groups(np.random.default_rng(9), 400, D, K)
    Z, label = np.append(Z, np.full((1, D), 300.0), axis=0), np.append(label, K)
    old = model(Z, label, known=K)
    new = by_moments.reconsidered(old, 300, 401, settings())
    assert new.known == K
    assert not (new.components.means == 300.0).any()
    # What it said of all rows stays.
    assert (np.diag(new.world.covariance) > 100.0).all()


def test_no_more_components_are_left_than_may_be():
    Z, label = groups(np.random.default_rng(3), 2000, D, 80, apart=40.0)
    old = model(Z, label, known=60, room=80)
    assert by_moments.reconsidered(old, 400, 400, settings(most=64)).known == 64 - carry.SPARE
    assert by_moments.reconsidered(old, 400, 400, settings(most=7)).known == 7
    assert by_moments.reconsidered(old, 400, 400, settings(fixed=9)).known == 9


def pair(apart):
    """Two Gaussians, as components of many rows, and rows of their mixture."""
    rng = np.random.default_rng(4)
    label = (np.arange(200_000) % 10 < 3).astype(int)
    Z = rng.normal(size=(200_000, D)) * np.where(label, 0.7, 1.0)[:, None] + apart * label[:, None]
    return model(Z, label), Z


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0, 2.0, 8.0])
def test_the_cost_of_joining_bounds_what_the_likelihood_of_rows_loses(apart):
    """The twin measures both mixtures on the rows."""
    old, Z = pair(apart)
    stock = carry.stock_of_components(old.components)
    parts = by_moments.Parts(stock, old.shape, np.array([True, True]))
    _, _, cost = parts.cheapest_pair()
    weights = stock.mass / stock.mass.sum()
    covariances = stock.scatter / stock.counts[:, None, None]
    joint = mixtures.log_joint(Z, Mixture(weights, stock.means, covariances))
    one = mixtures.log_joint(Z, Mixture(np.ones(1), Z.mean(axis=0)[None], np.cov(Z.T, ddof=0)[None]))[:, 0]
    lost = float((np.logaddexp.reduce(joint, axis=1) - one).sum())
    assert cost > lost - 1e-3 * len(Z)
    if apart == 8.0:
        assert cost == pytest.approx(lost, rel=1e-2)


def test_the_world_of_new_rows_is_that_of_all_rows():
    """Of rows that components have taken in: what was known, with opened components and with the rest, adds up."""
    rng = np.random.default_rng(5)
    first, later, far = (rng.normal(size=(n, D)) for n in (600, 300, 100))
    far += 30.0
    Z = np.concatenate([first, later, far])
    label = (np.arange(1000) >= 900).astype(int)
    old = model(Z, label, known=1)._replace(world=world_of_rows(first, np.ones(600), 1.0))
    world = by_moments.renewed_world(old, 0.6)
    np.testing.assert_allclose(world.background.centre, Z.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(world.covariance, np.cov(Z.T), rtol=0.02, atol=0.1)


def test_outliers_that_no_component_keeps_are_not_forgotten():
    rng = np.random.default_rng(6)
    Z, rows = rng.normal(size=(1000, D)), rng.normal(size=(1000, D))
    rows[::100] += 50.0
    old = model(Z, np.zeros(1000, dtype=int))._replace(world=world_of_rows(rows, np.ones(1000), 1.0))
    for n in range(1100, 2000, 100):
        share = by_moments.share_since(n - 100, n, fading_of(1.0, 200))
        old = old._replace(world=by_moments.renewed_world(old, share))
    # A hundredth of the first half of the rows were outliers.
    assert np.diag(old.world.covariance) == pytest.approx(1.0 + 0.5 * 0.01 * 50.0**2, rel=0.1)


@pytest.mark.parametrize("factor", [1.0, 0.99, 0.999])
def test_the_share_of_the_first_rows_follows_their_weights(factor):
    weights = factor ** np.arange(700.0)[::-1]
    share = by_moments.share_since(500, 700, fading_of(factor, 200))
    assert share == pytest.approx(weights[:500].sum() / weights.sum())


def test_the_weight_of_the_common_shape_falls_where_groups_have_little_in_common():
    """A warm-up of one group says nothing of that."""
    rng = np.random.default_rng(7)
    spreads = np.exp(1.5 * rng.normal(size=(4, D)))
    label = np.arange(800) % 4
    Z = rng.normal(size=(800, D)) * spreads[label]
    alone = model(Z, label)._replace(shape=shape_of(D, tau=12.0))
    assert by_moments.reconsidered(alone, 400, 400, settings()).shape.tau < 4.0
    same = model(Z / spreads[label], label)._replace(shape=shape_of(D, tau=12.0))
    assert by_moments.reconsidered(same, 400, 400, settings()).shape.tau == 12.0
