"""Rows from dicts and data frames: the same rows, and answers in the form of the question."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from everlearn.errors import InputError
from everlearn.river.batches import Dicts, Table, batch_of, in_order, observed_in, rows_of

DICTS = [{"b": 1, "a": 2.5}, {"b": None, "c": True}, {}]
EXPECTED = [[2.5, 1.0, np.nan], [np.nan, np.nan, 1.0], [np.nan] * 3]


def test_a_feature_that_a_dict_lacks_is_a_gap():
    np.testing.assert_array_equal(rows_of(DICTS, ("a", "b", "c")), EXPECTED)
    assert rows_of([], ("a",)).shape == (0, 1)


def test_the_feature_to_blame_is_named():
    with pytest.raises(InputError, match=r"Feature 'b' is 'red', which is not a number.*OneHotEncoder"):
        rows_of([{"a": 1.0}, {"a": 1.0, "b": "red"}], ("a", "b"))
    with pytest.raises(InputError, match="x must be a dict of features; got a list"):
        rows_of([[1.0, 2.0]], ("a",))
    with pytest.raises(InputError, match="a column that is not numbers"):
        Table(pd.DataFrame({"a": ["red", "blue"]}))


def test_features_that_never_had_a_value_are_not_observed():
    dicts = [{"a": 0.0, "b": None}, {"b": float("nan"), "c": False}]
    assert observed_in(dicts) == {"a", "c"}
    assert observed_in(dicts, {"c", "d"}) == {"c"}


def test_the_order_of_names_does_not_depend_on_how_they_came():
    for names in (["b", "a", "c"], [3, "a", 1], [(1, 2), "x"]):
        assert in_order(names) == in_order(names[::-1])
        assert set(in_order(names)) == set(names)
    assert in_order({"b", "a"}) == ("a", "b")


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_table_has_the_rows_of_its_dicts(kind):
    columns = {"b": [1.0, 4.0], "a": [2.5, -1.0]}
    table, dicts = batch_of(kind(columns)), batch_of([{"b": 1.0, "a": 2.5}, {"b": 4.0, "a": -1.0}])
    assert (type(table), type(dicts)) == (Table, Dicts)
    assert list(table) == list(dicts)
    assert table.features() == dicts.features() == {"a", "b"}
    np.testing.assert_array_equal(table.rows(("a", "z", "b")), dicts.rows(("a", "z", "b")))
    assert len(table) == len(dicts) == 2


def test_answers_to_dicts_are_lists_and_to_a_frame_frames_with_its_index():
    values = np.array([[7.0, 8.0], [9.0, 10.0]])
    dicts, frame = batch_of([{"x": "kept", "a": None}, {"a": 1.0}]), pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 3])
    assert dicts.series(values[:, 0]) == [7.0, 9.0]
    assert dicts.frame(values, ["p", 1]) == [{"p": 7.0, 1: 8.0}, {"p": 9.0, 1: 10.0}]
    assert dicts.filled(values[:, :1], ("a",)) == [{"x": "kept", "a": 7.0}, {"a": 9.0}]
    table = batch_of(frame)
    assert table.series(values[:, 0]).to_dict() == {5: 7.0, 3: 9.0}
    assert table.frame(values, ["p", 1]).to_dict() == {"p": {5: 7.0, 3: 9.0}, 1: {5: 8.0, 3: 10.0}}
    assert table.filled(values, ("b", "a")).to_dict() == {"a": {5: 8.0, 3: 10.0}, "b": {5: 7.0, 3: 9.0}}
    assert frame["a"].tolist() == [1.0, 2.0]


def test_iterated_dicts_are_copies():
    given = [{"a": 1.0}]
    next(iter(Dicts(given)))["a"] = 5.0
    assert given == [{"a": 1.0}]
