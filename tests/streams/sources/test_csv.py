"""CSV files of every sort: what is read, what is left out, and what is said about it."""

import contextlib
import math
import tracemalloc
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.errors import InputError
from everlearn.streams.sources import csv, files
from everlearn.streams.sources.opening import open_source


def read_file(path, **options):
    """All rows of a file, and what was said about it."""
    with open_source(str(path), **options) as source:
        batches = list(source.batches())
    bad = [row for batch in batches for row in batch.bad]
    first_bad = {}
    for row in bad:
        first_bad.setdefault(row.reason, int(row.place.rpartition(":")[2]))
    X = [batch.X for batch in batches] or [np.empty((0, len(source.columns.names)))]
    found = SimpleNamespace(
        names=source.columns.names,
        left_out=source.columns.left_out,
        bad_rows=Counter(row.reason for row in bad),
        first_bad=first_bad,
        y=None if options.get("target") is None else np.concatenate([batch.y for batch in batches]),
    )
    return np.concatenate(X), found


@pytest.fixture(params=["fast", "cell by cell"])
def read(tmp_path, request, monkeypatch):
    """Write a text, read it in one of two ways, and return the rows and what was said."""
    if request.param != "fast":
        monkeypatch.setattr(csv.FastParser, "of", classmethod(lambda *arguments: None))

    def run(text, **options):
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_file(path, **options)

    return run


def test_plain_table(read):
    rows, source = read("a,b\n1,2\n3,4.5\n")
    assert source.names == ["a", "b"]
    assert rows.tolist() == [[1, 2], [3, 4.5]]
    assert rows.dtype == np.float64
    assert source.left_out == {}
    assert not source.bad_rows


def test_no_header(read):
    rows, source = read("1,2\n3,4\n")
    assert source.names == ["column0", "column1"]
    assert len(rows) == 2


@pytest.mark.parametrize(
    "text", ["a;b\n1,5;2\n", "a\tb\n1.5\t2\n", "a|b\n1.5|2\n", "\ufeffa,b\r\n1.5,2\r\n", '\n\n"a","b"\n"1.5"," 2 "']
)
def test_dialects(read, text):
    rows, source = read(text)
    assert source.names == ["a", "b"]
    assert rows.tolist() == [[1.5, 2]]


@pytest.mark.parametrize("token", ["", " ", "nan", "NaN", "NA", "N/A", "null", "None", "-", "?"])
def test_gaps(read, token):
    rows, _ = read(f"a,b\n1,2\n{token},3\n")
    assert math.isnan(rows[1, 0])
    assert rows[1, 1] == 3


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("machine", ["M1", "M2", "M1"], "text"),
        ("when", ["2024-01-01T00:00:00Z", "2024-01-01 00:01", "2024-01-02"], "times"),
        ("clock", ["00:00:01", "00:00:02", "00:00:03"], "times"),
        ("datum", ["24.12.2024", "25.12.2024", "26.12.2024"], "times"),
        ("Timestamp", ["1700000000", "1700000001", "1700000007"], "rising times"),
        ("id", ["1", "2", "3"], "row numbers"),
        ("", ["0", "1", "2"], "row numbers"),
        ("spare", ["", "", ""], "nothing"),
    ],
)
def test_columns_left_out(read, name, cells, kind):
    rows, source = read(f"{name},x\n" + "".join(f"{cell},{i}.5\n" for i, cell in enumerate(cells)))
    assert source.left_out == {name or "column0": kind}
    assert source.names == ["x"]
    assert rows.tolist() == [[0.5], [1.5], [2.5]]


def test_a_column_called_time_that_goes_up_and_down_is_a_number(read):
    assert read("time,x\n3,1\n1,1\n2,1\n")[1].names == ["time", "x"]


def test_bad_rows_are_counted_with_their_first_line(read):
    text = "a,b\n" + "1,2\n" * 1500 + "1\n1,2,3\nlow,2\n1,inf\n\n1e999,2\n7,8\n"
    rows, source = read(text)
    assert len(rows) == 1501
    assert rows[-1].tolist() == [7, 8]
    assert source.bad_rows == {
        "too few or too many cells": 2,
        "text in a column of numbers": 1,
        "an infinite number": 2,
    }
    assert source.first_bad == {
        "too few or too many cells": 1502,
        "text in a column of numbers": 1504,
        "an infinite number": 1505,
    }


def test_rows_without_any_value_are_rows_and_blank_lines_are_not(read):
    rows, _ = read("a,b\n1,2\n,\n\n3,4\n")
    assert np.isnan(rows[1]).all()
    assert len(rows) == 3


def test_columns_by_name_and_pattern(read):
    rows, source = read("temp_in,rpm,temp_out\n1,2,3\n", columns=["rpm", "temp*"])
    assert source.names == ["rpm", "temp_in", "temp_out"]
    assert rows.tolist() == [[2, 1, 3]]
    rows, source = read("timestamp,x\n1,2\n2,5\n", columns=["timestamp"])
    assert rows.tolist() == [[1], [2]]


def test_names_are_unique(read):
    assert read("a,a,,a\n1,2,3,4\n")[1].names == ["a", "a.1", "column2", "a.3"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, r"table\.csv is empty"),
        ("\n \n", {}, "is empty"),
        ("a,b\n", {}, r"a header \(a, b\) but no rows"),
        ("a,b\n1\n2\n", {}, "2 names in its header, but no row"),
        ("name,when\nx,2024-01-01\n", {}, r"no column of numbers: name \(text\), when \(times\)"),
        ("a,b\n1,2\n", {"columns": ["c"]}, "no column 'c'. It has: a, b"),
        ("a,b\n1,low\n", {"columns": ["b"]}, "'b' of .* holds text"),
        (b"PK\x03\x04\x00\x00rubbish", {}, "not a text file"),
        (bytes(range(128, 256)) * 3, {}, "not a text file"),
        ("a,b\n1,2\n".encode("utf-16"), {}, "not a text file"),
    ],
)
def test_no_table(read, text, options, message):
    with pytest.raises(InputError, match=message):
        read(text, **options)


def test_targets(read):
    text = "kind,x,y\nred,1,2\n blue ,3,4\n,5,6\nred,7,\nred,8,9\n"
    rows, source = read(text, target="kind")
    assert source.y.tolist() == ["red", "blue", "red", "red"]
    assert source.names == ["x", "y"]
    assert source.bad_rows == {"no target": 1}
    rows, source = read(text, target="y", columns=["x"])
    assert source.y.tolist() == [2, 4, 6, 9]
    assert rows.ravel().tolist() == [1, 3, 5, 8]
    with pytest.raises(InputError, match=r"no column 'z' for the target\. It has: kind, x, y"):
        read(text, target="z")


def test_quoted_cells(read):
    text = 'note,x,y\n"a, b",1,2\n"two\nlines ""x""",3,4\n5" pipe,5,6\n"open,7,8\n9,9,9\n'
    rows, source = read(text)
    assert source.names == ["x", "y"]
    assert rows.tolist() == [[1, 2], [3, 4], [5, 6], [9, 9]]
    assert source.first_bad == {"quotes that do not close": 6}


def test_lines_that_end_in_carriage_returns(read):
    assert read("a,b\r1,2\r3,4\r")[0].tolist() == [[1, 2], [3, 4]]


def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(files, "HEAD_BYTES", 4096)

    def peak(n):
        path = tmp_path / f"{n}.csv"
        path.write_text("a,b,c\n" + "1.25,2.5,3.75\n" * n)
        tracemalloc.start()
        with open_source(str(path)) as source:
            assert sum(len(batch.X) for batch in source.batches()) == n
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(2000)
    assert peak(20_000) < 1.1 * peak(5000) + 10_000


def test_endless_lines_and_quotes_are_cut(read, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 12)
    monkeypatch.setattr(files, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(files, "HEAD_BYTES", 1 << 8)
    rows, source = read("a,b\n1,2\n" + "7," * 5000 + "\n3,4\n")
    assert rows.tolist() == [[1, 2], [3, 4]]
    assert sum(source.bad_rows.values()) == 1
    rows, source = read('a,b\n1,2\n3,"' + "4\n" * 10_000 + "5,6\n")
    assert rows.tolist() == [[1, 2], [5, 6]]
    assert sum(source.bad_rows.values()) == 10_000


_LINE = st.text('0123456789.,;"abc\t-', max_size=20) | st.sampled_from(["1,2", "3,4", '"5",6', "1e999,2", ",", ""])


@given(st.lists(_LINE, max_size=40), st.sampled_from(["\n", "\r\n"]), st.integers(20, 200), st.booleans())
def test_any_blocks_give_the_same_rows(tmp_path_factory, lines, newline, block, end):
    """Block size and way of parsing decide nothing but speed."""
    path = tmp_path_factory.mktemp("blocks") / "t.csv"
    path.write_bytes(newline.join(["a,b", *["1,2"] * 400, *lines]).encode() + newline.encode() * end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "LONGEST_RECORD", 2)
        whole = read_file(path)
        patch.setattr(files, "BLOCK_BYTES", block)
        parts = read_file(path)
        patch.setattr(csv.FastParser, "of", classmethod(lambda *arguments: None))
        cells = read_file(path)
    for other in (parts, cells):
        np.testing.assert_array_equal(other[0], whole[0])
        assert other[1].bad_rows == whole[1].bad_rows
        assert other[1].first_bad == whole[1].first_bad


@given(st.binary(max_size=300) | st.text("0123456789.,;\n\"'abc\t\r\0é-", max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        rows, source = read_file(path)
        assert rows.shape[1] == len(source.names)
        assert not np.isinf(rows).any()


def test_names_in_windows_1252_are_read(tmp_path):
    """German loggers write their degree signs and umlauts so; the file is no UTF-8."""
    text = "Zähler;Lager [°C];Öl [µm]\n" + "".join(f"{i};{i},5;1\n" for i in range(20))
    (tmp_path / "log.csv").write_bytes(text.encode("cp1252"))
    with open_source(str(tmp_path / "log.csv")) as source:
        assert source.columns.names == ["Lager [°C]", "Öl [µm]"]
        assert source.columns.left_out == {"Zähler": "row numbers"}
        (batch,) = source.batches()
    assert batch.X[3].tolist() == [3.5, 1.0]
