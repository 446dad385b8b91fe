"""Sharing out a block of rows, against the kernel that learns them one by one."""

import numpy as np
import pytest

from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import rows as kernels
from everlearn.mixture.kernels.rows import Task
from everlearn.mixture.kernels.walk import Block, walk
from everlearn.mixture.learn import empty_reservoir
from everlearn.monitoring.event_log import UNWATCHED
from mixture_toys import components, frame_of, groups, settings_for, shape_of

D, K, ROOM, N = 4, 2, 4, 90


def task_for(*, threshold=np.inf, forgetting=1.0):
    Z, label = groups(np.random.default_rng(0), 400, D, K)
    shape, rule = shape_of(D), settings_for(D, threshold=threshold, forgetting=forgetting)
    known = components(Z, np.eye(K)[label], shape, room=ROOM)
    background = world_of_rows(Z, np.ones(len(Z)), 1.0).background
    room = kernels.block_for(ROOM, D, False)
    return Task(known, shape, background, frame_of(D), empty_reservoir(10, D), rule, None, UNWATCHED, room)


def rows_for(task, far=()):
    rng = np.random.default_rng(1)
    Z = task.components.means[rng.integers(K, size=N)] + rng.normal(size=(N, D))
    Z[list(far)] += 30.0
    return Z, Z / task.frame.inverse + task.frame.centre, rng.uniform(0.5, 2.0, N)


def block_for(task, Z):
    """A block of rows with their distances, by the factors themselves."""
    c = task.components
    C, distances = len(c.mass), np.full((len(Z), ROOM), np.nan)
    for k in range(c.size[0]):
        distances[:, k] = (((Z - c.means[k]) @ np.tril(c.factors[k]).T) ** 2).sum(axis=1)
    added, due = np.zeros(C, np.int64), np.zeros(C, np.bool_)
    return Block(distances, np.zeros((len(Z), C)), added, due, np.empty(D), np.empty(D), np.empty(C + 1))


def walked(task, Z, X, weights):
    block, out = block_for(task, Z), np.full((2, len(Z)), np.nan)
    with np.errstate(over="ignore"):  # of hashed row numbers, where kernels are not compiled
        return walk(0, X, weights, kernels.unpack(task), block, out), block, out


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_rows_tell_and_count_as_one_by_one(forgetting):
    task, other = task_for(forgetting=forgetting), task_for(forgetting=forgetting)
    Z, X, weights = rows_for(task)
    end, block, out = walked(task, Z, X, weights)
    assert 0 < end <= N
    wanted = np.empty((2, end))
    with np.errstate(over="ignore"):
        kernels.learn_rows(X[:end], weights[:end], kernels.unpack(other), wanted)
    np.testing.assert_allclose(out[:, :end], wanted, rtol=1e-10)
    mine, theirs = task.components, other.components
    np.testing.assert_allclose(mine.mass, theirs.mass, rtol=1e-12)
    np.testing.assert_allclose(mine.total, theirs.total, rtol=1e-12)
    np.testing.assert_array_equal(task.reservoir.rows, other.reservoir.rows)
    # What is not added yet, added by hand, is what the other has; one that is due has been refreshed there.
    for k in np.flatnonzero(~block.due[:K]):
        shift = mine.shift[k] + block.shares[:end, k] @ (Z[:end] - mine.means[k])
        np.testing.assert_allclose(shift, theirs.shift[k], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(mine.fresh[k], theirs.fresh[k], rtol=1e-12)


def test_it_stops_after_the_row_by_which_a_component_has_grown():
    task = task_for()
    Z, X, weights = rows_for(task)
    end, block, _ = walked(task, Z, X, weights)
    c, growth = task.components, task.rule.growth
    assert end < N
    assert block.due.any()
    before = c.fresh[:K] - block.shares[end - 1, :K]
    for k in range(K):
        assert block.due[k] == (c.fresh[k] > growth * c.counts[k] + 0.5)
        assert before[k] <= growth * c.counts[k] + 0.5


def test_a_row_beyond_all_components_opens_one_and_ends_the_walk():
    task = task_for(threshold=50.0)
    Z, X, weights = rows_for(task, far=[3])
    end, block, out = walked(task, Z, X, weights)
    c = task.components
    assert end == 4
    assert c.size[0] == K + 1
    assert list(block.due) == [False, False, True, False]
    np.testing.assert_allclose(c.means[K], Z[3])
    assert np.isfinite(out[0, 3])
    assert not block.shares[3].any()
