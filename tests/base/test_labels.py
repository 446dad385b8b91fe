"""Labels of classes: one kind, one a row, sorted."""

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning

from everlearn.base.labels import check_labels, check_same_kind, inserted
from everlearn.errors import InputError


@pytest.mark.parametrize(
    ("y", "kind"),
    [(["a", "bc"], "U"), ([3, 1], "i"), ([True, False], "b"), (np.array([2.0, 5.0]), "f"),
     (np.array(["a", "b"], object), "U"), (np.array([1, 2], object), "i"), (np.array([1, 2], np.uint8), "u")],
)  # fmt: skip
def test_text_whole_numbers_and_truth_values_are_labels(y, kind):
    found = check_labels(y, "y", 2)
    assert found.dtype.kind == kind
    assert found.tolist() == list(y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([1, 2, 3], r"y has shape \(3,\); give one label for each of 2 rows"),
        ([[1, 2], [3, 4]], r"shape \(2, 2\)"),
        (np.array(["a", 1], object), "text and other values. Use one kind"),
        ([0.5, 1.7], "cannot be taken as labels"),
        ([1.0, np.nan], "contains NaN or infinity; every row needs a label"),
        ([1 + 2j, 3j], "values of type complex128"),
        (np.array([None, 1], object), "y"),
    ],
)
def test_what_is_no_label_is_refused(y, message):
    with pytest.raises(InputError, match=message):
        check_labels(y, "y", 2)


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert check_labels([[1], [0]], "y", 2).tolist() == [1, 0]


def test_kinds_are_not_mixed_and_numbers_are_one_kind():
    check_same_kind(np.array([1]), np.array([2.0]))
    check_same_kind(np.array(["a"]), np.array([], float))  # nothing is known yet
    with pytest.raises(InputError, match="Some labels are text, others are numbers"):
        check_same_kind(np.array(["a"]), np.array([1]))
    with pytest.raises(InputError, match="truth values"):
        check_same_kind(np.array([True]), np.array([1]))


def test_an_inserted_label_is_neither_cut_nor_rounded():
    """An array of text of two letters, or of small whole numbers, would do that."""
    assert inserted(np.array(["aa", "cc"]), 1, "a longer one").tolist() == ["aa", "a longer one", "cc"]
    assert inserted(np.array([1, 3], np.int8), 2, 2**40).tolist() == [1, 3, 2**40]
    assert inserted(np.array([], float), 0, "x").tolist() == ["x"]
