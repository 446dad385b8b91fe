"""The state of the low-rank mixture: distances by matrix products, components taken, joined and counted."""

import numpy as np
import pytest

from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.state import Settings, counted, joined, readout_of, squared_distances, take
from low_rank_toys import dense, one
from naive.gaussians import mahalanobis

D, SETTINGS = 15, Settings(4, 8, 50, 0, 16, 0, 64, 1.0, 2**60, 0)


@pytest.fixture
def components():
    rng = np.random.default_rng(0)
    return joined([component_of_rows(one(rng, 60 + 30 * k, D) + k, np.ones(60 + 30 * k), SETTINGS) for k in range(3)])


def test_distances_are_those_of_dense_covariances(components):
    X, out = np.random.default_rng(1).normal(0, 4, (20, D)), readout_of(components, 1.0)
    found = squared_distances(X, out)
    for j in range(3):
        wanted = mahalanobis(X, components.mean[j], dense(components, out, j))
        np.testing.assert_allclose(found[:, j], wanted, rtol=1e-8)
    np.testing.assert_allclose(squared_distances(X, out, slice(1, 2)), found[:, 1:2], rtol=1e-12)


def test_components_are_joined_side_by_side_and_taken_in_arrays_of_their_own(components):
    assert components.n.tolist() == [60.0, 90.0, 120.0]
    some = take(components, np.array([2, 0]))
    assert some.n.tolist() == [120.0, 60.0]
    some.mean[:] = 0.0
    assert components.mean.any()
    back = joined([take(components, np.array([k])) for k in range(3)])
    for a, b in zip(back, components, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_that_count_twice_are_two_rows(components):
    """Of each row a copy: the same moments as those of the component that counts double."""
    X = one(np.random.default_rng(2), 50, D)
    single = component_of_rows(X, np.ones(50), SETTINGS)
    double, copies = counted(single, 2.0), component_of_rows(np.repeat(X, 2, axis=0), np.ones(100), SETTINGS)
    for name in ("n", "mass", "mean", "trace", "diagonal"):
        np.testing.assert_allclose(getattr(double, name), getattr(copies, name), rtol=1e-9, atol=1e-9)
    assert counted(components, 1.0) is components
