"""Parquet and Arrow files: columns of every type, ranges of row groups, damage and disks that fail."""

import datetime
import decimal
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everlearn.errors import InputError
from everlearn.streams.sources.arrow_files import TableFile
from everlearn.streams.sources.opening import open_source

N = 12
DAY = datetime.date(2026, 11, 5)
WHOLE = list(range(N))
NUMBERS = {
    **{str(kind): pa.array(WHOLE, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): pa.array(WHOLE, kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "half": pa.array(np.arange(N, dtype=np.float16)),
    "float": pa.array(WHOLE, pa.float32()),
    "double": pa.array(WHOLE, pa.float64()),
    "decimal128": pa.array([decimal.Decimal(i) for i in WHOLE], pa.decimal128(12, 3)),
    "decimal256": pa.array([decimal.Decimal(i) for i in WHOLE], pa.decimal256(40, 3)),
    "dictionary of numbers": pa.array(WHOLE, pa.int32()).dictionary_encode(),
    "text of numbers": pa.array([str(i) for i in WHOLE]),
    "large text of numbers": pa.array([str(i) for i in WHOLE], pa.large_string()),
    "bytes of numbers": pa.array([str(i).encode() for i in WHOLE]),
}
OTHERS = {
    "bool": (pa.array([i % 2 == 0 for i in WHOLE]), "numbers"),
    "text": (pa.array(["valve"] * N), "text"),
    "bytes": (pa.array([b"\xff\x00"] * N), "text"),
    "fixed bytes": (pa.array([b"abcd"] * N, pa.binary(4)), "text"),
    "dictionary of text": (pa.array(["on", "off"] * (N // 2)).dictionary_encode(), "text"),
    "nothing": (pa.nulls(N), "nothing"),
    "gaps": (pa.array([None] * N, pa.float64()), "nothing"),
    "list": (pa.array([[1.0, 2.0]] * N), "lists"),
    "map": (pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())), "lists"),
    "date32": (pa.array([DAY] * N, pa.date32()), "times"),
    "date64": (pa.array([DAY] * N, pa.date64()), "times"),
    "time32": (pa.array(WHOLE, pa.time32("s")), "times"),
    "time64": (pa.array(WHOLE, pa.time64("us")), "times"),
    "duration": (pa.array(WHOLE, pa.duration("us")), "times"),
    "timestamp s": (pa.array(WHOLE, pa.timestamp("s")), "times"),
    "timestamp ns": (pa.array([i * 10**9 + 1 for i in WHOLE], pa.timestamp("ns")), "times"),
    "timestamp zone": (pa.array(WHOLE, pa.timestamp("ms", tz="Europe/Berlin")), "times"),
}


def written(tmp_path, column):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": column, "y": pa.array(np.linspace(0.0, 1.0, N))}), path)
    return str(path)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_any_type_are_numbers(tmp_path, name):
    with open_source(written(tmp_path, NUMBERS[name])) as source:
        (batch,) = source.batches()
    assert source.columns.names == ["x", "y"]
    np.testing.assert_array_equal(batch.X[:, 0], WHOLE)


@pytest.mark.parametrize("name", OTHERS)
def test_other_types_are_left_out_with_their_reason(tmp_path, name):
    column, kind = OTHERS[name]
    path = written(tmp_path, column)
    file = TableFile(path)
    assert file.kinds == {"x": kind, "y": "numbers"}
    (batch,) = file.batches()
    assert len(batch.X) == N
    if kind not in ("numbers", "nothing"):
        with pytest.raises(InputError, match=f"'x'.*holds {kind}"):
            open_source(path, columns=["x"])


def test_structs_become_columns_of_their_own(tmp_path):
    column = pa.array([{"rpm": i, "oil": {"temp": 2.0 * i}} for i in WHOLE])
    with open_source(written(tmp_path, column)) as source:
        (batch,) = source.batches()
    assert source.columns.names == ["x.rpm", "x.oil.temp", "y"]
    np.testing.assert_array_equal(batch.X[:, 1], 2.0 * np.arange(N))


def test_times_of_nanoseconds_are_read_to_the_microsecond(tmp_path):
    column = OTHERS["timestamp ns"][0]
    with open_source(written(tmp_path, column)) as source:
        (batch,) = source.batches()
    np.testing.assert_array_equal(batch.times, np.arange(N, dtype=float))


def test_row_groups_are_read_alone(tmp_path):
    X = np.arange(50.0).reshape(25, 2)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), path, row_group_size=10)
    assert TableFile(str(path)).row_group_rows() == (10, 10, 5)
    for groups, rows in (([1], X[10:20]), ([0, 2], X[[*range(10), *range(20, 25)]])):
        batches = list(TableFile(str(path), row_groups=groups, slice_rows=4).batches())
        assert max(len(batch.X) for batch in batches) <= 4
        np.testing.assert_array_equal(np.concatenate([batch.X for batch in batches]), rows)


def test_damage_is_named_and_errors_of_the_disk_stay_what_they_are(tmp_path, monkeypatch):
    path = written(tmp_path, NUMBERS["double"])
    whole = pathlib.Path(path).read_bytes()
    with open(path, "wb") as file:
        file.write(whole[:-8] + b"\xff" * 4 + whole[-4:])
    with pytest.raises(InputError, match=r"t.parquet cannot be read; it is damaged"):
        TableFile(path)
    with open(path, "wb") as file:
        file.write(whole)
    table = TableFile(path)
    monkeypatch.setattr(table, "_pieces", lambda start: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        list(table.batches())
