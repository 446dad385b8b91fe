"""The recursion of the block algorithm and the stacked linear algebra against slow twins."""

import numpy as np
import pytest

import naive
from everlearn.figmn.kernels import blocks as block
from everlearn.figmn.kernels.blocks import BlockComponents, Limits, RowAssignment
from everlearn.figmn.state import Rows
from everlearn.linalg import dense as linalg
from states import settings_for

NOTHING = np.empty((0, 0))


def assignment_of(P, room_left):
    """Each component takes each row; P is (K, b, b)."""
    K, b, _ = P.shape
    room = K + room_left
    first = np.arange(room) * b
    assigned = RowAssignment(
        first=first,
        size=np.full(room, b),
        at=first * b,
        rows=np.tile(np.arange(b), room),
        diagonal=np.zeros(room * b),
        origin=np.zeros(room * b),
        gains=np.zeros(room * b),
        learned=np.zeros(room * b, dtype=np.int64),
        n_learned=np.zeros(room, dtype=np.int64),
        P=np.concatenate([P.ravel(), np.zeros(room_left * b * b)]),
        lower=NOTHING,
    )
    assigned.diagonal[: K * b] = np.einsum("jii->ji", P).ravel()
    assigned.origin[:] = assigned.diagonal
    return assigned


def components_of(counts, log_dets, room_left):
    room = len(counts) + room_left
    more = np.zeros(room_left)
    return BlockComponents(
        counts=np.concatenate([counts, more]),
        ages=np.zeros(room),
        log_dets=np.concatenate([log_dets, more]),
        thinness=np.zeros(room),
        share=np.ones(room),
        alive=np.arange(room) < len(counts),
        created_at=np.full(room, -1),
        height=np.zeros(room),
        shrink=np.ones(room),
    )


def problem(rng, K, b, D):
    X, means = rng.normal(0, 2, (b, D)), rng.normal(size=(K, D))
    A = rng.normal(size=(K, D, D))
    precisions = A @ np.swapaxes(A, 1, 2) + np.eye(D)
    E = X[None] - means[:, None]
    return X, precisions, 1.0 + E @ precisions @ np.swapaxes(E, 1, 2)


def run(X, P, counts, log_dets, *, room_left=0, threshold=np.inf, forgetting=1.0, prune=(np.inf, 0.0)):
    b, D = X.shape
    assigned, components = assignment_of(P, room_left), components_of(counts, log_dets, room_left)
    density, distance = np.zeros(b), np.zeros(b)
    settings = settings_for(D, initial_variance=np.full(D, 0.5), thresholds=np.full(D + 1, threshold))
    settings = settings._replace(forgetting=forgetting, min_age=prune[0], min_count=prune[1])
    rows, limits = Rows(X, np.ones(b), density, distance), Limits(len(counts) + room_left, 1e-8)
    done, n = block.learn_block(rows, len(counts), settings, limits, assigned, components)
    return done, n, assigned, components, density, distance


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_recursion_equals_its_twin(forgetting):
    rng = np.random.default_rng(0)
    X, precisions, P = problem(rng, 3, 14, 4)
    counts, log_dets = np.array([3.0, 9.0, 30.0]), -np.linalg.slogdet(precisions)[1]
    done, n, _, components, density, distance = run(X, P, counts, log_dets, forgetting=forgetting)
    twin = naive.HomogeneousBlock(P, counts, log_dets, forgetting)
    for t in range(14):
        twin.learn(t, D=4)
    assert (done, n) == (14, 3)
    np.testing.assert_allclose(distance, twin.distances, rtol=1e-10)
    np.testing.assert_allclose(density, twin.log_densities, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(components.counts, twin.counts, rtol=1e-12)
    np.testing.assert_allclose(components.log_dets, twin.log_dets, rtol=1e-10)
    np.testing.assert_allclose(components.share, twin.shares, rtol=1e-12)


def test_factor_is_the_cholesky_factor_of_the_block():
    """R'R = P + diag(a/w), a taken after each row."""
    rng = np.random.default_rng(1)
    X, precisions, P = problem(rng, 1, 12, 3)
    _, _, assigned, _, _, _ = run(X, P, np.array([5.0]), -np.linalg.slogdet(precisions)[1])
    R = np.triu(assigned.P.reshape(12, 12))
    np.testing.assert_allclose(R.T @ R, P[0] + np.diag(1.0 / assigned.gains), rtol=1e-10)


def test_created_components_take_the_rows_after_them_and_ended_ones_are_marked():
    rng = np.random.default_rng(2)
    X, precisions, P = problem(rng, 1, 10, 2)
    X[4] += 50.0
    E = X - np.zeros(2)
    P[0] = 1.0 + E @ precisions[0] @ E.T
    done, n, assigned, components, _, distance = run(
        X, P, np.array([20.0]), np.zeros(1), room_left=3, threshold=600.0, prune=(3.0, 2.0)
    )
    assert (done, n) == (10, 2)
    assert distance[4] >= 600.0
    assert components.created_at.tolist() == [-1, 4, -1, -1]
    assert assigned.size[1] == 5
    assert components.alive.tolist() == [True, False, False, False]


def test_a_block_without_room_stops_before_the_row():
    rng = np.random.default_rng(3)
    X, _, P = problem(rng, 1, 10, 2)
    done, n, _, components, _, _ = run(X, P, np.array([20.0]), np.zeros(1), room_left=0, threshold=1e-3)
    assert (done, n) == (0, 1)
    assert components.counts[0] == 20.0


def test_rows_that_were_not_learned_leave_the_solve():
    rng = np.random.default_rng(4)
    R = np.triu(rng.normal(size=(2, 5, 5))) + 3.0 * np.eye(5)
    Y = rng.normal(size=(2, 5, 3))
    learned = np.array([[True, False, True, True, False], [True, True, True, True, True]])
    expected = [np.linalg.solve(R[j][np.ix_(u, u)].T, Y[j][u]) for j, u in enumerate(learned)]
    Y[~learned] = 0.0
    block.mask_rows(R, learned)
    linalg.solve_stack(R, Y)
    for j, u in enumerate(learned):
        np.testing.assert_allclose(Y[j][u], expected[j], rtol=1e-10)
        np.testing.assert_array_equal(Y[j][~u], 0.0)


@pytest.mark.parametrize(("D", "m"), [(1, 1), (2, 3), (5, 9), (6, 4)])
def test_stacked_linear_algebra(D, m):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(2, D, D))
    A = A + np.swapaxes(A, 1, 2)
    Z, scale = rng.normal(size=(2, m, D)), np.array([2.0, 0.5])
    expected = (A - np.swapaxes(Z, 1, 2) @ Z) * scale[:, None, None]
    linalg.downdate_stack(A, Z, scale)
    np.testing.assert_allclose(A, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(A, np.swapaxes(A, 1, 2))
    R = np.triu(rng.normal(size=(2, m, m))) + 3.0 * np.eye(m)
    np.testing.assert_allclose(linalg.invert_upper(R), np.linalg.inv(R), rtol=1e-9, atol=1e-12)
    upper = np.triu(A[0])
    linalg.mirror_upper(upper)
    np.testing.assert_array_equal(upper, A[0])
    np.testing.assert_array_equal(linalg.subtract_stack(Z[0], Z[1, :1]), (Z[0] - Z[1, 0])[None])
