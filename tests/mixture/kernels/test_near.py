"""EM with the components near each row: the same steps as with all of them, where those left out have no share."""

import numpy as np
import pytest

from everlearn.mixture.kernels import em, fitting
from everlearn.mixture.kernels import near as kernels
from everlearn.mixture.kernels.fitting import MANY_COMPONENTS, UNMARKED
from everlearn.mixture.kernels.near import Near
from mixture_toys import groups, rows_of, shape_of


def case(D, K, *, n=150, apart=8.0, soft=1e-4, background=False, diagonal=False):
    """Rows of K groups, their responsibilities, and a prior."""
    rng = np.random.default_rng([D, K])
    Z, label = groups(rng, n, D, K, apart)
    rows = rows_of(Z, rng.uniform(0.5, 2.0, n), background=background)
    return rows, (1.0 - soft) * np.eye(K)[label] + soft / K, shape_of(D, diagonal=diagonal)


def all_pairs(R):
    """A sparse matrix in which nothing is left out."""
    m, K = R.shape
    return Near(np.arange(K + 1) * m, np.tile(np.arange(m), K), np.empty(m * K), R.T.ravel().copy())


def marked(rows, R, shape):
    """Responsibilities after one step with all components, and the sparse matrix of those near each row."""
    R, marks = R.copy(), np.empty(R.shape)
    known = em.gaussians_of(em.moments_of(rows, R), shape)
    em.expect(rows, known, R, np.empty(len(R)), 0, len(R), marks)
    return R, marks, fitting.near_of(marks, R)


def step(rows, moments, near, shape):
    density = np.empty(len(rows.Z))
    kernels.take_joints(rows, em.gaussians_of(moments, shape), near, 0, len(near.bounds) - 1)
    kernels.share_rows(rows, near, density)
    return density


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(("D", "K"), [(1, 2), (3, 5), (9, 3)])
def test_with_all_pairs_a_step_is_one_with_all_components(D, K, background):
    rows, R, shape = case(D, K, apart=1.5, soft=0.2, background=background)
    near, wanted, density = all_pairs(R), R.copy(), np.empty(len(R))
    for a, b in zip(kernels.moments_of(rows, near), em.moments_of(rows, R), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    moments = em.moments_of(rows, R)
    em.expect(rows, em.gaussians_of(moments, shape), wanted, density, 0, len(R), UNMARKED)
    np.testing.assert_allclose(step(rows, moments, near, shape), density, rtol=1e-12)
    np.testing.assert_allclose(kernels.dense(near, len(R)), wanted, atol=1e-12)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("background", [False, True])
def test_with_all_pairs_rows_are_left_out_as_with_all_components(background, diagonal):
    rows, R, shape = case(4, 3, apart=1.5, soft=0.2, background=background, diagonal=diagonal)
    near, moments, wanted, found = all_pairs(R), em.moments_of(rows, R), np.empty(len(R)), np.empty(len(R))
    known = em.gaussians_of(moments, shape)
    em.leave_one_out(rows, R, em.parts_of(rows, moments, known, shape), wanted, 0, UNMARKED)
    kernels.take_joints(rows, known, near, 0, 3)
    kernels.leave_one_out(rows, near, em.parts_of(rows, moments, known, shape), found)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("D", [2, 5, 30])
def test_near_components_are_those_within_so_many_nats_of_the_best(D):
    """Columns enough that components are left after a third of them, too."""
    rows, R, shape = case(D, MANY_COMPONENTS + 4, n=300)
    _, marks, near = marked(rows, R, shape)
    known = em.gaussians_of(em.moments_of(rows, R), shape)
    joints = known.heights - 0.5 * np.array(
        [
            [np.square(F @ (z - m)).sum() for m, F in zip(known.means, np.tril(known.factors), strict=True)]
            for z in rows.Z
        ]
    )
    behind = joints - joints.max(axis=1, keepdims=True)
    np.testing.assert_array_equal(marks, behind > -em.FAR)
    assert 0.0 < marks.mean() < fitting.SPARSE
    for k in range(R.shape[1]):
        np.testing.assert_array_equal(near.rows[near.bounds[k] : near.bounds[k + 1]], np.flatnonzero(marks[:, k]))


@pytest.mark.parametrize("D", [2, 6])
def test_several_sparse_steps_are_several_dense_ones(D):
    rows, R, shape = case(D, MANY_COMPONENTS + 4, n=400)
    R, _, near = marked(rows, R, shape)
    assert len(near.rows) < 0.5 * R.size
    moments = em.moments_of(rows, R)
    few = kernels.moments_of(rows, near)
    np.testing.assert_allclose(few.counts, moments.counts, rtol=1e-9)
    for _ in range(5):
        density = np.empty(len(R))
        em.expect(rows, em.gaussians_of(moments, shape), R, density, 0, len(R), UNMARKED)
        np.testing.assert_allclose(step(rows, few, near, shape), density, atol=1e-5)
        moments, few = em.moments_of(rows, R), kernels.moments_of(rows, near)
    np.testing.assert_allclose(kernels.dense(near, len(R)), R, atol=1e-5)
    known, wanted, found = em.gaussians_of(moments, shape), np.empty(len(R)), np.empty(len(R))
    em.leave_one_out(rows, R, em.parts_of(rows, moments, known, shape), wanted, 0, UNMARKED)
    kernels.take_joints(rows, known, near, 0, R.shape[1])
    kernels.leave_one_out(rows, near, em.parts_of(rows, moments, known, shape), found)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_leaving_out_marks_the_same_components_as_a_step():
    rows, R, shape = case(3, MANY_COMPONENTS + 4)
    moments, found, wanted = em.moments_of(rows, R), np.empty(R.shape), np.empty(R.shape)
    known = em.gaussians_of(moments, shape)
    em.leave_one_out(rows, R, em.parts_of(rows, moments, known, shape), np.empty(len(R)), 0, found)
    em.expect(rows, known, R.copy(), np.empty(len(R)), 0, len(R), wanted)
    np.testing.assert_array_equal(found, wanted)


def test_joints_can_be_taken_some_components_at_a_time():
    rows, R, shape = case(3, 5)
    known, whole, parts = em.gaussians_of(em.moments_of(rows, R), shape), all_pairs(R), all_pairs(R)
    kernels.take_joints(rows, known, whole, 0, 5)
    for first, last in ((0, 2), (2, 3), (3, 5)):
        kernels.take_joints(rows, known, parts, first, last)
    np.testing.assert_array_equal(parts.joints, whole.joints)


def test_a_row_that_nothing_explains_has_no_density():
    """No component is left of which more than the row itself would remain, and nothing stands behind."""
    rows, R, shape = case(2, 1, n=1)
    near, out = all_pairs(R), np.empty(1)
    moments = em.moments_of(rows, R)
    known = em.gaussians_of(moments, shape)
    kernels.take_joints(rows, known, near, 0, 1)
    kernels.leave_one_out(rows, near, em.parts_of(rows, moments, known, shape), out)
    assert out[0] == -np.inf


def test_a_new_component_is_near_the_rows_that_its_parents_were_near():
    marks = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    bounds, own, _ = em.rows_by_component(np.ones(5), marks)
    near = Near(bounds, own, np.empty(len(own)), np.ones(len(own)))
    found = kernels.inherit(near, [[0], [0], [1, 2]])
    rows = [found.rows[a:b].tolist() for a, b in zip(found.bounds[:-1], found.bounds[1:], strict=True)]
    assert rows == [[0, 2], [0, 2], [0, 1, 2, 3]]
    assert not found.shares.any()
    assert kernels.inherit(None, [[0]]) is None


def test_a_sparse_matrix_pays_where_few_pairs_are_marked():
    R = np.full((10, 10), 0.1)
    assert fitting.near_of(UNMARKED, R) is None
    assert fitting.near_of(np.ones((10, 10)), R) is None
    near = fitting.near_of(np.eye(10), R)
    np.testing.assert_array_equal(near.rows, np.arange(10))
    np.testing.assert_array_equal(near.shares, np.full(10, 0.1))
    assert fitting.may_be_sparse(8, MANY_COMPONENTS)
    assert not fitting.may_be_sparse(8, MANY_COMPONENTS - 1)
    assert not fitting.may_be_sparse(fitting.MANY_COLUMNS, 50)
