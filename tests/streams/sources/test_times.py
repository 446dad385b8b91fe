"""Times of rows: read from any usual form, shown in their own zone, never learned."""

import datetime
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.errors import InputError
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.schema import kind_of
from everlearn.streams.sources.times import find_format, is_time, moment_of

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m)))
MOMENTS = st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2200, 1, 1))


@given(MOMENTS, st.none() | ZONES)
def test_iso_times_come_back_as_the_same_moment_in_the_same_zone(moment, zone):
    moment = moment.replace(microsecond=0, tzinfo=zone)
    how = find_format([moment.isoformat()])
    assert how.show(how.seconds(moment.isoformat())) == moment.isoformat()
    assert how.seconds(moment.isoformat(" ")) == (moment if zone else moment.replace(tzinfo=datetime.UTC)).timestamp()


@pytest.mark.parametrize(
    ("values", "first", "shown"),
    [
        (["05.11.2026 10:42:00"], 1793875320.0, "2026-11-05T10:42:00"),
        (["11/25/2026 10:42:00"], 1795603320.0, "2026-11-25T10:42:00"),
        (["25/11/2026 10:42:00"], 1795603320.0, "2026-11-25T10:42:00"),
        (["2026-11-05T10:42:00Z"], 1793875320.0, "2026-11-05T10:42:00+00:00"),
        (["2026-11-05 10:42:00.250"], 1793875320.25, "2026-11-05T10:42:00.250"),
        (["10:42:07"], None, "10:42:07"),
        ([1793875320], 1793875320.0, "2026-11-05T10:42:00+00:00"),
        (["1793875320500"], 1793875320.5, "2026-11-05T10:42:00.500+00:00"),
        ([1793875320500000], 1793875320.5, "2026-11-05T10:42:00.500+00:00"),
        ([12.5, 13.5], 12.5, "12.5"),
    ],
)
def test_forms_of_times(values, first, shown):
    how = find_format(values)
    seconds = how.seconds(values[0])
    assert first is None or seconds == first
    assert how.show(seconds) == shown


def test_what_is_no_time():
    assert find_format(["noon", "2026-11-05"]) is None
    assert find_format([]) is None
    assert not is_time("21.5")
    assert not is_time("valve")
    how = find_format(["2026-11-05"])
    assert all(math.isnan(how.seconds(value)) for value in ("", None, "noon", float("nan")))
    assert how.show(math.nan) == ""


def read(path, **options):
    with open_source(str(path), **options) as source:
        return source, list(source.batches())


def test_a_column_of_times_is_found_kept_and_not_learned(tmp_path):
    lines = [f"2026-11-05T10:00:{i:02d}+02:00,{i},{i * i}" for i in range(60)]
    (tmp_path / "t.csv").write_text("when,a,b\n" + "\n".join(lines) + "\n")
    (tmp_path / "t.jsonl").write_text(
        "\n".join(f'{{"when": "2026-11-05T10:00:{i:02d}+02:00", "a": {i}, "b": {i * i}}}' for i in range(60))
    )
    moments = pa.array([1793865600 + i for i in range(60)], pa.timestamp("s", tz="+02:00"))
    pq.write_table(pa.table({"when": moments, "a": range(60), "b": [i * i for i in range(60)]}), tmp_path / "t.parquet")
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        source, (batch,) = read(tmp_path / name)
        assert (source.columns.names, source.columns.time) == (["a", "b"], "when")
        np.testing.assert_array_equal(batch.times, 1793865600.0 + np.arange(60))
        assert source.columns.time_format.show(batch.times[7]) == "2026-11-05T10:00:07+02:00"


def test_the_time_can_be_named_and_missing_times_are_unknown(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("made,seen,a\n" + "2026-11-05,1793873000,1\n" * 12 + "2026-11-06,,2\n")
    source, _ = read(path)
    assert source.columns.time == "made"
    source, (batch,) = read(path, time="seen")
    assert (source.columns.names, source.columns.time) == (["a"], "seen")
    assert batch.times[0] == 1793873000.0
    assert math.isnan(batch.times[-1])
    with pytest.raises(InputError, match="no column 'hour' for --time"):
        read(path, time="hour")
    path.write_text("name,a\n" + "x,1\n" * 5)
    with pytest.raises(InputError, match=r"'name'.*holds no times"):
        read(path, time="name")


def test_bad_rows_take_their_times_with_them(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"2026-11-05T10:00:{i:02d},{'oops' if i == 5 else i}" for i in range(30)]
    path.write_text("when,a\n" + "\n".join(rows) + "\n")
    _, (batch,) = read(path)
    assert len(batch.bad) == 1
    np.testing.assert_array_equal(batch.times - batch.times[0], batch.X[:, 0])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("05.11.2026 01:50", "2026-11-05T01:50:00"),
        ("05.11.2026 01:50:03.250", "2026-11-05T01:50:03.250"),
        ("2026/11/05 01:50:03", "2026-11-05T01:50:03"),
        ("05-11-2026 01:50:03", "2026-11-05T01:50:03"),
        ("11/05/2026 01:50:03 PM", "2026-11-05T13:50:03"),
        ("05.11.26 01:50", "2026-11-05T01:50:00"),
    ],
)
def test_forms_of_loggers_and_spreadsheets(text, seconds):
    how = find_format([text])
    assert how.seconds(text) == datetime.datetime.fromisoformat(f"{seconds}+00:00").timestamp()


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ("25/11/2026 01:50:00", "05/11/2026 01:50"),  # the log says that the day comes first
        ("05.11.2026 01:50:00", "05.11.2026 01:50"),
        ("05.11.2026 01:50:00", "2026-11-05T01:50"),
        ("2026-11-05T01:50:00+00:00", "2026-11-05 01:50"),
        ("2026-11-05T03:50:00+02:00", "2026-11-05 03:50"),
        ("2026-11-05T03:50:00+02:00", "2026-11-05T01:50:00+00:00"),
        (1793843400, "2026-11-05T01:50"),
    ],
)
def test_a_person_writes_a_time_as_the_log_does_or_nearly_so(log, text):
    assert moment_of(text, find_format([log])) == datetime.datetime.fromisoformat("2026-11-05T01:50+00:00").timestamp()


def test_a_text_that_is_no_time_is_nan():
    assert math.isnan(moment_of("noon", find_format(["2026-11-05T01:50"])))


def test_one_odd_cell_does_not_take_the_times_of_all_rows():
    values = [f"2026-11-05T00:{i // 60:02}:{i % 60:02}" for i in range(100)]
    values[7], values[50] = "clock error 7", ""
    assert find_format(values).form == "iso"
    assert kind_of("when", values) == "times"
    values[20:40] = ["clock error 7"] * 20
    assert find_format(values) is None
    assert kind_of("when", values) == "text"


def test_a_single_day_above_12_says_that_the_day_comes_first():
    values = [f"{1 + i // 8:02}/11/2026 00:00:00" for i in range(100)]  # the last four are of the 13th
    how = find_format(values)
    assert how.show(how.seconds(values[0])) == "2026-11-01T00:00:00"


def test_the_time_at_which_all_was_exported_is_not_the_time_of_the_rows(tmp_path):
    lines = [f"2026-11-06T08:00:00,{i},2026-11-05T00:00:{i:02}" for i in range(30)]
    (tmp_path / "log.csv").write_text("exported,load,measured\n" + "\n".join(lines) + "\n")
    with open_source(str(tmp_path / "log.csv"), times=True) as source:
        assert source.columns.time == "measured"
        (batch,) = source.batches()
    assert np.diff(batch.times).tolist() == [1.0] * 29
    with open_source(str(tmp_path / "log.csv"), times=True, time="exported") as source:
        assert source.columns.time == "exported"
