"""Learning rows one by one, against components that hold every row and are fitted to all of them anew."""

import numpy as np
import pytest

from everlearn.mixture.keep.world import world_of_rows
from everlearn.mixture.kernels import rows as kernels
from everlearn.mixture.kernels.rows import FARTHEST, Task
from everlearn.mixture.learn import empty_reservoir
from everlearn.monitoring.event_log import UNWATCHED
from mixture_toys import components, frame_of, groups, settings_for, shape_of
from naive.mixtures import FrozenMixture

D, K = 3, 2


def pair(*, threshold=np.inf, room=K, forgetting=1.0, reservoir=0):
    """A task of the kernel and its twin, which know the same 30 rows; the rows are in the coordinates of the frame."""
    Z, label = groups(np.random.default_rng(0), 30, D, K)
    shape, rule = shape_of(D), settings_for(D, threshold=threshold, forgetting=forgetting)
    known = components(Z, np.eye(K)[label], shape, room=room)
    background = world_of_rows(Z, np.ones(30), 1.0).background
    room_for_rows = kernels.block_for(room, D, False)
    task = Task(
        known, shape, background, frame_of(D), empty_reservoir(reservoir, D), rule, None, UNWATCHED, room_for_rows
    )
    everything = background.centre, np.linalg.inv(background.factor.T @ background.factor)
    fading = (rule.fading.every, rule.fading.factor) if forgetting < 1.0 else (1, 1.0)
    twin = FrozenMixture(shape, everything, growth=rule.growth, threshold=threshold, room=room, forgetting=fading)
    for k in range(K):
        twin.add(Z[label == k], np.ones(15))
    twin.total = 30.0
    return task, twin


def more_rows(task, n=60, far=()):
    rng = np.random.default_rng(1)
    Z = task.components.means[rng.integers(K, size=n)] + 1.5 * rng.normal(size=(n, D))
    Z[list(far)] += 25.0
    return Z, rng.uniform(0.5, 2.0, n)


def learn(task, Z, weights):
    """Log-densities and distances of rows, which the kernel gets in the units of the data."""
    out = np.empty((2, len(Z)))
    X = Z / task.frame.inverse + task.frame.centre
    assert kernels.learn_rows(X, weights, kernels.unpack(task), out) == len(Z)
    return out


def compare(task, twin, Z, weights):
    found = learn(task, Z, weights)
    wanted = np.array([twin.learn(x, w) for x, w in zip(Z, weights, strict=True)]).T
    for x, density in zip(Z, wanted[0:1].T, strict=True):
        density -= task.frame.log_scale[~np.isnan(x)].sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    c = task.components
    assert c.size[0] == len(twin.parts)
    assert c.total[0] == pytest.approx(twin.total)
    kernels.refresh_all(c, task.shape)
    for k, part in enumerate(twin.parts):
        twin.fit(part)
        assert c.mass[k] == pytest.approx(part["mass"])
        np.testing.assert_allclose(c.means[k], part["mean"], atol=1e-8)
        np.testing.assert_allclose(np.linalg.inv(c.factors[k].T @ c.factors[k]), part["covariance"], atol=1e-8)


def test_rows_of_any_weight():
    compare(*(both := pair()), *more_rows(both[0]))


def test_a_far_row_opens_a_component_where_there_is_room_and_is_an_outlier_where_there_is_none():
    both = pair(threshold=30.0, room=K + 2)
    compare(*both, *more_rows(both[0], far=(5, 13, 14, 40)))
    assert both[0].components.size[0] > K


def test_gaps_are_filled_by_what_each_component_expects():
    both = pair()
    Z, weights = more_rows(both[0], 40)
    Z[np.random.default_rng(2).random(Z.shape) < 0.3] = np.nan
    Z[:, 0] = np.where(np.isnan(Z).all(axis=1), 0.0, Z[:, 0])
    compare(*both, Z, weights)


def test_the_past_fades_in_steps():
    both = pair(forgetting=0.99)
    Z, weights = more_rows(both[0])
    compare(*both, Z, weights)
    remembered = np.sum(weights * 0.99 ** np.arange(60)[::-1]) + 30.0 * 0.99**60
    assert both[0].components.total[0] == pytest.approx(remembered, rel=0.02)  # rows inside a step weigh the same


def test_a_row_without_a_value_or_weight_teaches_nothing():
    task, _ = pair()
    Z, weights = more_rows(task, 3)
    Z[0], weights[1] = np.nan, 0.0
    kept = [values.copy() for values in task.components]
    found = learn(task, Z[:2], weights[:2])
    assert np.isnan(found).all()
    for values, old in zip(task.components, kept, strict=True):
        np.testing.assert_array_equal(values, old)


def test_any_split_gives_the_same_bits():
    Z, weights = more_rows(pair()[0], far=(5, 40))
    whole, parts = pair(threshold=30.0, room=K + 1)[0], pair(threshold=30.0, room=K + 1)[0]
    learn(whole, Z, weights)
    for cut in np.split(np.arange(60), [1, 4, 13, 37]):
        learn(parts, Z[cut], weights[cut])
    for a, b in zip(whole.components, parts.components, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_machine_code_for_a_handle_learns_the_same_bits():
    results = []
    for as_machine_code in (False, True):
        task, _ = pair(threshold=15.0, room=4)
        Z, weights = more_rows(task, far=[7, 30])
        Z[11, 1] = np.nan
        X, handle = Z / task.frame.inverse + task.frame.centre, kernels.unpack(task)
        X.flags.writeable = False
        learn = kernels.learn_contiguous(handle) if as_machine_code else kernels.learn_rows
        out = np.empty((2, len(X)))
        for t in range(len(X)):
            some = np.empty((2, 1))
            assert learn(X[t : t + 1], weights[t : t + 1], handle, some) == 1
            out[:, t] = some[:, 0]
        results.append((out, *task.components))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_learning_ends_with_the_row_that_takes_the_last_room():
    task, _ = pair(threshold=200.0, room=K + 1)
    task = task._replace(rule=task.rule._replace(stops=True))
    Z, weights = more_rows(task, far=(11,))
    X, out = Z / task.frame.inverse + task.frame.centre, np.empty((2, 60))
    assert kernels.learn_rows(X, weights, kernels.unpack(task), out) == 12


def test_rows_are_offered_to_the_sample_in_the_coordinates_of_the_frame():
    task, _ = pair(reservoir=100)
    Z, weights = more_rows(task)
    apart = empty_reservoir(100, D)
    with np.errstate(over="ignore"):  # of hashed row numbers, where kernels are not compiled
        learn(task, Z, weights)
        kernels.sample_rows(Z / task.frame.inverse + task.frame.centre, weights, task.frame, apart, task.rule)
    for sample in (task.reservoir, apart):
        assert sample.size[0] == sample.offered[0] == 60
        np.testing.assert_allclose(sample.rows[:60], Z, atol=1e-5)
        np.testing.assert_allclose(np.exp(sample.log_weights[:60]), weights)


def test_a_cell_beyond_all_bounds_leaves_finite_numbers():
    task, _ = pair(threshold=30.0)
    Z, weights = more_rows(task, 5)
    Z[2, 1] = 1e300
    found = learn(task, Z, weights)
    assert np.isfinite(found).all()
    assert np.sqrt(found[1, 2]) < 10.0 * FARTHEST
    assert np.isfinite(task.components.scatter).all()
