"""Learning rows one after the other, against dense Gaussians; what strange rows and gaps do."""

import numpy as np
import pytest
from scipy.special import logsumexp

from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.kernels import rows as kernels
from everlearn.low_rank.kernels.rows import SMALL, Chunk
from everlearn.low_rank.state import Rule, Settings, empty_reservoir, joined, model_of, readout_of, squared_distances
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
    return Chunk(Z, rng.uniform(0.5, 2.0, n), squared_distances(Z, readout), np.empty(n), np.empty(n)), readout


def shares(x, mass, c, readout):
    """Log-density and responsibilities by dense matrices; small ones are nothing, and the others scaled up."""
    joint = np.log(mass) + [naive.log_density(x, c.mean[j], dense(c, readout, j)) for j in range(K)]
    p = np.exp(joint - logsumexp(joint))
    p = np.where(p > SMALL, p, 0.0)
    return logsumexp(joint) - np.log(mass.sum()), p / p.sum()


def test_rows_are_counted_and_wait_for_their_components(model):
    chunk, readout = chunk_of(model)
    c, mass = model.components, model.components.mass.copy()
    assert kernels.walk(chunk, 0, model, readout.log_det, RULE) == 30
    lists, roots = [[] for _ in range(K)], []
    for t, (x, w) in enumerate(zip(chunk.rows, chunk.weights, strict=True)):
        density, p = shares(x, mass, c, readout)
        assert chunk.log_density[t] == pytest.approx(density, rel=1e-9)
        mass = mass * RULE.fading + p * w
        roots.append(np.cbrt(chunk.distance[t, np.argmax(p)]))
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
    at = kernels.walk(chunk, 0, model, readout.log_det, RULE._replace(quota=5))
    assert at < 30
    assert model.waiting.size.max() == 5
    model.components.n[:] = 6.0
    model.waiting.size[:] = 0
    kernels.walk(chunk, at, model, readout.log_det, RULE)
    assert model.waiting.size.max() == 2


def test_strange_rows_go_to_the_room_once_there_is_a_calibration(model):
    chunk, readout = chunk_of(model)
    chunk.rows[3] += 50.0
    chunk = chunk._replace(distance=squared_distances(chunk.rows, readout))
    usual = np.cbrt(np.delete(chunk.distance.min(axis=1), 3))
    model.calibration[:] = 150.0, usual.mean(), (2.0 * usual.std()) ** 2
    kernels.walk(chunk, 0, model, readout.log_det, RULE)
    assert model.room.size[0] == 1
    np.testing.assert_array_equal(model.room.rows[0], chunk.rows[3])
    assert model.calibration[0] == 179.0  # it does not calibrate
    assert not (model.waiting.rows == chunk.rows[3]).all(axis=2).any()
    # A few rows are no calibration.
    model.calibration[0], model.waiting.size[:] = 50.0, 0
    kernels.walk(chunk, 3, model, readout.log_det, RULE)
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
