"""Rows of many columns in blocks, in memory and on a device of torch's, against the kernel that learns one by one."""

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.errors import InputError
from everlearn.mixture import blocks

D = 12
COLUMNS = ("weights_", "means_", "covariances_", "effective_samples_", "prequential_score_")
PLACES = [None, pytest.param("cpu", marks=pytest.mark.torch)]
MODELS = {
    "plain": {},
    "diagonal": {"covariance_type": "diag"},
    "forgetting": {"forgetting": 0.995},
    "adaptive": {"forgetting": "adaptive"},
}


def stream(n=1_500, seed=0):
    """Rows of three groups, of which one comes late, and some far from all."""
    rng = np.random.default_rng(seed)
    A, centres = rng.normal(size=(3, D, D)) / 3.0, 5.0 * rng.normal(size=(3, D))
    label = rng.integers(0, np.where(np.arange(n) < 900, 2, 3))
    X = centres[label] + np.einsum("nd,nde->ne", rng.normal(size=(n, D)), A[label])
    X[rng.random(n) < 0.01] += 40.0
    return X


def learned(X, device=None, batch=400, **changes):
    model = IncrementalGaussianMixture(**({"covariance_type": "full", "device": device} | changes))
    for at in range(0, len(X), batch):
        model.partial_fit(X[at : at + batch])
    return model


@pytest.fixture
def in_blocks(monkeypatch):
    """Few columns and rows are learned in blocks as well; blocks as they were learned."""
    found, learn_block = [], blocks._learn_block

    def noted(X, *arguments):
        found.append(len(X))
        learn_block(X, *arguments)

    monkeypatch.setattr(blocks, "_learn_block", noted)

    def begin():
        for name, value in (("COLUMNS", 4), ("DEVICE_COLUMNS", 4), ("ROWS", 2)):
            monkeypatch.setattr(blocks, name, value)
        return found

    return begin


def assert_same(there, here, X):
    assert there.n_components_ == here.n_components_
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-8, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(there.score_samples(X), here.score_samples(X), rtol=1e-8)
    assert [(event.row, event.kind) for event in there.events_] == [(event.row, event.kind) for event in here.events_]


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_the_model_is_that_of_row_by_row(in_blocks, device, changes):
    X = stream()
    here = learned(X, **changes)
    found = in_blocks()
    there = learned(X, device, **changes)
    assert sum(found) >= 1_000, "the rows were not learned in blocks"
    assert_same(there, here, X[::10])


@pytest.mark.parametrize("device", PLACES)
def test_batches_do_not_matter(in_blocks, device):
    X = stream()
    in_blocks()
    assert_same(learned(X, device, batch=1_500), learned(X, device, batch=90), X[::10])


@pytest.mark.parametrize("device", PLACES)
def test_weights_count_as_rows(in_blocks, device):
    X = stream()
    weights = np.random.default_rng(1).uniform(0.1, 3.0, len(X))

    def fitted(where):
        model = IncrementalGaussianMixture(covariance_type="full", device=where)
        return model.partial_fit(X[:700], sample_weight=weights[:700]).partial_fit(X[700:], sample_weight=weights[700:])

    here = fitted(None)
    assert not in_blocks()
    assert_same(fitted(device), here, X[::10])


def test_rows_with_gaps_are_learned_one_by_one(in_blocks):
    X = stream(600)
    model, found = learned(X[:500]), in_blocks()
    X[500:, 3] = np.nan
    model.partial_fit(X[500:])
    assert not found


def test_models_without_rows_are_learned_one_by_one(in_blocks):
    found = in_blocks()
    learned(stream(600), reservoir=0)
    assert not found


def test_a_covariance_that_is_not_definite_is_widened(in_blocks):
    in_blocks()
    X = stream(700)
    X[:, 1] = X[:, 0]
    X[:, 2] = 1.0
    model = learned(X)
    assert np.isfinite(model.score_samples(X)).all()


def test_values_far_beyond_all_others_count_as_far(in_blocks):
    X = stream(700)
    X[650] = 1e300
    here = learned(X)
    in_blocks()
    there = learned(X)
    assert np.isfinite(there.score_samples(X)).all()
    assert_same(there, here, X[:600])


@pytest.mark.torch
def test_a_device_that_fails_leaves_the_model_as_it_was(in_blocks, monkeypatch):
    X = stream(900)
    model = learned(X[:600], "cpu")
    before = model.score_samples(X[:50])
    in_blocks()

    def fail(self, k):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(blocks.Resident, "refresh", fail)
    with pytest.raises(InputError, match="device='cpu' failed"):
        model.partial_fit(X[600:])
    np.testing.assert_array_equal(model.score_samples(X[:50]), before)
