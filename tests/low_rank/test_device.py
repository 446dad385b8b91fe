"""Low-rank mixtures on a device of torch's, here the processor, against learning without one."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, load
from everlearn.errors import InputError
from everlearn.linalg import backend_torch
from everlearn.low_rank import device as devices
from everlearn.low_rank import learn

pytestmark = pytest.mark.torch

D, K, N = 40, 3, 1300


def stream(apart, seed=0):
    """Rows of K low-rank groups, in an order without pattern; some lie far out."""
    rng = np.random.default_rng(seed)
    centres, W, labels = apart * rng.normal(size=(K, D)), rng.normal(size=(K, 4, D)), rng.integers(K, size=N)
    latent = rng.normal(size=(N, 4)) * [2.0, 1.5, 1.0, 0.5]
    X = centres[labels] + np.einsum("nq,nqd->nd", latent, W[labels]) + 0.7 * rng.normal(size=(N, D))
    X[rng.random(N) < 0.02] *= 3.0
    return X


def model(device="cpu", **changes):
    return IncrementalGaussianMixture(covariance_type="low_rank", device=device, **changes)


@pytest.fixture
def windows(monkeypatch):
    """Rows of each window that was learned on the device, which takes short batches as well."""
    found = []
    learn_window = devices.Resident.learn

    def noted(self, *arguments):
        taken = learn_window(self, *arguments)
        found.append(taken.rows)
        return taken

    monkeypatch.setattr(learn, "DEVICE_ROWS", 30)
    monkeypatch.setattr(devices.Resident, "learn", noted)
    return found


def assert_same(there, here, X, rtol=1e-8):
    for name in ("weights_", "means_", "noise_variances_", "effective_samples_", "prequential_score_"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=rtol, atol=rtol, err_msg=name)
    for ask in ("score_samples", "p_value", "predict_proba"):
        np.testing.assert_allclose(getattr(there, ask)(X), getattr(here, ask)(X), rtol=rtol, atol=rtol, err_msg=ask)
    assert [(e.row, e.kind) for e in there.events_] == [(e.row, e.kind) for e in here.events_]
    np.testing.assert_array_equal(there._state_.model.reservoir.rows, here._state_.model.reservoir.rows)
    np.testing.assert_array_equal(there._state_.model.room.rows, here._state_.model.room.rows)


@pytest.mark.parametrize("apart", [2.0, 0.1])
@pytest.mark.parametrize("changes", [{"forgetting": 0.999}, {"n_components": 1}, {"rank": 3}])
def test_the_model_is_that_of_the_processor_for_any_split_of_the_stream(windows, apart, changes):
    X = stream(apart)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, N)
    here = model(None, **changes).partial_fit(X, sample_weight=weights)
    assert not windows
    there = model(**changes).partial_fit(X, sample_weight=weights)
    assert sum(windows) > 0.9 * (N - 100)
    parts = model(**changes)
    for start in range(0, N, 170):
        parts.partial_fit(X[start : start + 170], sample_weight=weights[start : start + 170])
    for other in (there, parts):
        assert_same(other, here, X[:300])


def test_a_window_that_is_never_right_ends_with_its_first_fold(windows, monkeypatch):
    X = stream(0.1)
    here = model(None).partial_fit(X)
    there = model().partial_fit(X)
    patient = len(windows)
    windows.clear()
    monkeypatch.setattr(devices, "PATIENCE", 0)
    hasty = model().partial_fit(X)
    assert len(windows) > 1.5 * patient
    for other in (there, hasty):
        assert_same(other, here, X[:300])


def test_rows_with_gaps_are_left_to_the_processor(windows):
    X = stream(2.0)
    gone = X[:500].copy()
    gone[::3, :7] = np.nan
    here, there = (model(d).partial_fit(X[:700]).partial_fit(gone).partial_fit(X[700:]) for d in (None, "cpu"))
    assert 0 < sum(windows) <= N - 100
    assert_same(there, here, gone)


def test_saved_merged_and_asked_in_between(windows, tmp_path):
    X = stream(2.0)
    here, there = model(None).partial_fit(X[:700]), model().partial_fit(X[:700])
    there.score_samples(X[:300])
    there.save(tmp_path / "model.evl")
    again = load(tmp_path / "model.evl")
    assert again.device == "cpu"
    for other in (here, there, again):
        other.partial_fit(X[700:])
    for other in (there, again):
        assert_same(other, here, X[:300])
    assert here.merge(there, method="mean").n_samples_seen_ == 2 * N


def test_a_device_that_fails_leaves_the_model_as_it_was(monkeypatch):
    X = stream(2.0)
    before = model().partial_fit(X[:800])
    expected = before.score_samples(X)
    fold, calls = devices._Trial.fold, []

    def fail(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has\nno more.")
        fold(self, *arguments)

    monkeypatch.setattr(devices._Trial, "fold", fail)
    with pytest.raises(InputError, match=r"device='cpu' failed \(CUDA out of memory\).*max_components"):
        before.partial_fit(X[800:])
    assert before.n_samples_seen_ == 800
    np.testing.assert_array_equal(before.score_samples(X), expected)

    def fail_to_send(self, *arguments):
        raise RuntimeError("CUDA out of memory. Tried to allocate 24.00 MiB.")

    monkeypatch.setattr(backend_torch.TorchDevice, "rows", fail_to_send)
    for ask in (before.score_samples, before.p_value, before.predict_proba):
        with pytest.raises(InputError, match=r"device='cpu' failed \(CUDA out of memory\)"):
            ask(X)
