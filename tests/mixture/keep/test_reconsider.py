"""Mixtures of moments: with components that no row belongs to, and of what components have gathered."""

import numpy as np
import pytest

from everlearn.mixture.estimator import IncrementalGaussianMixture
from everlearn.mixture.keep.reconsider import _mixture_of_moments, gathered_mixture, mixture_of, refreshed
from everlearn.mixture.kernels.em import Moments
from everlearn.mixture.kernels.parts import Shape
from mixture_toys import groups


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("counts", [[0.0], [0.0, 0.0], [0.0, 30.0]])
def test_components_without_rows_have_the_common_shape(counts):
    """Where the background explains every row no component has any: their weights are alike, not infinite."""
    K = len(counts)
    moments = Moments(np.array(counts), np.zeros((K, 2)), np.zeros((K, 2, 2)))
    mixture = _mixture_of_moments(moments, Shape(np.eye(2), np.full(2, 1e-6), 5.0))
    assert mixture.weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mixture.weights, [1.0 / K] * K if sum(counts) == 0.0 else [0.0, 1.0], atol=1e-12)
    np.linalg.cholesky(mixture[2])


def test_the_mixture_of_what_was_gathered_is_that_of_the_refreshed_components():
    X = groups(np.random.default_rng(4), 900, 3, 2)[0]
    model = IncrementalGaussianMixture().partial_fit(X)._state_.model
    assert (model.components.fresh > 0.0).any()
    for found, wanted in zip(gathered_mixture(model), mixture_of(refreshed(model)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
