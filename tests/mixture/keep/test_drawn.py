"""Rows that are drawn for a search where none are kept: as many, and with the moments, that the components say."""

import numpy as np
import pytest

from everlearn.mixture.keep import drawn
from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.state import Model
from mixture_toys import components, groups, shape_of

D, K = 3, 2


def model(n=400):
    Z, label = groups(np.random.default_rng(0), n, D, K)
    R = np.eye(K)[np.where(np.arange(n) < n // 4, 0, label)]
    shape = shape_of(D)
    known = components(Z, R, shape, room=K + 1, parts=drawn.PARTS)
    return Model(known, shape, world_of_rows(Z, np.ones(n), 1.0), 1.0, K), Z, R


def test_draws_have_the_shares_and_exactly_the_moments_of_the_rows():
    """Those of the rows: a covariance with the prior in it would let that count twice."""
    known, Z, R = model()
    rows = drawn.draw(known, 400, 5)
    assert rows.shape == (400, D)
    first = int(R[:, 0].sum())
    for some, own in ((rows[:first], Z[R[:, 0] == 1.0]), (rows[first:], Z[R[:, 1] == 1.0])):
        np.testing.assert_allclose(some.mean(axis=0), own.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(np.cov(some.T, ddof=0), np.cov(own.T, ddof=0), atol=1e-9)


@pytest.mark.parametrize(("n", "size"), [(150, 150), (10**6, drawn.ROWS), (1, 2 * K)])
def test_no_more_are_drawn_than_were_learned_nor_than_a_search_needs(n, size):
    assert len(drawn.draw(model()[0], n, 0)) == size


def test_draws_follow_from_the_seed_and_the_row():
    known = model()[0]
    np.testing.assert_array_equal(drawn.draw(known, 300, 1), drawn.draw(known, 300, 1))
    assert (drawn.draw(known, 300, 1) != drawn.draw(known, 300, 2)).any()
    assert (drawn.draw(known, 300, 1)[0] != drawn.draw(known, 301, 1)[0]).any()


def with_two_humps(evidence, left=0.0):
    """A component that has found two Gaussians at -0.95 and 0.95 standard deviations along its first axis."""
    known, _, _ = model()
    c = known.components
    c.axes[1] = np.eye(D)[0]
    c.along[1] = [[50.0, -0.95, 5.0], [50.0, 0.95, 5.0], [100.0, 0.0, 100.0]]
    c.progress[1] = evidence, 300.0, left
    return known


def humps_of(known):
    c, rows = known.components, drawn.draw(known, 400, 3)
    own = rows[-round(400 * c.mass[1] / c.mass[:K].sum()) :]
    along = (own - c.means[1]) @ c.factors[1].T[:, 0]
    return float((np.abs(along) < 0.3 * along.std()).mean())


def test_what_was_found_along_an_axis_is_drawn_if_it_pays():
    """Between two humps there is hardly a row; a Gaussian has 24 % of its rows within 0.3 standard deviations."""
    assert humps_of(with_two_humps(drawn.PAYS + 1.0)) < 0.1
    assert humps_of(with_two_humps(drawn.PAYS - 1.0)) > 0.15
    assert humps_of(with_two_humps(drawn.PAYS + 1.0, left=100.0)) > 0.15  # who tries many axes finds one by chance


def test_the_next_axis_is_tried_where_a_search_made_no_use_of_one():
    c = with_two_humps(drawn.PAYS + 1.0).components
    drawn.try_other_axes(c)
    assert c.progress[1].tolist() == [0.0, 0.0, 1.0]
    assert not c.progress[0].any()
