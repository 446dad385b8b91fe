"""Learning rows one after the other, against dense Gaussians; what strange rows and gaps do."""

import numpy as np
import pytest
from scipy.special import logsumexp

from everlearn.base.snapshot import copied
from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.kernels import rows as kernels
from everlearn.low_rank.kernels.fold import fold
from everlearn.low_rank.kernels.rows import SMALL, Chunk
from everlearn.low_rank.state import (
    Frame,
    Rule,
    Settings,
    empty_reservoir,
    joined,
    model_of,
    readout_of,
    squared_distances,
)
from low_rank_toys import dense, one
from naive import low_rank as naive

D, K = 12, 2
SETTINGS = Settings(4, 40, 50, 0, 6, 0, 64, 1.0, 2**60, 0)
RULE = Rule(1.0, 40, 0.98, 3.0, 100.0, 0)


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    parts = [component_of_rows(one(rng, 200, D) + 4.0 * k, np.ones(200), SETTINGS) for k in range(K)]
    return model_of(joined(parts), SETTINGS, empty_reservoir(0, D))


def chunk_of(model, n=30, gaps=0.0):
    rng = np.random.default_rng(1)
    Z = one(rng, n, D) + 4.0 * rng.integers(K, size=(n, 1))
    Z[rng.random(Z.shape) < gaps] = np.nan
    readout = readout_of(model.components, 1.0)
    return Chunk(Z, rng.uniform(0.5, 2.0, n), np.empty(n), np.empty(n)), readout


def walk(chunk, start, model, readout, rule=RULE):
    distance = squared_distances(chunk.rows[start:], readout)
    return kernels.walk(chunk, start, len(chunk.rows), distance, model, readout.log_det, rule)


def shares(x, mass, c, readout):
    """Log-density and responsibilities by dense matrices; small ones are nothing, and the others scaled up."""
    joint = np.log(mass) + [naive.log_density(x, c.mean[j], dense(c, readout, j)) for j in range(K)]
    p = np.exp(joint - logsumexp(joint))
    p = np.where(p > SMALL, p, 0.0)
    return logsumexp(joint) - np.log(mass.sum()), p / p.sum()


def test_rows_are_counted_and_wait_for_their_components(model):
    chunk, readout = chunk_of(model)
    c, mass, distance = model.components, model.components.mass.copy(), squared_distances(chunk.rows, readout)
    assert walk(chunk, 0, model, readout) == 30
    lists, roots = [[] for _ in range(K)], []
    for t, (x, w) in enumerate(zip(chunk.rows, chunk.weights, strict=True)):
        density, p = shares(x, mass, c, readout)
        assert chunk.log_density[t] == pytest.approx(density, rel=1e-9)
        mass = mass * RULE.fading + p * w
        roots.append(np.cbrt(distance[t, np.argmax(p)]))
        for j in np.flatnonzero(p):
            lists[j].append((p[j] * w, x))
    np.testing.assert_allclose(c.mass, mass, rtol=1e-9)
    for j, rows in enumerate(lists):
        assert model.waiting.size[j] == len(rows)
        np.testing.assert_allclose(model.waiting.weights[j, : len(rows)], [w for w, _ in rows], rtol=1e-7)
        np.testing.assert_array_equal(model.waiting.rows[j, : len(rows)], [x for _, x in rows])
    # The calibration is the mean and variance of the cube roots so far.
    np.testing.assert_allclose(model.calibration, [30.0, np.mean(roots), np.var(roots)], rtol=1e-9)
    assert chunk.z[29] == pytest.approx((roots[29] - np.mean(roots[:29])) / np.std(roots[:29]))


def test_a_walk_ends_when_a_fold_is_due(model):
    """A quarter of the rows that a component has, or as many as may wait."""
    chunk, readout = chunk_of(model)
    at = walk(chunk, 0, model, readout, RULE._replace(quota=5))
    assert at < 30
    assert model.waiting.size.max() == 5
    model.components.n[:] = 6.0
    model.waiting.size[:] = 0
    walk(chunk, at, model, readout)
    assert model.waiting.size.max() == 2


def test_strange_rows_go_to_the_room_once_there_is_a_calibration(model):
    chunk, readout = chunk_of(model)
    chunk.rows[3] += 50.0
    usual = np.cbrt(np.delete(squared_distances(chunk.rows, readout).min(axis=1), 3))
    model.calibration[:] = 150.0, usual.mean(), (2.0 * usual.std()) ** 2
    walk(chunk, 0, model, readout)
    assert model.room.size[0] == 1
    np.testing.assert_array_equal(model.room.rows[0], chunk.rows[3])
    assert model.calibration[0] == 179.0  # it does not calibrate
    assert not (model.waiting.rows == chunk.rows[3]).all(axis=2).any()
    # A few rows are no calibration.
    model.calibration[0], model.waiting.size[:] = 50.0, 0
    walk(chunk, 3, model, readout)
    assert model.room.size[0] == 1


def test_gaps_are_filled_by_conditional_means_and_their_covariance_is_kept(model):
    chunk, readout = chunk_of(model, 1, gaps=0.4)
    x, w, c, waiting = chunk.rows[0], chunk.weights[0], model.components, model.waiting
    gaps = np.flatnonzero(np.isnan(x))
    assert 2 <= len(gaps) < D
    density, p = shares(x, c.mass, c, readout)
    kernels.learn_row_with_gaps(chunk, 0, model, readout, RULE)
    assert chunk.log_density[0] == pytest.approx(density, rel=1e-9)
    for j in np.flatnonzero(p):
        C = dense(c, readout, j)
        mean, rest = naive.conditional(x, c.mean[j], C)
        np.testing.assert_allclose(waiting.rows[j, 0, gaps], mean, rtol=1e-8)
        # The read-out is that of a new row, wider by 1/n; what is learned is not.
        learned = p[j] * w * rest / (1.0 + 1.0 / c.n[j])
        np.testing.assert_allclose(waiting.variance[j, gaps], np.diag(learned), rtol=1e-8)
        U = c.directions[j, : c.used[j]][:, gaps]
        noise = p[j] * w / (1.0 + 1.0 / c.n[j]) * np.diag(1.0 / readout.inverse_psi[j, gaps])
        found = waiting.along[j, : c.used[j], : c.used[j]]
        np.testing.assert_allclose(found, U @ (learned - noise) @ U.T, atol=1e-9)


def test_squared_distances_are_those_of_dense_algebra(model):
    chunk, readout = chunk_of(model)
    c, out = model.components, np.full((30, K), -1.0)
    kernels.squared_distances(chunk.rows, readout, 1, 2, out)
    assert (out[:, 0] == -1.0).all()
    E = chunk.rows - c.mean[1]
    expected = np.einsum("nd,nd->n", E, np.linalg.solve(dense(c, readout, 1), E.T).T)
    np.testing.assert_allclose(out[:, 1], expected, rtol=1e-9)


def test_a_block_learns_as_its_rows_one_by_one(model):
    """Scored together, folded where it is due, and scored anew: as if every row had been scored by itself."""
    rule = RULE._replace(quota=5)
    chunk, readout = chunk_of(model, n=100)
    own, told = copied(model), chunk._replace(z=np.empty(100), log_density=np.empty(100))
    assert kernels.learn_block(chunk, 0, model, readout, rule) == 100
    for t in range(100):
        fresh = readout_of(own.components, rule.prior_noise)
        distance = squared_distances(chunk.rows[t : t + 1], fresh)
        kernels.walk(told, t, t + 1, distance, own, fresh.log_det, rule)
        for j in range(K):
            if own.waiting.size[j] == rule.quota:
                fold(own.components, own.waiting, j, rule.fading)
    np.testing.assert_allclose(chunk.log_density, told.log_density, rtol=1e-9)
    np.testing.assert_allclose(model.calibration, own.calibration, rtol=1e-9)
    np.testing.assert_array_equal(model.waiting.size, own.waiting.size)
    for values, expected in zip(model.components, own.components, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-9)


def test_a_block_ends_where_the_room_is_full(model):
    chunk, readout = chunk_of(model)
    chunk.rows[2:] += 50.0
    model.calibration[:] = 150.0, 3.0, 1.0
    assert kernels.learn_block(chunk, 0, model, readout, RULE) == 2 + len(model.room.weights)


def test_rows_in_the_frame_stay_finite_and_keep_their_gaps():
    X = np.array([[1.0, 5.0], [np.nan, 1e300], [3.0, -1e300]])
    frame, out = Frame(np.array([1.0, 1.0]), np.array([0.5, 2.0]), np.zeros(2)), np.empty((3, 2))
    assert kernels.to_frame(X, frame, 1e15, out).tolist() == [False, True, False]
    np.testing.assert_array_equal(out, [[0.0, 8.0], [np.nan, 1e15], [1.0, -1e15]])
