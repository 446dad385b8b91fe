"""Folds of several components at once, and their read-outs, against the kernels that take one at a time."""

import numpy as np
import pytest

from everlearn.low_rank.kernels import ahead, batched
from everlearn.low_rank.kernels.ahead import Spectrum
from everlearn.low_rank.kernels.fold import fold
from everlearn.low_rank.state import (
    Settings,
    empty_reservoir,
    joined,
    model_of,
    readout_of,
    squared_distances,
    take,
)

pytestmark = pytest.mark.torch

D, Q, W, NOISE = 40, 6, 8, 0.7
SETTINGS = Settings(Q, W, 50, 100, 16, 0, 8, 1.0, 2**60, 0)


def model_with_waiting(young):
    """Three components; the rows that wait, and their weights, are random and differ in number."""
    from everlearn.low_rank.keep.search import component_of_rows

    rng = np.random.default_rng(1)
    rows = [rng.normal(size=(3 if young else 60, D)) @ rng.normal(size=(D, D)) / 5 + k for k in range(3)]
    model = model_of(
        joined([component_of_rows(r, np.ones(len(r)), SETTINGS) for r in rows]), SETTINGS, empty_reservoir(0, D)
    )
    for j, size in enumerate((8, 5, 1)):
        model.waiting.rows[j, :size] = rng.normal(size=(size, D)) + j
        model.waiting.weights[j, :size] = rng.uniform(0.3, 2.0, size)
        model.waiting.size[j] = size
    return model


@pytest.mark.parametrize("fading", [1.0, 0.99])
@pytest.mark.parametrize("young", [False, True])
@pytest.mark.parametrize("isotropic", [False, True])
def test_a_fold_is_that_of_one_component_at_a_time(fading, young, isotropic):
    import torch

    from everlearn.linalg.backend_torch import torch_device
    from everlearn.low_rank.device import _empty_plan, _sent

    model = model_with_waiting(young)
    c, waiting = model.components, model.waiting
    plan = _empty_plan(3, W, 16)
    ahead.start_plan(model, plan)
    scale = np.empty((3, Q + 2 * W + 3))
    for j in range(3):
        ahead.fold_weights(plan, c, j, fading, scale[j])
    old = _sent(torch_device("cpu"), c, readout_of(c, NOISE, isotropic))
    made = batched.fold_matrices(torch, old, torch.from_numpy(waiting.rows), torch.from_numpy(scale))
    numbers = take(c, np.arange(3))
    spectrum = Spectrum(np.empty((3, Q, Q + W + 1)), np.empty((3, 2 * Q + 3)))
    for j in range(3):
        ahead.fold_spectrum(j, made.gram.numpy(), scale, numbers, j, NOISE, spectrum)
    mix, told = torch.from_numpy(spectrum.mix), torch.from_numpy(spectrum.numbers)
    found = batched.sketches(torch, made, mix, told, isotropic)
    for j in range(3):
        fold(c, waiting, j, fading)
    for name in ("n", "scatter", "used", "trace", "held", "expected", "residual", "held_rows"):
        np.testing.assert_allclose(getattr(numbers, name), getattr(c, name), rtol=1e-9, atol=1e-9, err_msg=name)
    for name in ("mean", "diagonal"):
        np.testing.assert_allclose(getattr(found, name).numpy(), getattr(c, name), rtol=1e-10, atol=1e-12)
    sketch = [np.einsum("kqd,kq,kqe->kde", U, c.scatter, U) for U in (found.directions.numpy(), c.directions)]
    np.testing.assert_allclose(*sketch, rtol=1e-9, atol=1e-9)
    readout, X = readout_of(c, NOISE, isotropic), np.random.default_rng(2).normal(size=(20, D))
    np.testing.assert_allclose(found.log_det.numpy(), readout.log_det, rtol=1e-10)
    d2 = batched.squared_distances(torch.from_numpy(X), found.B, found.offset, found.inverse_psi)
    np.testing.assert_allclose(d2.numpy(), squared_distances(X, readout), rtol=1e-9)
