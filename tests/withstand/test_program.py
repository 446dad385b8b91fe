"""`everlearn learn` on tables that are damaged, odd or made to do harm: how it ends, and how many rows it learned."""

import gzip
import json

import pytest
from click.testing import CliRunner

import everlearn
from everlearn import cli

ROWS = "".join(f"{i % 7},{(i * i) % 11}\n" for i in range(200))
TABLE = f"a,b\n{ROWS}"
EVIL = "</script><script>alert(1)</script>"
RECORDS = "".join(json.dumps({"a": i % 7, "b": i % 5}) + "\n" for i in range(100))
DEEP = '{"a":' + "[" * 100_000 + "]" * 100_000 + ',"b":1}\n'
LEARNED = {
    "crlf.csv": (TABLE.replace("\n", "\r\n"), 200),
    "cr.csv": (TABLE.replace("\n", "\r"), 200),
    "bom.csv": (b"\xef\xbb\xbf" + TABLE.encode(), 200),
    "nul.csv": (TABLE.encode() + b"1,\x002\n3,4\n", 201),
    "other-delimiters.csv": (TABLE + "1;2\n3\t4\n", 200),
    "ragged.csv": (TABLE + "1\n1,2,3\n,,,,\n", 200),
    "open-quote.csv": (TABLE + '"1","2"\n"1,2\n3,4\n', 202),
    "header-again.csv": (TABLE + "a,b\n" + TABLE, 400),
    "another-header.csv": (TABLE + "c,d,e\n1,2,3\n", 200),
    "infinite.csv": (TABLE + "inf,1\n-Infinity,2\n1e400,3\nnan,4\n", 201),
    "400-digits.csv": (TABLE + "9" * 400 + ",1\n1e-400,2\n", 201),
    "2-to-the-53.csv": ("a,b\n" + "".join(f"{2**53 + i},{i % 5}\n" for i in range(100)), 100),
    "one-row.csv": ("a,b\n1,2", 1),
    "no-header.csv": (ROWS, 200),
    "blank-lines.csv": ("\n\n\n" + TABLE, 200),
    "one-name-twice.csv": ("a,a\n" + ROWS, 200),
    "right-to-left.csv": ("naïve☃,\u202eb\n" + ROWS, 200),
    "odd.jsonl": (RECORDS + '{"a":' + "9" * 5000 + ',"b":1}\n{"a":1,"a":2,"b":3}\n{broken\n' + DEEP, 101),
}
REFUSED = {
    "utf16.csv": (TABLE.encode("utf-16"), "not a text file in UTF-8"),
    "empty.csv": ("", "is empty"),
    "header-only.csv": ("a,b\n", "but no rows"),
    "deep.jsonl": ('{"a":' * 3000 + "1" + "}" * 3000 + "\n", "no line that is JSON"),
    "truncated.csv.gz": (gzip.compress(TABLE.encode())[:-10], "damaged or truncated"),
    "endless-line.csv.gz": (gzip.compress(b"a,b\n" + b"0" * 20_000_000 + b",1\n1,2\n", 1), "no row with as many cells"),
    "wide.csv": (",".join(f"c{i}" for i in range(20_000)) + "\n", "at most 10,000"),
}


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """Write a file and learn it; a traceback is never an answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(name, content, *options):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        result = CliRunner().invoke(cli.main, ["learn", name, "--model-file", "model.evl", *options])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return command


@pytest.mark.parametrize("name", LEARNED)
def test_tables_that_are_odd_are_learned_as_far_as_they_go(learn, name):
    content, n_rows = LEARNED[name]
    result = learn(name, content, "--model", "ppca", "--set", "n_components=1")
    assert result.exit_code == 0, result.output
    assert everlearn.load("model.evl").n_samples_seen_ == n_rows


@pytest.mark.parametrize("name", REFUSED)
def test_tables_that_are_none_are_refused_with_the_reason(learn, tmp_path, name):
    content, reason = REFUSED[name]
    result = learn(name, content)
    assert result.exit_code == 1
    assert reason in " ".join(result.output.split())
    assert not (tmp_path / "model.evl").exists()


def test_names_of_columns_are_text_in_a_report(learn, tmp_path):
    result = learn("evil.csv", f"{EVIL},b<img src=x onerror=alert(2)>\n{ROWS}", "--report", "report.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    assert everlearn.load("model.evl").feature_names_in_[0] == EVIL
