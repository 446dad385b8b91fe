"""Parquet and Arrow files with a column of every type, sound and damaged."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everlearn.errors import InputError
from everlearn.streams.sources.files import FileSource

NAN = float("nan")
WHOLE, HALVES = [1, 2, NAN, 4, 6], [1, NAN, NAN, -2.5, 4]  # without row 4, which has an infinite number
EXPECTED = {
    **dict.fromkeys(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"], WHOLE),
    **dict.fromkeys(["float", "double"], HALVES),
    "half": [1, 2, 3, 4, 6],
    "bool": [1, NAN, 0, 1, 0],
    "decimal128": [1.25, NAN, 1.25, NAN, NAN],
    "decimal256": [1.25, NAN, 1.25, NAN, NAN],
    "levels": [1.5, 2.5, NAN, 1.5, NAN],
    "struct.u": [1, NAN, 1, NAN, NAN],
    "struct.v.w": [2, NAN, 2, NAN, NAN],
}
LEFT_OUT = {
    **dict.fromkeys(["text", "large text", "bytes", "fixed bytes", "labels"], "text"),
    **dict.fromkeys(["date32", "date64", "time32", "time64", "timestamp", "zoned", "duration"], "times"),
    **dict.fromkeys(["list", "fixed list", "map"], "lists"),
    "null": "nothing",
}


@pytest.fixture(scope="module")
def table(tool):
    return tool("fuzz_targets").arrow_table()


def write(table, path, form):
    if form == "parquet":
        pq.write_table(table, path, row_group_size=4)
        return
    with (pa.ipc.new_file if form == "file" else pa.ipc.new_stream)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_every_type_is_read_or_left_out_with_its_reason(table, tmp_path, form):
    write(table, tmp_path / "t", form)
    with FileSource([str(tmp_path / "t")]) as source:
        batches = list(source.batches())
    assert source.columns.names == list(EXPECTED)
    assert source.columns.left_out == LEFT_OUT
    X = np.concatenate([batch.X for batch in batches])
    for i, (name, values) in enumerate(EXPECTED.items()):
        np.testing.assert_array_equal(X[:, i], values, err_msg=name)
    assert [bad.reason for batch in batches for bad in batch.bad] == ["an infinite number"]


def test_times_that_python_cannot_say_are_gaps(tmp_path):
    moments = pa.array([0, 2**62, 10**6], pa.timestamp("us"))
    pq.write_table(pa.table({"when": moments, "a": [1.0, 2.0, 3.0]}), tmp_path / "t.parquet")
    with FileSource([str(tmp_path / "t.parquet")]) as source:
        (batch,) = source.batches()
    assert batch.X.tolist() == [[1], [2], [3]]


@pytest.mark.parametrize("share", np.linspace(0.0, 0.99, 25).tolist())
def test_a_file_that_ends_too_soon_is_refused_or_read(table, tmp_path, share):
    write(table, tmp_path / "t", "file")
    data = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError), FileSource([str(tmp_path / "t")]) as source:
        list(source.batches())
