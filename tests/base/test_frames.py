"""An answer comes in the table that the question came in."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from everlearn.base.frames import in_kind_of

VALUES = np.arange(6.0).reshape(3, 2)


def test_pandas_keeps_names_and_index():
    found = in_kind_of(pd.DataFrame(np.zeros((3, 2)), index=["x", "y", "z"], columns=["b", "a"]), VALUES)
    pd.testing.assert_frame_equal(
        found, pd.DataFrame({"b": [0.0, 2.0, 4.0], "a": [1.0, 3.0, 5.0]}, index=["x", "y", "z"])
    )


def test_polars_and_arrow_keep_names():
    found = in_kind_of(pl.DataFrame({"b": [0.0] * 3, "a": [0.0] * 3}), VALUES)
    assert found.to_dict(as_series=False) == {"b": [0.0, 2.0, 4.0], "a": [1.0, 3.0, 5.0]}
    found = in_kind_of(pa.table({"b": [0.0] * 3, "a": [0.0] * 3}), VALUES)
    assert found.to_pydict() == {"b": [0.0, 2.0, 4.0], "a": [1.0, 3.0, 5.0]}


@pytest.mark.parametrize("table", [VALUES.tolist(), np.zeros((3, 2)), pd.Series([1.0, 2.0, 3.0])], ids=type)
def test_anything_else_is_answered_with_an_array(table):
    assert in_kind_of(table, VALUES) is VALUES
