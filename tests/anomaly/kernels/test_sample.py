"""Rarity against a sample of the stream, against sorting."""

import numpy as np
import pytest
from scipy.stats import norm

from detectors import state_with_sample
from everlearn.anomaly.kernels.sample import NEAR, column_rarity, distances_to_mass, robust_units
from everlearn.anomaly.learn import scratch_for
from naive import anomaly as naive


def test_rarity_and_distances_agree_with_sorting():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(150, 4)) * [1, 10, 0.1, 1]
    state = state_with_sample(rows)
    sample = state.sample
    centres, scales = sample.units
    for x in (rows[3] * 1.1, rows[5] + 40, rows[6] - 2):
        assert column_rarity(x, sample) == pytest.approx(naive.column_rarity(x, rows, scales, NEAR))
        near, far = distances_to_mass(x, sample, scratch_for(state))
        assert near == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.1))
        assert far == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.3))


def test_one_value_far_out_is_nearer_than_a_group_of_rows():
    """Distances are for groups: a value a thousand scales out is as far as one beyond what its column has, no more."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(400, 6))
    rows[:20, :3] += 8.0  # a group of a twentieth
    rows[20, 5] = -1e4
    state = state_with_sample(rows)
    group, lone = np.zeros(6), np.zeros(6)
    group[:3], lone[4] = 8.0, 1e3
    scratch = scratch_for(state)
    to_group, to_lone = (np.array(distances_to_mass(x, state.sample, scratch)) for x in (group, lone))
    assert (to_lone < to_group).all()
    # It is still seen, and a farther one is no farther.
    assert (to_lone > distances_to_mass(np.zeros(6), state.sample, scratch)).all()
    np.testing.assert_array_equal(to_lone, distances_to_mass(100.0 * lone, state.sample, scratch))
    # Nor is the value far out in the sample.
    assert np.abs(state.sample.coordinates).max() < 4.0


def test_distances_to_rows_that_are_equal():
    """No bound separates a tenth of them: the rows at the bound count by how many are missing."""
    rows = np.repeat(np.arange(8.0), 20)[:, None] * [1.0, -2.0]
    state = state_with_sample(rows)
    centres, scales = state.sample.units
    for x in (np.array([0.2, -0.4]), np.array([11.0, 3.0])):
        near, far = distances_to_mass(x, state.sample, scratch_for(state))
        assert near == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.1), abs=1e-7)
        assert far == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.3), rel=1e-6)


def test_distances_of_a_row_from_which_most_are_equally_far():
    """Less than three tenths of the squares are below their mean: the first bound must not be taken for it."""
    rng = np.random.default_rng(8)
    rows = np.full((150, 2), 5.0)
    rows[:12] = 0.1 * rng.normal(size=(12, 2))
    state, x = state_with_sample(rows), np.array([0.02, -0.01])
    centres, scales = state.sample.units
    near, far = distances_to_mass(x, state.sample, scratch_for(state))
    assert near == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.1), rel=1e-5)
    assert far == pytest.approx(naive.distance_to_mass(x, rows, centres, scales, 0.3), rel=1e-5)


def test_the_sample_passes_over_gaps():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(90, 3))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    rows[:, 2] = np.nan
    sample = state_with_sample(rows).sample
    seen = ~np.isnan(rows)
    assert sample.observed.tolist() == seen.sum(axis=0).tolist()
    for j in range(2):
        kept = np.sort(rows[seen[:, j], j])
        np.testing.assert_array_equal(sample.ordered[j, : len(kept)], kept)
        expected = np.arcsinh((rows[:, j] - sample.units.centre[j]) / sample.units.scale[j])
        np.testing.assert_allclose(sample.coordinates[j, :90], np.nan_to_num(expected, nan=0.0), rtol=1e-12)
    # The mean column counts for a gap, and for a column of which nothing is known.
    x = np.array([0.3, np.nan, 5.0])
    alone = naive.column_rarity(x[:1], rows[seen[:, 0], :1], sample.units.scale[:1], NEAR)
    assert column_rarity(x, sample) == pytest.approx(3 * alone)
    assert np.isnan(column_rarity(np.full(3, np.nan), sample))


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_units_of_gaussian_values_are_mean_and_standard_deviation(scale):
    values = scale * (3.0 + norm.ppf((np.arange(4001) + 0.5) / 4001))
    assert robust_units(values) == pytest.approx((3.0 * scale, scale), rel=2e-3)


def test_units_of_values_that_hardly_vary_are_positive():
    """A value that is nearly always the same takes its standard deviation; a constant a millionth of itself."""
    rare = np.sort(np.r_[np.zeros(990), np.full(10, 5.0)])
    assert robust_units(rare) == pytest.approx((0.0, rare.std()))
    assert robust_units(np.full(50, -7.0)) == pytest.approx((-7.0, 7e-6))
    assert robust_units(np.zeros(50))[1] > 0.0
    assert robust_units(np.zeros(0)) == (0.0, 1.0)
