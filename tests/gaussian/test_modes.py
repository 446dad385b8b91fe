"""Ridgelines, modes, and components that make one hill."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import naive
from everlearn.gaussian import modes as topography
from everlearn.gaussian.mixture import Mixture, log_density
from everlearn.gaussian.modes import merge_unimodal, modes

seeds = st.integers(0, 2**32 - 1)


def random_mixture(rng, K, D, spread=1.5, diagonal=False):
    A = rng.normal(size=(K, D, D)) * rng.choice([0.4, 1.0], size=(K, D, 1))
    S = A @ A.transpose(0, 2, 1) + 0.02 * np.eye(D)
    weights, means = rng.dirichlet(np.full(K, 3.0)), rng.normal(0, spread, (K, D))
    return Mixture(weights, means, np.einsum("kii->ki", S).copy() if diagonal else S)


def on_a_line(distance, sd=1.0, weights=(0.5, 0.5)):
    return Mixture(np.array(weights), np.array([[0.0], [distance]]), np.full((2, 1, 1), sd * sd))


def gradient(f, x):
    density = np.exp([np.log(w) + naive.log_normal(x, m, S) for w, m, S in zip(*f, strict=True)])
    pulls = [p * np.linalg.solve(S, m - x) for p, m, S in zip(density, f.means, f.covariances, strict=True)]
    return sum(pulls) / density.sum()


def three_from_two():
    """Two crossed ellipses: a third mode where their arms meet."""
    return Mixture(
        np.full(2, 0.5), np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([np.diag([1, 0.05]), np.diag([0.05, 1])])
    )


def triangle(sd):
    """Three round components at the corners of a triangle."""
    angles = 2 * np.pi * np.arange(3) / 3
    return Mixture(
        np.full(3, 1 / 3), np.stack([np.cos(angles), np.sin(angles)], axis=1), np.stack([sd**2 * np.eye(2)] * 3)
    )


def test_mode_counts_are_those_of_a_dense_grid():
    counts = []
    for seed in range(60):
        f = random_mixture(np.random.default_rng(seed), 2, 2)
        found = modes(f).points
        expected = naive.grid_modes(f)
        assert len(found) == len(expected), f"seed {seed}"
        gaps = np.linalg.norm(found[:, None] - expected, axis=2)
        assert gaps.min(axis=1).max() < 1e-3
        counts.append(len(found))
    assert {1, 2, 3} <= set(counts)


def test_the_climb_finds_the_modes_of_the_exact_count():
    for seed in range(60):
        f = random_mixture(np.random.default_rng(seed), 2, 2)
        climbed = topography._distinct(f, topography._climb(f, topography._starts(f)))
        exact = modes(f).points
        assert len(climbed) == len(exact), f"seed {seed}"
        assert np.linalg.norm(climbed[:, None] - exact, axis=2).min(axis=1).max() < 1e-6


def test_mode_counts_of_several_components_are_those_of_a_dense_grid():
    for seed in range(25):
        f = random_mixture(np.random.default_rng(seed), 5, 2)
        assert len(modes(f).points) == len(naive.grid_modes(f)), f"seed {seed}"


@given(seeds, st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_modes_are_maxima_in_falling_order(seed, K, D, diagonal):
    rng = np.random.default_rng(seed)
    f = random_mixture(rng, K, D, diagonal=diagonal)
    found = modes(f)
    full = f._replace(covariances=f.covariances[:, :, None] * np.eye(D)) if diagonal else f
    assert np.all(np.diff(found.log_density) <= 0)
    np.testing.assert_allclose(found.log_density, log_density(found.points, f), rtol=1e-9, atol=1e-9)
    for x, height in zip(found.points, found.log_density, strict=True):
        np.testing.assert_allclose(gradient(full, x), 0, atol=1e-5)
        around = x + 1e-3 * rng.normal(size=(50, D))
        assert log_density(around, f).max() < height + 1e-9


def test_two_components_with_three_modes():
    found = modes(three_from_two())
    assert len(found.points) == 3
    np.testing.assert_allclose(found.points[0], [20 / 21, 1 / 21], rtol=1e-9)


@pytest.mark.parametrize(("sd", "count"), [(0.65, 3), (0.725, 4), (0.76, 1)])
def test_three_round_components_with_a_ghost_mode_between(sd, count):
    assert len(modes(triangle(sd)).points) == count
    if count == 4:
        assert np.linalg.norm(modes(triangle(sd)).points, axis=1).min() < 1e-6


def test_two_components_in_three_dimensions_with_four_modes():
    """Two components in D dimensions can have D + 1 modes (Ray and Ren, 2012)."""
    u = 4.0
    ratios = np.exp([u, 0, -u])
    shift = np.sqrt(1.2 * np.array([2 * u * np.exp(-u), u, 2 * u]))
    f = Mixture(np.full(2, 0.5), np.stack([np.zeros(3), shift]), np.stack([np.eye(3), np.diag(1 / ratios)]))
    found = modes(f)
    assert len(found.points) == 4
    for x in found.points:
        np.testing.assert_allclose(gradient(f, x), 0, atol=1e-9)
        step = 1e-2 * np.vstack([np.eye(3), -np.eye(3)])
        assert log_density(x + step, f).max() < log_density(x[None], f)[0]


@pytest.mark.parametrize(("distance", "count"), [(0.0, 1), (1.99, 1), (2.01, 2), (50.0, 2), (1e6, 2)])
def test_equal_components_split_at_two_standard_deviations(distance, count):
    for scale in (1e-140, 1.0, 1e140):
        f = on_a_line(distance * scale, scale)
        assert len(modes(f).points) == count
        ratio = topography.ridgeline_ratios(f, np.array([0]), np.array([1]))[0]
        assert (ratio == 1) == (count == 1)


@given(seeds, st.integers(1, 4))
def test_ridgeline_meets_the_means_and_every_critical_point(seed, D):
    f = random_mixture(np.random.default_rng(seed), 2, D)
    np.testing.assert_allclose(topography.ridgeline(f, np.eye(2)), f.means, rtol=1e-6, atol=1e-6)
    found = topography.pair_critical_points(f, np.array([0]), np.array([1]))
    assert found.is_mode.sum() == (~found.is_mode).sum() + 1
    a = expit(found.logits)
    points = topography.ridgeline(f, np.stack([1 - a, a], axis=1))
    for x, height in zip(points, found.log_elevation, strict=True):
        np.testing.assert_allclose(gradient(f, x), 0, atol=1e-4)
        np.testing.assert_allclose(height, log_density(x[None], f)[0], rtol=1e-6, atol=1e-6)


@given(seeds, st.integers(1, 5))
def test_elevation_between_critical_points_has_no_others(seed, D):
    f = random_mixture(np.random.default_rng(seed), 2, D)
    found = topography.pair_critical_points(f, np.array([0]), np.array([1]))
    s = np.linspace(-40, 40, 20001)
    a = 1 / (1 + np.exp(-s))
    heights = log_density(topography.ridgeline(f, np.stack([1 - a, a], axis=1)), f)
    rising = np.diff(heights)
    turns = np.flatnonzero((rising[:-1] > 1e-12) & (rising[1:] < -1e-12))
    assert len(turns) <= found.is_mode.sum()
    for turn in turns:
        assert np.abs(s[turn + 1] - found.logits[found.is_mode]).min() < 0.01


@given(seeds, st.integers(1, 4))
def test_modes_move_with_an_affine_map(seed, D):
    rng = np.random.default_rng(seed)
    f = random_mixture(rng, 2, D)
    A, b = rng.normal(size=(D, D)) + 3 * np.eye(D), rng.normal(size=D)
    moved = Mixture(f.weights, f.means @ A.T + b, A @ f.covariances @ A.T)
    np.testing.assert_allclose(modes(moved).points, modes(f).points @ A.T + b, rtol=1e-5, atol=1e-5)


def test_ridgeline_ratio_of_two_equal_hills():
    f = on_a_line(4.0)
    found = topography.ridgeline_ratios(f, np.array([0, 1]), np.array([1, 0]))
    top = log_density(modes(f).points, f)[0]
    expected = np.exp(log_density(np.array([[2.0]]), f)[0] - top)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_ridgeline_ratio_counts_the_second_highest_mode():
    f = three_from_two()
    found = topography.pair_critical_points(f, np.array([0]), np.array([1]))
    heights = np.sort(found.log_elevation[found.is_mode])
    expected = np.exp(found.log_elevation[~found.is_mode].min() - heights[-2])
    assert topography.ridgeline_ratios(f, np.array([0]), np.array([1]))[0] == pytest.approx(expected)


def test_many_pairs_at_once_are_each_alone():
    f = random_mixture(np.random.default_rng(0), 8, 3)
    i, j = np.triu_indices(8, 1)
    together = topography.ridgeline_ratios(f, i, j)
    alone = [topography.ridgeline_ratios(f, i[k : k + 1], j[k : k + 1])[0] for k in range(len(i))]
    np.testing.assert_array_equal(together, alone)


def test_components_of_one_hill_belong_together():
    means = np.array([0.0, 20.0, 1.0, 21.0, 2.0, 60.0])[:, None]
    f = Mixture(np.full(6, 1 / 6), means, np.ones((6, 1, 1)))
    np.testing.assert_array_equal(merge_unimodal(f), [0, 1, 0, 1, 0, 2])
    np.testing.assert_array_equal(merge_unimodal(Mixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])), [0])


def test_a_lower_threshold_joins_more():
    f = Mixture(np.full(3, 1 / 3), np.array([[0.0], [3.0], [9.0]]), np.ones((3, 1, 1)))
    assert merge_unimodal(f).tolist() == [0, 1, 2]
    ratio = topography.ridgeline_ratios(f, np.array([0]), np.array([1]))[0]
    assert merge_unimodal(f, ratio * 0.999).tolist() == [0, 0, 1]
    assert merge_unimodal(f, ratio * 1.001).tolist() == [0, 1, 2]
    assert merge_unimodal(f, 0.0).tolist() == [0, 0, 0]


def test_one_component_has_its_mean_for_mode():
    f = random_mixture(np.random.default_rng(1), 1, 3)
    np.testing.assert_allclose(modes(f).points, f.means, rtol=1e-12)
