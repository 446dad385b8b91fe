"""A window that is assigned ahead of its folds, walked to its first one, against the walk row by row."""

import numpy as np

from everlearn.base.snapshot import copied
from everlearn.low_rank.device import _empty_plan
from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.kernels import ahead
from everlearn.low_rank.kernels.ahead import Lists, Window
from everlearn.low_rank.kernels.rows import Chunk, walk
from everlearn.low_rank.state import Rule, Settings, empty_reservoir, joined, model_of, readout_of, squared_distances

D, Q, W, K = 12, 3, 8, 2
SETTINGS = Settings(Q, W, 50, 100, 16, 0, 8, 1.0, 2**60, 0)
RULE = Rule(0.7, W, 0.999, 3.09, 5.0, 0)


def start():
    rng = np.random.default_rng(0)
    parts = [component_of_rows(rng.normal(size=(60, D)) + 0.7 * k, np.ones(60), SETTINGS) for k in range(K)]
    model = model_of(joined(parts), SETTINGS, empty_reservoir(0, D))
    X = rng.normal(size=(40, D)) + 0.7 * rng.integers(K, size=(40, 1))
    X[4] += 30.0  # for the room, once there is a calibration
    model.calibration[:] = 50.0, 2.2, 0.05
    return model, X, rng.uniform(0.5, 2.0, 40)


def test_up_to_the_first_fold_it_is_the_walk_row_by_row():
    model, X, weights = start()
    readout = readout_of(model.components, RULE.prior_noise)
    d2 = squared_distances(X, readout)
    z, density = np.empty(40), np.empty(40)
    plan = _empty_plan(K, W, 16)
    none = Lists(np.zeros((K, W), np.int64), np.zeros((K, W)), np.zeros(K, np.int64))
    log_det = np.stack([readout.log_det] * 2)
    window = Window(weights, d2, d2, log_det, np.zeros(K, np.bool_), z, density, D)
    before = copied(model)
    ahead.walk_ahead(window, 40, none, model, RULE, plan)
    first = int(plan.fold_row[plan.fold_row >= 0].min())
    # The walk itself leaves the model alone.
    np.testing.assert_array_equal(before.waiting.size, model.waiting.size)
    np.testing.assert_array_equal(before.calibration, model.calibration)
    chunk = Chunk(X, weights, np.empty(40), np.empty(40))
    assert walk(chunk, 0, 40, d2, model, readout.log_det, RULE) == first + 1
    np.testing.assert_allclose(chunk.z[: first + 1], z[: first + 1], rtol=1e-12)
    np.testing.assert_allclose(chunk.log_density[: first + 1], density[: first + 1], rtol=1e-12)
    j = int(np.flatnonzero(plan.fold_row == first)[0])
    size = int(model.waiting.size[j])
    assert plan.folded.size[j] == size
    np.testing.assert_array_equal(X[plan.folded.rows[j, :size] - K * W], model.waiting.rows[j, :size])
    np.testing.assert_allclose(plan.folded.weights[j, :size], model.waiting.weights[j, :size], rtol=1e-12)
    assert plan.room[: plan.counts[0]].tolist() == [4]
    np.testing.assert_array_equal(model.room.rows[0], X[4])


def test_a_fold_is_wrong_until_it_was_tried_with_the_rows_that_it_has():
    model, X, weights = start()
    readout = readout_of(model.components, RULE.prior_noise)
    d2 = squared_distances(X, readout)
    plan = _empty_plan(K, W, 16)
    tried = Lists(np.zeros((K, W), np.int64), np.zeros((K, W)), np.zeros(K, np.int64))
    log_det = np.stack([readout.log_det] * 2)
    window = Window(weights, d2, d2, log_det, np.ones(K, np.bool_), np.empty(40), np.empty(40), D)
    ahead.walk_ahead(window, 40, tried, model, RULE, plan)
    assert plan.wrong.any()
    assert plan.counts[1] == plan.fold_row[plan.wrong].min()
    tried = copied(plan.folded)
    stop = ahead.walk_ahead(window, 40, tried, model, RULE, plan)
    assert not plan.wrong.any()
    assert plan.counts[1] == -1
    assert stop < 40  # before the row that would fold a component again
    tried.weights[0, 0] += 1e-6
    ahead.walk_ahead(window, 40, tried, model, RULE, plan)
    assert plan.wrong.tolist() == [True, False]
