"""What could be read from a model about single rows."""

import numpy as np
import pytest

from everlearn import FIGMN
from everlearn.base.privacy import privacy_of


@pytest.mark.parametrize(
    ("rows", "counts", "small", "single", "aggregated"),
    [
        (0, [20.0, 500.0], 0, 0, True),
        (1, [20.0, 500.0], 0, 0, False),
        (0, [19.999, 500.0], 1, 0, False),
        (0, [1.0, 1.49, 1.5, 300.0], 3, 2, False),
        (0, [], 0, 0, True),
    ],
)
def test_small_components_and_rows_are_counted(rows, counts, small, single, aggregated):
    found = privacy_of(rows, np.array(counts), 20)
    assert (found.components, found.small, found.single) == (len(counts), small, single)
    assert found.is_aggregated is aggregated


def test_each_sentence_is_told_where_it_is_true():
    assert privacy_of(1234, np.array([1.0, 90.0]), 20).sentences() == [
        "1,234 rows of the stream are inside, as they were.",
        "1 of 2 components have one row each: their means are rows.",
        "1 of 2 components stand for fewer than 20 rows.",
    ]
    (only,) = privacy_of(0, np.array([90.0]), 5).sentences()
    assert only.startswith("No row is inside, and each component stands for 5 rows or more.")


def test_a_component_of_one_row_is_that_row():
    """What the report warns of: the row can be read from the model."""
    x = np.array([1234.5, -987.0])
    model = FIGMN().fit(np.vstack([np.random.default_rng(0).normal(size=(400, 2)), x]))
    found = model.privacy()
    assert found.single >= 1
    assert np.isclose(model.means_, x, rtol=1e-9).all(axis=1).any()
    assert found.components == model.n_components_
