"""Files of every sort as streams: the same rows from any position, in any packing, while they grow."""

import contextlib
import gzip
import io
import json
import math
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.errors import InputError
from everlearn.streams.sources import arrow_files as tables
from everlearn.streams.sources import files
from everlearn.streams.sources.files import FileSource
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.source import IteratorSource, Prefetcher

rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 3))
X[rng.random(X.shape) < 0.05] = np.nan
NAMES = ["a", "b", "c"]


def as_csv(rows=X, header=True):
    lines = [",".join(NAMES)] * header
    lines += [",".join("" if math.isnan(v) else repr(v) for v in row) for row in rows.tolist()]
    return ("\n".join(lines) + "\n").encode()


def as_jsonl(rows=X):
    records = [{n: v for n, v in zip(NAMES, row, strict=True) if not math.isnan(v)} for row in rows.tolist()]
    return "".join(json.dumps(record or {"a": None}) + "\n" for record in records).encode()


def write_parquet(path, rows=X, **options):
    pq.write_table(pa.table(dict(zip(NAMES, rows.T, strict=True))), path, **options)


def write_arrow(path, rows=X, stream=False):
    table = pa.table(dict(zip(NAMES, rows.T, strict=True)))
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
        for piece in table.to_batches(max_chunksize=700):
            writer.write_batch(piece)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(tables, "SLICE_ROWS", 256)


@pytest.fixture(params=["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet", "arrow", "arrows", "many"])
def stored(request, tmp_path):
    """The rows as a file, or files, of each sort."""
    kind = request.param
    path = tmp_path / f"rows.{kind}"
    data = as_jsonl() if kind.startswith("jsonl") else as_csv()
    if kind.endswith(".gz"):
        path.write_bytes(gzip.compress(data))
    elif kind == "parquet":
        write_parquet(path, row_group_size=1000)
    elif kind.startswith("arrow"):
        write_arrow(path, stream=kind == "arrows")
    elif kind == "many":
        path = tmp_path / "part*"
        (tmp_path / "part1.csv").write_bytes(as_csv(X[:1000]))
        (tmp_path / "part2.csv.gz").write_bytes(gzip.compress(as_csv(X[1000:1500])))
        write_parquet(tmp_path / "part3.parquet", X[1500:2500])
        (tmp_path / "part4.jsonl").write_bytes(as_jsonl(X[2500:]))
    else:
        path.write_bytes(data)
    return str(path)


def read(path, position=None, **options):
    with open_source(path, **options) as source:
        return list(source.batches(position))


def joined(batches):
    return np.concatenate([batch.X for batch in batches])


def test_every_format_gives_the_same_rows(stored):
    with open_source(stored) as source:
        assert source.columns.names == NAMES
        assert source.progress()[0] == 0
        batches = list(source.batches())
        done, total = source.progress()
    np.testing.assert_array_equal(joined(batches), X)
    assert len(batches) > 5
    assert done == pytest.approx(total, rel=0.2)
    assert not any(batch.bad for batch in batches)


def test_reading_goes_on_from_any_position_in_the_same_batches(stored):
    batches = read(stored)
    for i in range(0, len(batches), 4):
        rest = read(stored, json.loads(json.dumps(batches[i].position)))
        assert [batch.position for batch in rest] == [batch.position for batch in batches[i + 1 :]]
        for found, expected in zip(rest, batches[i + 1 :], strict=True):
            np.testing.assert_array_equal(found.X, expected.X)


def test_columns_by_name_in_any_format(stored):
    np.testing.assert_array_equal(joined(read(stored, columns=["c", "a"])), X[:, [2, 0]])
    with pytest.raises(InputError, match=r"no column 'd'\. It has: a, b, c"):
        open_source(stored, columns=["d"])


def test_a_target_in_any_format(tmp_path):
    rows = np.abs(X[:500, :2])
    rows[np.isnan(rows)] = 1.0
    labels = np.where(rows[:, 0] > 0.5, "high", "low")
    table = pa.table({"x": rows[:, 0], "y": rows[:, 1], "kind": labels.tolist()})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    for name in ("t.parquet", "t.jsonl"):
        batches = read(str(tmp_path / name), target="kind")
        assert np.concatenate([batch.y for batch in batches]).tolist() == labels.tolist()
        np.testing.assert_array_equal(joined(batches), rows)
        batches = read(str(tmp_path / name), target="y")
        np.testing.assert_array_equal(np.concatenate([batch.y for batch in batches]), rows[:, 1])


# -- JSON ------------------------------------------------------------------------------------------


def test_json_records(tmp_path):
    path = tmp_path / "t.jsonl"
    lines = [
        '{"time": "2024-01-01", "motor": {"rpm": 900, "on": true}, "temp": "21.5", "tags": ["a"]}',
        "",
        '{"motor": {"rpm": 901, "on": false}, "temp": null, "name": "M"}',
        "{not json}",
        '{"motor": {"rpm": Infinity}}',
        '{"motor": {"rpm": "fast"}}',
        '{"motor": {"rpm": 902}}',
    ]
    path.write_text("\n".join([*lines, *['{"motor": {"rpm": 1}}'] * 20]))
    (batch,) = read(str(path), columns=["motor.*", "temp"])
    np.testing.assert_array_equal(batch.X[:3], [[900, 1, 21.5], [901, 0, np.nan], [902, np.nan, np.nan]])
    assert [(row.reason, int(row.place.rpartition(":")[2])) for row in batch.bad] == [
        ("a line that is no JSON", 4),
        ("an infinite number", 5),
        ("text in a column of numbers", 6),
    ]
    with open_source(str(path)) as source:
        assert source.columns.names == ["motor.rpm", "motor.on", "temp"]
        assert source.columns.left_out == {"time": "times", "tags": "lists", "name": "text"}


def test_lists_of_numbers(tmp_path):
    (tmp_path / "t.jsonl").write_text("[1, 2.5]\n[3, null]\n")
    (batch,) = read(str(tmp_path / "t.jsonl"))
    np.testing.assert_array_equal(batch.X, [[1, 2.5], [3, np.nan]])


@pytest.mark.parametrize("text", ['[\n{"a": 1},\n{"a": 2}\n]\n', '[{"a": 1}, \n {"a": 2}]'])
def test_a_json_array_is_explained(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError, match="one object a line"):
        open_source(str(tmp_path / "t.json"))


# -- tables ----------------------------------------------------------------------------------------


def test_tables_with_all_sorts_of_columns(tmp_path):
    table = pa.table(
        {
            "when": pa.array([1, 2, 3, 4], pa.timestamp("s")),
            "day": pa.array([1, 2, 3, 4], pa.date32()),
            "name": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
            "n": pa.array([1, None, 3, 4], pa.int32()),
            "flag": pa.array([True, False, True, None]),
            "text": ["1.5", "2.5", "", "4.5"],
            "list": [[1], [2], [3], [4]],
            "deep": [{"x": float(i), "y": {"z": i}} for i in range(4)],
            "x": [1.0, math.inf, 3.0, -math.inf],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    with open_source(str(tmp_path / "t.parquet")) as source:
        assert source.columns.left_out == {"when": "times", "day": "times", "name": "text", "list": "lists"}
        assert source.columns.names == ["n", "flag", "text", "deep.x", "deep.y.z", "x"]
        (batch,) = source.batches()
    np.testing.assert_array_equal(batch.X, [[1, 1, 1.5, 0, 0, 1], [3, 1, np.nan, 2, 2, 3]])
    (batch,) = read(str(tmp_path / "t.parquet"), columns=["x", "n"])
    np.testing.assert_array_equal(batch.X, [[1, 1], [3, 3]])
    assert [row.place.rpartition(" ")[2] for row in batch.bad] == ["1", "3"]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrows"])
def test_damaged_tables_are_refused(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    write_parquet(path) if kind == "parquet" else write_arrow(path, stream=kind == "arrows")
    whole = path.read_bytes()
    for i in range(40):
        broken = bytearray(whole[: len(whole) if i % 2 else rng.integers(8, len(whole))])
        for at in rng.integers(8, len(broken), size=20 if i % 2 else 0):
            broken[at] = rng.integers(256)
        path.write_bytes(broken)
        with contextlib.suppress(InputError):
            assert not any(np.isinf(batch.X).any() for batch in read(str(path)))


# -- many, growing, replaced, standard input -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [("absent.csv", "There is no file"), ("absent*.csv", "No file matches"), (".", "is a folder")],
)
def test_files_that_are_not_there(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        open_source(name)


def test_a_file_that_was_replaced_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(as_csv())
    position = read(str(path))[3].position
    path.write_bytes(as_csv(X[::-1]))
    with pytest.raises(InputError, match="is not the file in which learning stopped"):
        read(str(path), position)
    path.write_bytes(as_csv() + as_csv(X[:10], header=False))
    assert len(joined(read(str(path), position))) > 10


def test_truncated_gzip_files_are_refused(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(as_csv())[:-5000])
    with pytest.raises(InputError, match="damaged or truncated"):
        read(str(path))


def taken(ahead, n):
    """At least n rows of a source that is read ahead."""
    found = []
    for batch in ahead:
        found += [] if batch is None else [batch.X]
        if sum(map(len, found)) >= n:
            return np.concatenate(found)
    raise AssertionError("the source ended")


@pytest.mark.slow
def test_a_growing_file_is_followed_and_so_are_new_ones(tmp_path):
    data = as_csv()
    path = tmp_path / "log1.csv"
    path.write_bytes(data[:5])

    def grow():
        for start in range(5, len(data), 40_000):
            time.sleep(0.05)
            with open(path, "ab") as file:
                file.write(data[start : start + 40_000])
        (tmp_path / "log2.csv").write_bytes(as_csv(X[:500]))

    threading.Thread(target=grow).start()
    source = open_source(str(tmp_path / "log*.csv"), follow=True)
    assert source.live
    ahead = Prefetcher(source, None, timeout=0.05)
    np.testing.assert_array_equal(taken(ahead, 3500), np.concatenate([X, X[:500]]))
    ahead.close()
    source.close()


def test_half_a_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4")
    source = open_source(str(path), follow=True)
    ahead = Prefetcher(source, None, timeout=0.05)
    assert taken(ahead, 1).tolist() == [[1, 2]]
    with open(path, "a") as file:
        file.write("5\n")
    assert taken(ahead, 1).tolist() == [[3, 45]]
    ahead.close()


def test_standard_input(monkeypatch):
    class Pipe(io.BytesIO):
        def read1(self, n=-1):
            return self.read(min(n, 1000))

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Pipe(as_csv())))
    with open_source("-") as source:
        assert not source.replayable
        assert source.progress() is None
        np.testing.assert_array_equal(joined(source.batches()), X)
    with pytest.raises(InputError, match="cannot be read together"):
        FileSource(["-", "t.csv"])


# -- Python iterators, reading ahead -----------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1, max_size=10), st.integers(0, 500))
def test_any_iterator_of_batches(sizes, skip):
    ends = np.cumsum(sizes)
    rows = X[: ends[-1]]
    source = IteratorSource(lambda: np.split(rows, ends[:-1]))
    assert source.columns.names == ["column0", "column1", "column2"]
    batches = list(source.batches({"row": skip}))
    assert sum(len(batch.X) for batch in batches) == max(0, len(rows) - skip)
    if batches:
        np.testing.assert_array_equal(joined(batches), rows[skip:])
        assert batches[-1].position == {"row": len(rows)}


def test_an_iterator_is_read_once_and_infinities_are_left_out():
    rows = X[:20].copy()
    rows[7, 1] = math.inf
    source = IteratorSource(iter([rows[:5], rows[5:]]))
    assert not source.replayable
    batches = list(source.batches())
    np.testing.assert_array_equal(joined(batches), np.delete(rows, 7, axis=0))
    assert batches[1].bad[0].place == "the iterator: row 7"


def test_reading_ahead_hands_errors_over():
    def broken():
        yield X[:5]
        raise ZeroDivisionError

    ahead = Prefetcher(IteratorSource(broken, names=NAMES), None)
    with pytest.raises(ZeroDivisionError):
        taken(ahead, 10)
    ahead.close()


def test_later_files_may_begin_with_bad_rows(tmp_path):
    """Columns are judged in the first file; the rows of the others are good or bad one by one."""
    for name, text in {"1": "1,2\n3,4\n", "2": "0,0\nbad,row\n", "3": "bad,row\n", "4": "7,8\n"}.items():
        (tmp_path / f"{name}.csv").write_text(f"a,b\n{text}")
    with FileSource([str(tmp_path / "*.csv")]) as source:
        batches = list(source.batches())
    assert np.concatenate([batch.X for batch in batches]).tolist() == [[1, 2], [3, 4], [0, 0], [7, 8]]
    assert sum(len(batch.bad) for batch in batches) == 2
