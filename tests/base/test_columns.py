"""Columns by name, number, mask or slice, and messages that help where there is none."""

from types import SimpleNamespace

import numpy as np
import pytest

from everlearn.base.columns import column_names, column_numbers
from everlearn.errors import InputError

NAMES = ["rpm", "torque", "heat", "load"]


def numbers(select, names=NAMES):
    return column_numbers(select, names, 4, "target").tolist()


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("heat", [2]), (1, [1]), (-1, [3]), (np.int64(0), [0]), (["load", 0, -2], [3, 0, 2]),
        (slice(1, None, 2), [1, 3]), ([True, False, False, True], [0, 3]), (np.array([False, True, False, False]), [1]),
        (("rpm", "torque"), [0, 1]), (range(2), [0, 1]),
    ],
)  # fmt: skip
def test_columns_are_found_in_the_order_in_which_they_were_named(select, expected):
    assert numbers(select) == expected


@pytest.mark.parametrize(
    ("select", "names", "message"),
    [
        ("torqe", NAMES, r"target holds 'torqe'.*Did you mean 'torque'\? It has: rpm, torque, heat, load"),
        ("rpm", None, "learned from columns without names.*Give column numbers"),
        (4, NAMES, "target holds the column 4; the model has the columns 0 to 3"),
        (-5, NAMES, "the column -5"),
        ([], NAMES, "names no column"),
        ([False] * 4, NAMES, "names no column"),
        (["rpm", 0], NAMES, "names a column twice"),
        ([1, -3], NAMES, "names a column twice"),
        ([True, False], NAMES, "a mask of 2 values; the model has 4 columns"),
        ([0, True], NAMES, "target holds True"),
        (1.0, NAMES, "by name or by number"),
        (None, NAMES, "target holds None"),
    ],
)
def test_what_is_no_column_is_refused_with_the_way_out(select, names, message):
    with pytest.raises(InputError, match=message):
        numbers(select, names)


def test_a_long_list_of_names_is_cut():
    names = [f"sensor_{i}" for i in range(50)]
    with pytest.raises(InputError, match="sensor_19, and 30 more"):
        column_numbers("nothing", names, 50, "given")


def test_a_model_without_names_calls_its_columns_by_number():
    assert column_names(SimpleNamespace(n_features_in_=3)) == ["x0", "x1", "x2"]
    assert column_names(SimpleNamespace(n_features_in_=2, feature_names_in_=np.array(["a", "b"]))) == ["a", "b"]
