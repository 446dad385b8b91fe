"""Columns that disappear and appear from file to file: gaps, and a word about it."""

from __future__ import annotations

import numpy as np
import pytest

from everlearn.errors import InputError
from everlearn.streams.sources.opening import open_source

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TABLES = [
    {"a": [1.0, 2.0], "b c [m3/h]": [3.0, 4.0]},
    {"a": [5.0, 6.0]},
    {"a": [7.0], "b c [m3/h]": [8.0], "oil [mm]": [9.0]},
]


def write(table, path):
    if path.suffix == ".csv":
        rows = zip(*table.values(), strict=True)
        path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    elif path.suffix == ".jsonl":
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        path.write_text("".join(str(row).replace("'", '"') + "\n" for row in rows))
    else:
        parquet.write_table(pa.table(table), path)


@pytest.fixture(params=["csv", "jsonl", "parquet"])
def pattern(request, tmp_path):
    for i, table in enumerate(TABLES):
        write(table, tmp_path / f"{i}.{request.param}")
    return str(tmp_path / f"*.{request.param}")


def read(source):
    batches = list(source.batches())
    return np.concatenate([batch.X for batch in batches if len(batch.X)]), [n for b in batches for n in b.notes]


def test_a_column_that_disappears_is_a_gap_and_is_said(pattern):
    with open_source(pattern) as source:
        X, notes = read(source)
    np.testing.assert_array_equal(X, [[1, 3], [2, 4], [5, np.nan], [6, np.nan], [7, 8]])
    assert len(notes) == 3
    assert "no column 'b c [m3/h]': its values are gaps" in notes[0]
    assert "has the column 'b c [m3/h]' again" in notes[1]
    assert "a column 'oil [mm]' that was not there before; it is left out" in notes[2]


def test_a_file_of_other_columns_is_refused(tmp_path):
    write(TABLES[0], tmp_path / "0.csv")
    write({"x": [1.0]}, tmp_path / "1.csv")
    with open_source(str(tmp_path / "*.csv")) as source, pytest.raises(InputError, match="no column 'a'"):
        list(source.batches())


def test_reading_goes_on_in_a_file_that_lacks_a_column(tmp_path):
    for i, table in enumerate(TABLES):
        write(table, tmp_path / f"{i}.csv")
    with open_source(str(tmp_path / "*.csv")) as source:
        batches = [batch for batch in source.batches() if len(batch.X)]
        rest = [batch for batch in source.batches(batches[0].position) if len(batch.X)]
    np.testing.assert_array_equal(rest[0].X, batches[1].X)
