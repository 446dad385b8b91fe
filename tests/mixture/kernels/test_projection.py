"""Whether rows of a component are more than one Gaussian, seen along one axis of it."""

import numpy as np
import pytest
from scipy.stats import norm

from everlearn.mixture.keep.by_moments import PARTS, PAYS
from everlearn.mixture.kernels import projection as kernels
from mixture_toys import components, shape_of

D = 3


def component(Z, *, axis=0):
    """One component that has learned Z, looking along the axis of this number next."""
    c = components(Z, np.ones((len(Z), 1)), shape_of(D, tau=1e-9, ridge=0.0), room=2, parts=PARTS)
    c.progress[0, 2] = axis
    return c


def learn(c, Z, r=1.0):
    for x in Z:
        kernels.learn_projection(0, r, x, c, np.empty(D), np.ones(D))


@pytest.fixture
def Z():
    return np.random.default_rng(0).normal(size=(400, D)) @ np.array(
        [[3.0, 0.5, 0.0], [0.0, 1.0, 0.4], [0.0, 0.0, 0.2]]
    )


@pytest.mark.parametrize("axis", range(D))
def test_axes_are_principal_ones_that_of_most_variance_first(Z, axis):
    c = component(Z, axis=axis)
    learn(c, Z[:1])
    along = (Z - Z.mean(axis=0)) @ c.factors[0].T @ c.axes[0]
    vectors = np.linalg.eigh(np.cov(Z.T))[1]
    wanted = (Z - Z.mean(axis=0)) @ vectors[:, D - 1 - axis]
    assert abs(np.corrcoef(along, wanted)[0, 1]) == pytest.approx(1.0, abs=1e-9)
    assert along.std() == pytest.approx(1.0, abs=0.02)


def test_the_first_row_is_shared_by_two_gaussians(Z):
    c = component(Z)
    learn(c, Z[:1], 0.5)
    s = np.clip(c.axes[0] @ c.factors[0] @ (Z[0] - c.means[0]), -4.0, 4.0)
    # Two rows each, with means of -0.8 and 0.8 and a variance of 0.5; predictive variances are 1 + 1/2 times that.
    joint = 0.5 * norm(kernels.SEEDS, np.sqrt(0.75)).pdf(s)
    share, kept = 0.5 * joint / joint.sum(), 1.0 - kernels.FADING
    n = kept * 2.0 + share
    np.testing.assert_allclose(c.along[0, :2, 0], n, rtol=1e-9)
    np.testing.assert_allclose(c.along[0, :2, 1], kernels.SEEDS + share / n * (s - kernels.SEEDS), rtol=1e-9)
    assert c.along[0, 2, 0] == pytest.approx(kept * 2.0 + 0.5)
    assert c.progress[0].tolist() == [0.0, 0.5, 0.0]


def test_two_groups_are_evidence_and_one_is_not():
    rng = np.random.default_rng(1)
    one = rng.normal(size=(600, D))
    two = one.copy()
    two[:, 0] += np.where(rng.random(600) < 0.5, 6.0, 0.0)
    found = {}
    for name, rows in (("one", one), ("two", two)):
        c = component(rows)
        learn(c, rows)
        found[name] = c.progress[0].copy(), np.sort(c.along[0, :2, 1])
    assert found["one"][0][0] < PAYS < 60.0 < found["two"][0][0]
    assert found["two"][0][2] == 0.0  # it stays with the axis that shows them
    assert found["one"][0][2] > 0.0  # it goes on to others
    np.testing.assert_allclose(found["two"][1], np.array([-3.0, 3.0]) / two[:, 0].std(), atol=0.1)


def test_a_component_of_few_rows_does_not_begin(Z):
    c = component(Z[: int(kernels.FIRST_ROWS) + D - 1])
    learn(c, Z[:50])
    assert not c.along.any()
    assert not c.progress.any()


def test_gaps_are_drawn_from_their_conditional_law():
    x, filled, rest = np.array([1.0, np.nan, np.nan]), np.array([1.0, 5.0, -2.0]), np.zeros((D, D))
    rest[1:, 1:] = [[4.0, 1.2], [1.2, 1.0]]
    normals, out = np.random.default_rng(2).normal(size=(4000, D)), np.empty((4000, D))
    for z, drawn in zip(normals, out, strict=True):
        kernels.draw_gaps(x, filled, rest, z, drawn)
    assert (out[:, 0] == 1.0).all()
    np.testing.assert_allclose(out.mean(axis=0), filled, atol=0.1)
    np.testing.assert_allclose(np.cov(out[:, 1:].T), rest[1:, 1:], atol=0.2)
    # Known for certain by the others: nothing is drawn.
    kernels.draw_gaps(x, filled, np.zeros((D, D)), normals[0], out[0])
    np.testing.assert_array_equal(out[0], filled)
