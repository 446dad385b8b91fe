"""Files of answers: what stands in them, where they go on after a restart, and which addresses are refused."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from everlearn.errors import InputError
from everlearn.streams.writers import open_writer

FIELDS = ["row", "score", "word"]
RECORDS = [(0, 0.5, "a,b"), (1, float("nan"), 'say "x"'), (2, -1e300, "")]


def contents(path):
    if path.suffix == ".parquet":
        files = sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]
        return [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    return path.read_text().splitlines()


def written(path, *groups, **options):
    with open_writer(str(path), FIELDS, **options) as writer:
        for records in groups:
            writer.write(records)
            position = writer.flush()
    return position


def test_csv_leaves_a_cell_empty_where_there_is_no_number(tmp_path):
    written(tmp_path / "a.csv", RECORDS)
    assert contents(tmp_path / "a.csv") == ["row,score,word", '0,0.5,"a,b"', '1,,"say ""x"""', "2,-1e+300,"]


def test_json_lines_hold_null_where_there_is_no_finite_number(tmp_path):
    written(tmp_path / "a.jsonl", RECORDS[:2], [(2, float("inf"), None)])
    found = [json.loads(line) for line in contents(tmp_path / "a.jsonl")]
    assert [record["score"] for record in found] == [0.5, None, None]
    assert list(found[0]) == FIELDS


def test_a_parquet_file_takes_whole_numbers_after_floats(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.streams.writers._GROUP_ROWS", 0)
    written(tmp_path / "a.parquet", [(0, 0.5, "a")], [(1, 2, "b")])
    assert contents(tmp_path / "a.parquet") == [(0, 0.5, "a"), (1, 2.0, "b")]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_what_lies_behind_the_position_is_dropped(tmp_path, ending):
    """A crash after a flush and before the commit: the records come again, and are there once."""
    path, whole = tmp_path / f"a{ending}", tmp_path / f"whole{ending}"
    position = written(path, RECORDS[:1], resumable=True)
    lost = open_writer(str(path), FIELDS, resumable=True, position=position)
    lost.write(RECORDS[1:])
    lost.flush()
    lost.close()
    written(path, RECORDS[1:], resumable=True, position=position)
    written(whole, RECORDS, resumable=True)
    np.testing.assert_equal(contents(path), contents(whole))
    assert len(contents(path)) == len(RECORDS) + (ending == ".csv")


def test_a_file_that_lost_records_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    position = written(path, RECORDS)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"a.csv is shorter than it was"):
        open_writer(str(path), FIELDS, position=position)


def test_a_flush_that_failed_can_be_repeated(tmp_path):
    path = tmp_path / "a.jsonl"
    writer = open_writer(str(path), FIELDS)
    writer.write(RECORDS[:1])

    class Full:
        """A disk that takes ten bytes."""

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            self.file.write(data[:10])
            raise OSError("No space left on device")

    file, writer._file = writer._file, Full(writer._file)
    with pytest.raises(OSError, match="No space"):
        writer.flush()
    writer._file = file
    assert writer.flush() == {"bytes": path.stat().st_size}
    writer.close()
    assert [json.loads(line)["row"] for line in contents(path)] == [0]


@pytest.mark.parametrize("where", ["answers.xlsx", "answers", "ftp://host/name"])
def test_other_addresses_are_refused(where):
    with pytest.raises(InputError, match=where.split(":")[0]):
        open_writer(where, FIELDS)
