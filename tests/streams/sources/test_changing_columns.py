"""Columns that disappear and appear from file to file: gaps, and a word about it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from everlearn.errors import InputError
from everlearn.streams.sources.jsonl import MOST_GROWN, NewColumns
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.schema import Choice, Columns

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


def test_with_grow_a_column_that_appears_is_read_behind_the_others(pattern):
    with open_source(pattern, grow=True) as source:
        batches = list(source.batches())
        assert source.columns.names == ["a", "b c [m3/h]", "oil [mm]"]
    assert [batch.X.tolist() for batch in batches if len(batch.X)][-1] == [[7.0, 8.0, 9.0]]
    assert [name for batch in batches for name in batch.grown] == ["oil [mm]"]
    assert "it is learned from now on" in batches[-2].notes[-1]


def test_a_run_that_goes_on_knows_what_appeared(pattern):
    known = Columns(["a", "b c [m3/h]", "oil [mm]"], {})
    with open_source(pattern, grow=True, known=known) as source:
        X, notes = read(source)
    np.testing.assert_array_equal(X[0], [1, 3, np.nan])
    np.testing.assert_array_equal(X[-1], [7, 8, 9])
    assert not any("not there before" in note for note in notes)


def test_only_columns_that_match_what_was_asked_for_appear(pattern):
    with open_source(pattern, columns=["a", "b*"], grow=True) as source:
        X, notes = read(source)
    assert X.shape[1] == 2
    assert "'oil [mm]' that was not there before; it is left out" in notes[-1]


def test_keys_that_appear_in_the_middle_of_a_file_of_json_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.streams.sources.jsonl.LOOK_ROWS", 2)
    monkeypatch.setattr("everlearn.streams.sources.files.BLOCK_BYTES", 64)
    path = tmp_path / "rows.jsonl"
    rows = [{"a": 1, "b": 2}] * 8 + [{"a": 3, "oil": 4, "why": "text"}] * 8
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with open_source(str(path)) as source:
        X, notes = read(source)
    assert X.shape == (16, 2)
    assert notes == [f"{path} has a column 'oil' that was not there before; it is left out."]
    with open_source(str(path), grow=True) as source:
        batches = [batch for batch in source.batches() if len(batch.X)]
    assert [name for batch in batches for name in batch.grown] == ["oil"]
    assert np.array_equal(batches[0].X[0], [1, 2])
    np.testing.assert_array_equal(batches[-1].X[-1], [3, np.nan, 4])
    # From any position behind it, a run that knows the column reads the same.
    known = Columns(["a", "b", "oil"], {})
    with open_source(str(path), grow=True, known=known) as source:
        rest = list(source.batches(batches[-2].position))
    np.testing.assert_array_equal(rest[-1].X, batches[-1].X)


def test_names_that_never_end_are_no_sensors():
    new = NewColumns(Columns(["a"], {}), {"a": "numbers"}, Choice(grow=("*",)))
    for i in range(300):
        new.look("here", [{"a": 1.0, f"x{i}": 1.0}])
    assert len(new.columns.names) == 1 + MOST_GROWN
