"""Records become rows, or say why they cannot."""

import numpy as np
import pytest

from everlearn.streams.sources.parsing import Batch, Record, batch_of, empty_batch, without_infinities
from everlearn.streams.sources.schema import Columns

PLAIN = Columns(["u", "v"], {})
VALUED = Columns(["u", "v"], {}, target="w")
LABELLED = Columns(["u", "v"], {}, target="w", labels=True)


def test_numbers_and_words_for_missing_values():
    batch = batch_of([Record("1", ["1", 2.5]), Record("2", ["", None]), Record("3", ["-1e3", "NaN"])], PLAIN)
    np.testing.assert_array_equal(batch.X, [[1.0, 2.5], [np.nan, np.nan], [-1000.0, np.nan]])
    assert batch.y is None
    assert list(batch.bad) == []


def test_decimal_commas_only_where_they_are_meant():
    records = [Record("1", ["1,5", "2"])]
    np.testing.assert_array_equal(batch_of(records, PLAIN, decimal_comma=True).X, [[1.5, 2.0]])
    assert [bad.reason for bad in batch_of(records, PLAIN).bad] == ["text in a column of numbers"]


@pytest.mark.parametrize(
    ("columns", "values", "reason"),
    [
        (PLAIN, ["warm", 1.0], "text in a column of numbers"),
        (PLAIN, [float("inf"), 1.0], "an infinite number"),
        (PLAIN, ["1e999", 1.0], "an infinite number"),
        (VALUED, [1.0, 2.0, None], "no target"),
        (LABELLED, [1.0, 2.0, "  "], "no target"),
        (LABELLED, [1.0, 2.0, None], "no target"),
    ],
)
def test_a_record_that_is_no_row_is_kept_with_its_reason(columns, values, reason):
    good = [3.0, 4.0, "5"][: len(columns.all)]
    batch = batch_of([Record("line 7", values, "as it was"), Record("line 8", good)], columns)
    assert [(bad.place, bad.reason, bad.text) for bad in batch.bad] == [("line 7", reason, "as it was")]
    np.testing.assert_array_equal(batch.X, [[3.0, 4.0]])


def test_a_reason_that_is_known_already_is_the_reason():
    batch = batch_of([Record("line 7", [], "1,2,3", "too many cells")], PLAIN)
    assert batch.bad[0].reason == "too many cells"
    assert batch.X.shape == (0, 2)


def test_targets_are_parted_from_the_rows():
    np.testing.assert_array_equal(batch_of([Record("1", [1, 2, 3])], VALUED).y, [3.0])
    batch = batch_of([Record("1", [1, 2, " high "])], LABELLED)
    assert batch.y.tolist() == ["high"]
    np.testing.assert_array_equal(batch.X, [[1.0, 2.0]])


def test_arrays_are_refused_as_records_are():
    X = np.array([[1.0, 2.0], [np.inf, 0.0], [3.0, np.nan], [4.0, 5.0]])
    y = np.array([1.0, 1.0, 1.0, np.nan])
    records = [Record(f"row {i}", [*row, target]) for i, (row, target) in enumerate(zip(X, y, strict=True))]
    expected, found = batch_of(records, VALUED), without_infinities(Batch(X, y), "row ", 0)
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    assert [bad[:2] for bad in found.bad] == [bad[:2] for bad in expected.bad]


def test_a_part_of_a_batch_has_its_targets_and_times():
    batch = Batch(np.arange(6.0).reshape(3, 2), np.arange(3), times=np.arange(3.0), position={"row": 3})
    part = batch.part(1, 3)
    assert (part.y.tolist(), part.times.tolist(), part.position) == ([1, 2], [1.0, 2.0], {"row": 3})
    assert batch.part(0, 3) is batch
    assert empty_batch(VALUED, notes=["lost"]).X.shape == (0, 2)
