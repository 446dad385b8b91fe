"""The common subspace of several mixtures, and their components in it."""

import numpy as np
import pytest

from everlearn.low_rank.ask import Look
from everlearn.low_rank.keep.search import component_of_rows
from everlearn.low_rank.state import Frame, Settings, joined, readout_of
from everlearn.low_rank.subspace import (
    Sketched,
    common_subspace,
    leverages,
    mean_noise,
    moments,
    noise_along,
    projected,
)
from low_rank_toys import one
from naive import low_rank as naive

D = 30
SETTINGS = Settings(D, 8, 50, 500, 16, 0, 64, 1.0, 2**60, 0)


def look_of_rows(groups, inverse=1.0, centre=0.0):
    """A mixture of one component for each group of rows, which keeps all but one of their directions."""
    frame = Frame(np.full(D, centre), np.full(D, inverse), np.full(D, -np.log(inverse)))
    parts = [(rows - centre) * inverse for rows in groups]
    c = joined([component_of_rows(rows, np.ones(len(rows)), SETTINGS) for rows in parts])
    return Look(c, readout_of(c, 1.0), frame, np.zeros(3), np.empty(0))


def rows_of_classes(rng):
    return [one(rng, 60, D) + rng.normal(size=D) for _ in range(3)]


def test_axes_are_those_of_the_scatter_of_all_rows():
    rng = np.random.default_rng(0)
    groups = rows_of_classes(rng)
    # The second class has another frame: what is common must not depend on it.
    looks = [look_of_rows(groups[:2]), look_of_rows(groups[2:], inverse=0.5, centre=3.0)]
    space = common_subspace(looks, 5)
    X = np.concatenate(groups)
    _, mean, S = naive.scatter_of(X, np.ones(len(X)))
    np.testing.assert_allclose(space.centre, mean, atol=1e-9)
    values, V = np.linalg.eigh(S)
    along = np.einsum("gd,de,ge->g", space.axes, S, space.axes)
    np.testing.assert_allclose(along, values[::-1][:5], rtol=2e-3)
    np.testing.assert_allclose(np.abs(space.axes[0] @ V[:, -1]), 1.0, atol=1e-3)
    np.testing.assert_allclose(space.coordinates(X[:4]), (X[:4] - mean) @ space.axes.T, atol=1e-9)


def test_components_in_the_subspace():
    rng = np.random.default_rng(1)
    groups = rows_of_classes(rng)
    look = look_of_rows(groups, inverse=0.5)
    space = common_subspace([look], 6)
    noise = np.array([2.0, 0.5, 3.0])
    counts, means, covariances = moments(look, space, noise)
    np.testing.assert_array_equal(counts, 60.0)
    for k, rows in enumerate(groups):
        np.testing.assert_allclose(means[k], space.coordinates(rows).mean(axis=0), atol=1e-9)
        W = look.internal.loadings[k] @ space.axes.T
        np.testing.assert_allclose(covariances[k], W.T @ W + noise[k] * np.eye(6))
    np.testing.assert_allclose(mean_noise(look, space), look.readout.noise)


@pytest.mark.parametrize("inverse", [1.0, 0.5])
def test_noise_along_axes_is_that_of_their_columns(inverse):
    """Columns of very different noise; the read-out may have isotropic noise or not."""
    rng = np.random.default_rng(3)
    rows = one(rng, 400, D)
    rows[:, : D // 2] *= 0.1
    other = look_of_rows([rows + 5.0])
    look = look_of_rows([rows], inverse=inverse)
    space = common_subspace([other, look], 3)
    found = noise_along(look, space)
    wanted = [(axis**2 / look.readout.inverse_psi[0]).sum() / inverse**2 for axis in space.axes]
    np.testing.assert_allclose(found, np.mean(wanted), rtol=0.02)
    isotropic = Sketched(look.components, readout_of(look.components, 1.0, True), look.frame)
    np.testing.assert_allclose(noise_along(isotropic, space), found)


@pytest.mark.parametrize("inverse", [1.0, 0.5])
def test_leverages_are_those_of_the_directions(inverse):
    """In a subspace of all columns: one over the rows, and the hat matrix of the scatter along the directions."""
    rng = np.random.default_rng(4)
    rows = rows_of_classes(rng)[0]
    look = look_of_rows([rows], inverse=inverse)
    space = common_subspace([look_of_rows([rows]), look], D)
    c, rank = look.components, int(look.readout.rank[0])
    U = c.directions[0, :rank]
    M = (U.T * c.scatter[0, :rank]) @ U / inverse**2  # scatter along the directions in the units of the data
    E = rows - rows.mean(axis=0)
    wanted = 1.0 / len(rows) + np.einsum("nd,de,ne->n", E, np.linalg.pinv(M, rcond=1e-9), E)
    np.testing.assert_allclose(leverages(look, space, space.coordinates(rows))[:, 0], wanted, rtol=1e-6)


def test_rows_are_scored_in_the_subspace_by_dense_algebra():
    rng = np.random.default_rng(2)
    look = look_of_rows(rows_of_classes(rng))
    space, Z = projected(look, 6, 3.0), rng.normal(size=(4, D))
    counts, means, covariances = moments(look, common_subspace([look], 6), 3.0 * look.readout.noise)
    C = (Z - space.space.centre) @ space.space.axes.T
    for k in range(3):
        d2 = [e @ np.linalg.solve(covariances[k], e) for e in C - means[k]]
        np.testing.assert_allclose(space.distances(Z)[:, k], d2, rtol=1e-8)
    heights = np.linalg.slogdet(covariances)[1] - 2.0 * np.log(counts / counts.sum())
    np.testing.assert_allclose(space.heights, heights - heights.min(), atol=1e-9)
