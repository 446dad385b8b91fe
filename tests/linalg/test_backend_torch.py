"""The block algorithm with its matrices on a device of torch's, here the processor, against this machine's own BLAS."""

import importlib.util

import numpy as np
import pytest

from everlearn import FIGMN, load
from everlearn.errors import InputError, MissingExtraError
from everlearn.figmn import ask as scoring
from everlearn.figmn import cost_model
from everlearn.figmn import learn as incremental
from everlearn.figmn import state as states
from everlearn.figmn.cost_model import Method
from everlearn.linalg import backend_torch as torch_device
from everlearn.linalg.backend import HOST

needs_torch = pytest.mark.torch


def settings_for(D, *, beta=0.0, **changes):
    plain = states.Settings(
        np.zeros(D),
        np.linspace(0.4, 0.6, D),
        states.novelty_thresholds(beta, D),
        False,
        1.0,
        np.inf,
        0.0,
        50,
        np.zeros(D),
    )  # fmt: skip
    return plain._replace(**changes)


def clusters(rng, n, D, K):
    """Rows about K distant centres, whose components are well apart."""
    return rng.normal(size=(n, D)) + 40.0 * rng.integers(K, size=(n, 1)) / np.sqrt(D)


def in_blocks(monkeypatch):
    """Small mixtures are learned in blocks, too."""
    monkeypatch.setattr(cost_model, "choose", lambda D, K, *args, **kwargs: Method.BLOCKS if K else Method.ROWS)


def assert_same(got, expected, rtol=1e-8):
    (state, info), (truth, true_info) = got, expected
    K = truth.n_components
    assert state.n_components == K
    np.testing.assert_allclose(info.log_density, true_info.log_density, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(info.distance, true_info.distance, rtol=rtol, atol=rtol)
    for array, true in zip(state[:5], truth[:5], strict=True):
        size = np.abs(true[:K]).max()
        np.testing.assert_allclose(array[:K] / size, true[:K] / size, rtol=0, atol=rtol)
    np.testing.assert_array_equal(state.precisions[:K], np.swapaxes(state.precisions[:K], 1, 2))


@needs_torch
@pytest.mark.parametrize(
    ("D", "K", "changes"),
    [
        (100, 1, {}),
        (120, 1, {"forgetting": 0.995, "min_age": 0.0, "min_count": 0.05}),
        (60, 4, {"beta": 1e-12}),
        (60, 4, {"beta": 1e-12, "min_age": 100.0, "min_count": 60.0}),
    ],
)
def test_same_answers_on_the_device(monkeypatch, D, K, changes):
    """Through slabs of rows, creations and prunings."""
    monkeypatch.setattr(torch_device, "SLAB_NUMBERS", 300 * D)
    used = []
    learn_block = incremental.learn_block
    monkeypatch.setattr(incremental, "learn_block", lambda *args: used.append(args[1]) or learn_block(*args))
    in_blocks(monkeypatch)
    X = clusters(np.random.default_rng(3), 1500, D, K)
    device, settings = torch_device.torch_device("cpu"), settings_for(D, **changes)
    expected = incremental.learn(states.empty(D), X, np.ones(len(X)), settings, HOST)
    used.clear()
    got = incremental.learn(states.empty(D), X, np.ones(len(X)), settings, device)
    assert len(used) > 5
    assert set(used) == {device}
    assert_same(got, expected)


@needs_torch
def test_slabs_give_the_rows_in_order(monkeypatch):
    monkeypatch.setattr(torch_device, "SLAB_NUMBERS", 7 * 300)
    X = np.random.default_rng(0).normal(size=(3000, 7))
    rows = torch_device.torch_device("cpu").rows(X)
    start = 0
    for length in [1, 256, 3, 256, 700, 40] * 3:
        stop = min(start + length, len(X))
        if start == stop:
            break
        np.testing.assert_array_equal(rows.part(start, stop).numpy(), X[start:stop])
        start = stop
    assert start == 3000


@needs_torch
def test_operations_are_those_of_the_host():
    rng = np.random.default_rng(1)
    device = torch_device.torch_device("cpu")
    A = rng.normal(size=(3, 20, 20))
    precisions, means, X = A @ np.swapaxes(A, 1, 2) + np.eye(20), rng.normal(size=(2, 20)), rng.normal(size=(9, 20))
    which, found = slice(1, 3), []
    for place in (HOST, device):
        held = precisions.copy()
        matrices, rows = place.matrices(held), place.rows(X).part(0, 9)
        E, Y = place.project(rows[np.array([0, 2, 5])], means, matrices, which)
        P = np.empty((2, 3, 3))
        place.gram(E, Y, P)
        squares, sums = place.squares(E, Y), place.combine(np.ones((2, 3)), E)
        R = np.ascontiguousarray(np.swapaxes(np.linalg.cholesky(P + np.eye(3)), 1, 2))
        learned = np.array([[True, True, False], [True, False, True]])
        R[0, :2, 2] = R[1, :1, 1] = R[1, 1, 2] = 0.0
        place.rank_update(matrices, which, place.solve(R, Y, learned), np.array([0.5, 0.9]))
        matrices.move(1, 0)
        diagonals = np.array(matrices.diagonals(3))
        matrices.place(1, np.arange(1.0, 21.0))
        matrices.release(3)
        found.append((np.triu(P), squares, sums, diagonals, held))
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-9)


@needs_torch
def test_estimator_on_a_device(tmp_path):
    X = clusters(np.random.default_rng(5), 1200, 64, 3)
    here = FIGMN(beta=1e-9).fit(X)
    there = FIGMN(beta=1e-9, device="cpu").fit(X)
    for ask in ("score_samples", "p_value", "predict_proba"):
        np.testing.assert_allclose(getattr(there, ask)(X), getattr(here, ask)(X), rtol=1e-8, atol=1e-8)
    there.save(tmp_path / "model.evl")
    again = load(tmp_path / "model.evl").partial_fit(X[:100])
    np.testing.assert_allclose(again.score_samples(X), here.copy().partial_fit(X[:100]).score_samples(X), rtol=1e-8)
    assert (here + there).n_samples_seen_ == 2400


@needs_torch
def test_the_matrices_travel_once_for_a_long_batch(monkeypatch):
    # Cut into parts of 2^18 numbers, as other batches are, a device took thirty times as long: K D^2 numbers travelled
    # there and back for every few hundred rows.
    in_blocks(monkeypatch)
    sent = []
    matrices = torch_device.TorchDevice.matrices
    monkeypatch.setattr(torch_device.TorchDevice, "matrices", lambda *args: sent.append(1) or matrices(*args))
    X = np.random.default_rng(0).normal(size=(4000, 300))
    FIGMN(beta=0.0, scale=1.0, device="cpu").partial_fit(X)
    assert len(sent) == 1


@needs_torch
def test_a_device_that_fails_leaves_the_model_as_it_was(monkeypatch):
    in_blocks(monkeypatch)
    X = clusters(np.random.default_rng(5), 600, 64, 1)
    model = FIGMN(beta=0.0, device="cpu").fit(X)
    before = model.score_samples(X)
    rank_update, calls = torch_device.TorchDevice.rank_update, []

    def fail(self, *args):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has\nno more.")
        rank_update(self, *args)

    monkeypatch.setattr(torch_device.TorchDevice, "rank_update", fail)
    with pytest.raises(InputError, match=r"device='cpu' failed \(CUDA out of memory\).*max_components"):
        model.partial_fit(X)
    assert model.n_samples_seen_ == 600
    np.testing.assert_array_equal(model.score_samples(X), before)


@needs_torch
def test_a_device_that_fails_to_score(monkeypatch):
    X = clusters(np.random.default_rng(5), 100, 120, 1)
    model = FIGMN(beta=0.0, device="cpu").fit(X)

    def fail(self, *args):
        raise RuntimeError("CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has\nno more.")

    monkeypatch.setattr(torch_device.TorchDevice, "project", fail)
    for ask in (model.score_samples, model.p_value, model.predict_proba):
        with pytest.raises(InputError, match=r"device='cpu' failed \(CUDA out of memory\).*smaller batches"):
            ask(X)


@needs_torch
@pytest.mark.parametrize("name", ["cuda:99", "abacus", "meta:"])
def test_a_device_that_is_not_there(name):
    with pytest.raises(InputError, match=f"device='{name}' cannot be used here.*torch finds cpu"):
        FIGMN(device=name).partial_fit(np.zeros((3, 2)))


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch():
    with pytest.raises(MissingExtraError, match=r"everlearn\[torch\]"):
        FIGMN(device="cuda").partial_fit(np.zeros((3, 2)))


def test_scoring_by_products_is_scoring_by_rows(monkeypatch):
    X = clusters(np.random.default_rng(2), 300, 100, 3)
    model = FIGMN(beta=1e-9).fit(X)
    fast = model.score_samples(X), model.p_value(X), model.predict_proba(X)
    monkeypatch.setattr(scoring, "LARGE", 1000)
    slow = model.score_samples(X), model.p_value(X), model.predict_proba(X)
    for got, expected in zip(fast, slow, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
