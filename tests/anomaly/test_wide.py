"""The detector on hundreds of columns, whose mixture is of low rank."""

import numpy as np
import pytest

from everlearn import AnomalyDetector, load

D = 300


def rows_of_groups(rng, n):
    """Rows of two groups, each with two strong directions of its own in noise of one."""
    fixed = np.random.default_rng(0)
    means, directions = fixed.normal(size=(2, D)), 2.0 * fixed.normal(size=(2, 2, D))
    group = rng.integers(2, size=n)
    return means[group] + np.einsum("nq,nqd->nd", rng.normal(size=(n, 2)), directions[group]) + rng.normal(size=(n, D))


@pytest.fixture(scope="module")
def learned():
    return AnomalyDetector(grace_period=300).fit(rows_of_groups(np.random.default_rng(1), 700))


def test_noise_beyond_the_directions_is_strange_though_no_column_is(learned):
    """A tenth of the columns has three times its noise more, which the spread of the groups hides in each column."""
    rng = np.random.default_rng(2)
    usual, strange = rows_of_groups(rng, 300), rows_of_groups(rng, 100)
    strange[:, :30] += 3.0 * rng.normal(size=(100, 30))
    assert learned.mixture_.covariance_type_ == "low_rank"
    assert (learned.p_value(strange) < 0.01).mean() > 0.95
    assert (learned.p_value(usual) < 0.01).mean() < 0.03
    assert abs((learned.p_value(usual) < 0.1).mean() - 0.1) < 0.06


def test_the_column_to_blame_is_the_one_that_was_moved(learned):
    row = rows_of_groups(np.random.default_rng(3), 1)
    row[0, 123] += 15.0
    told = learned.explain(row)
    assert told.blame[0].argmax() == 123
    assert told.high[0, 123] < row[0, 123]
    gap = row.copy()
    gap[0, 100:200] = np.nan
    assert learned.p_value(row)[0] < 1e-3 < learned.p_value(gap)[0]


def test_a_detector_from_a_file_goes_on_as_before(learned, tmp_path):
    learned.save(tmp_path / "detector")
    loaded, rows = load(tmp_path / "detector"), rows_of_groups(np.random.default_rng(4), 40)
    np.testing.assert_array_equal(loaded.prequential(rows), learned.copy().prequential(rows))
