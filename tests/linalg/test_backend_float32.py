"""Blocks in single precision against double: bounded errors, and double precision where those would not do."""

import numpy as np
import pytest

import everlearn
from everlearn.figmn import learn as incremental
from everlearn.figmn import strategy as runs
from everlearn.figmn.estimator import IncrementalGaussianMixture
from everlearn.linalg import backend_float32 as single
from everlearn.linalg.backend import HOST, block_rows
from everlearn.linalg.backend_float32 import MIN_TRIAL, SINGLE
from states import assert_same, mixture, rows_from, settings_for

D = 208


def tolerance(*states):
    """Relative error of a squared distance in the worst direction.

    Sums of n rounded terms err by about sqrt(n) roundings of 2^-24, n = D + b in a block of b rows; |S^-1| says how
    much of that a direction may see. Four such deviations are allowed.
    """
    norm = max(single._inverse_norm(precision) for s in states for precision in s.precisions[: s.n_components])
    return 4.0 * np.sqrt(D + block_rows(D)) * 2.0**-24 * norm


def learn(state, X, settings, device):
    copy = incremental.with_arrays(state, np.copy)
    return incremental.learn(copy, X, np.ones(len(X)), settings, device)


def precise(got, truth):
    """Errors of squared distances to what double precision says, one after the other."""
    return np.abs(got.distance - truth.distance) / (1.0 + truth.distance)


@pytest.fixture
def trials(monkeypatch):
    """Rows that were learned in single precision on trial."""
    rows, function = [], runs._learn_blocks

    def spy(state, all_rows, row, stop, settings, threshold, device, method):
        result = function(state, all_rows, row, stop, settings, threshold, device, method)
        if device is SINGLE:
            rows.append(result[1].row - row)
        return result

    monkeypatch.setattr(runs, "_learn_blocks", spy)
    return rows


@pytest.mark.parametrize(
    "changes", [{}, {"beta": 1e-6}, {"forgetting": 0.999}], ids=["plain", "creating", "forgetting"]
)
def test_errors_are_those_of_rounding(changes, trials):
    rng = np.random.default_rng(0)
    start = mixture(rng, D, 2, spread=3.0, count=300.0)
    X = rows_from(rng, start, 8 * D, outliers=0.005 if "beta" in changes else 0.0)
    settings = settings_for(D, **changes)
    (state, info), (truth, exact) = learn(start, X, settings, SINGLE), learn(start, X, settings, HOST)
    assert sum(trials) > 4 * D
    K = truth.n_components
    assert state.n_components == K
    np.testing.assert_array_equal(state.ages[:K], truth.ages[:K])
    errors = precise(info, exact)
    assert 1e-12 < errors.max() < tolerance(start, truth)
    np.testing.assert_allclose(state.counts[:K], truth.counts[:K], rtol=1e-5)
    np.linalg.cholesky(state.precisions[:K])
    np.testing.assert_array_equal(state.precisions[:K], np.swapaxes(state.precisions[:K], 1, 2))


def test_errors_do_not_pile_up():
    """After hundreds of blocks d^2 errs as after a few: rounding goes with what a block changes."""
    rng = np.random.default_rng(1)
    start = mixture(rng, D, 1, count=200.0, room=0)
    A = rng.normal(size=(D, D)) / np.sqrt(D)
    X = rng.normal(size=(100 * D, D)) @ (A + np.eye(D))
    settings = settings_for(D)
    errors = []
    for n in (8 * D, 100 * D):
        (state, _), (truth, _) = (learn(start, X[:n], settings, device) for device in (SINGLE, HOST))
        E = X[:200] - truth.means[0]
        kept, fresh = (np.einsum("nd,de,ne->n", E, s.precisions[0], E) for s in (state, truth))
        errors.append(np.abs(kept / fresh - 1.0).max())
    assert errors[1] < 3.0 * errors[0]
    assert max(errors) < tolerance(start, truth)


def test_covariances_beyond_single_precision_are_learned_in_double(trials):
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(D, D)))[0]
    covariance = (basis * np.geomspace(1e3, 1e-3, D)) @ basis.T
    start = incremental.from_components(np.full(1, 500.0), np.zeros((1, D)), covariance[None], np.ones(1))
    assert not single.is_sound(start)
    X = rng.normal(size=(5 * D, D)) * np.sqrt(np.geomspace(1e3, 1e-3, D)) @ basis.T
    settings = settings_for(D)
    assert_same(learn(start, X, settings, SINGLE), learn(start, X, settings, HOST), rtol=0.0)
    assert not trials


def test_a_trial_that_fails_is_learned_again_in_double(trials):
    """Rows on a plane turn a round component into one that single precision cannot hold."""
    rng = np.random.default_rng(3)
    start = incremental.from_components(np.full(1, 5.0), np.zeros((1, D)), np.eye(D)[None], np.ones(1))
    X = rng.normal(size=(6 * D, 3)) @ rng.normal(0, 30.0, (3, D)) + 1e-3 * rng.normal(size=(6 * D, D))
    settings = settings_for(D)
    got, truth = learn(start, X, settings, SINGLE), learn(start, X, settings, HOST)
    assert trials
    assert_same(got, truth, rtol=1e-9)


def test_indefinite_and_empty_matrices_are_not_sound():
    state = mixture(np.random.default_rng(4), 5, 2)
    assert single.is_sound(state)
    state.precisions[1, 0, 1] = state.precisions[1, 1, 0] = 100.0
    assert not single.is_sound(state)
    state.precisions[1] = 0.0
    assert not single.is_sound(state)


def test_short_batches_are_learned_in_double(trials):
    rng = np.random.default_rng(5)
    start = mixture(rng, D, 1, count=200.0, room=0)
    X = rows_from(rng, start, MIN_TRIAL * D - 1)
    settings = settings_for(D)
    assert_same(learn(start, X, settings, SINGLE), learn(start, X, settings, HOST), rtol=0.0)
    assert not trials


def test_the_estimator_learns_saves_and_merges_in_single_precision(tmp_path, trials):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(12 * D, D)) @ (np.eye(D) + rng.normal(size=(D, D)) / np.sqrt(D))
    exact = IncrementalGaussianMixture(beta=0.0).fit(X)
    model = IncrementalGaussianMixture(beta=0.0, dtype="float32").fit(X)
    assert sum(trials) > 5 * D
    np.testing.assert_allclose(model.score_samples(X[:50]), exact.score_samples(X[:50]), rtol=1e-4)
    assert model.score_samples(X[:50]).dtype == np.float64
    model.save(tmp_path / "model")
    loaded = everlearn.load(tmp_path / "model")
    assert loaded.dtype == "float32"
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    merged = model + IncrementalGaussianMixture(beta=0.0, dtype="float32").fit(X)
    assert merged.dtype == "float32"
    assert merged.n_samples_seen_ == 24 * D
