"""Which columns are learned: what they hold, what was asked for, and how many there may be."""

import time

import pytest

from everlearn.errors import InputError
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.schema import MOST_COLUMNS, Choice, choose, kind_of, number, unique_names


def test_integers_beyond_the_floats_are_infinite_and_not_an_error():
    assert number(10**400) == float("inf")
    assert kind_of("x", [10**400, 1, 2]) == "numbers"


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_number_beyond_the_floats_is_a_bad_row_with_its_reason(tmp_path, ending):
    path, huge = tmp_path / f"t.{ending}", "1" + "0" * 400
    rows = ["1", "2", huge, "3"] * 3
    lines = ["x,y", *(f"{x},0" for x in rows)] if ending == "csv" else [f'{{"x": {x}, "y": 0}}' for x in rows]
    path.write_text("\n".join(lines) + "\n")
    with open_source(str(path)) as source:
        (batch,) = source.batches()
    assert batch.X[:, 0].tolist() == [1.0, 2.0, 3.0] * 3
    assert {row.reason for row in batch.bad} == {"an infinite number"}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_hundred_thousand_columns_are_refused_at_once(tmp_path, ending):
    path, names = tmp_path / f"wide.{ending}", [f"c{i}" for i in range(100_000)]
    if ending == "csv":
        path.write_text(",".join(names) + "\n" + (",".join(["1.5"] * len(names)) + "\n") * 5)
    else:
        path.write_text(("{" + ", ".join(f'"{name}": 1.5' for name in names) + "}\n") * 3)
    started = time.process_time()
    with pytest.raises(InputError, match=r"has 100,000 columns; at most 10,000 .*--columns"):
        open_source(str(path))
    assert time.process_time() - started < 5.0


def test_a_few_of_many_columns_can_be_chosen(tmp_path):
    path, names = tmp_path / "wide.csv", [f"c{i}" for i in range(MOST_COLUMNS + 5)]
    path.write_text(",".join(names) + "\n" + (",".join(["1.5"] * len(names)) + "\n") * 3)
    with open_source(str(path), columns=["c7", "c1000*"]) as source:
        (batch,) = source.batches()
    assert source.columns.names == ["c7", "c1000", "c10000", "c10001", "c10002", "c10003", "c10004"]
    assert batch.X.shape == (3, 7)


def test_names_are_unique():
    assert unique_names(["a", "a", "", " b ", "a"]) == ["a", "a.1", "column2", "b", "a.4"]


def test_no_times_are_looked_for_when_none_are_wanted():
    kinds, samples = {"when": "times", "a": "numbers"}, {"when": ["2026-11-05"], "a": [1]}
    assert choose("t", kinds, Choice(), samples).time == "when"
    assert choose("t", kinds, Choice(time=""), samples).time is None
