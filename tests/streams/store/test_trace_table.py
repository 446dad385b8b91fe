"""Traces and episodes of a state file: a pyramid of grains, the latest state of each episode, files from before."""

import json
import sqlite3

import numpy as np
import pytest

from everlearn import OnlinePPCA
from everlearn.errors import StateFileError
from everlearn.streams.store import trace_table
from everlearn.streams.store.records import NAN, EpisodeRecord, Event
from everlearn.streams.store.store import Store
from everlearn.streams.store.trace_table import LEVELS, TraceCell, joined

MODEL = OnlinePPCA(1).partial_fit(np.random.default_rng(0).normal(size=(20, 2)))
FIRST = 88_000_000


def cells(n, seed=0, gaps=()):
    """So many cells of two sensors, some without a value."""
    values = np.random.default_rng(seed).normal(size=(n, 5, 2)).astype(np.float32)
    for i, column in gaps:
        values[i, :, column] = np.nan
    return [TraceCell(FIRST + i, 20 * i + 19, 20.0 * (FIRST + i) + 19.0, values[i]) for i in range(n)]


def committed(path, parts, name="m"):
    with Store(path) as store:
        for part in parts:
            entry = store.entry(name)
            store.commit(name, MODEL, entry.version if entry else 0, traces=part)
        return {level: store.trace_cells(name, level) for level in LEVELS}


def same(one, other):
    assert [cell[:3] for cell in one] == [cell[:3] for cell in other]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.values, b.values, rtol=1e-6)


def test_each_level_has_the_extremes_and_means_of_the_first(tmp_path):
    first = cells(200, gaps=[(7, 0), *((i, 1) for i in range(60))])
    found = committed(tmp_path / "run.db", [first])
    same(found[1], first)
    for level in LEVELS[1:]:
        assert [cell.cell for cell in found[level]] == sorted({cell.cell // level for cell in first})
        for cell in found[level]:
            own = [part for part in first if part.cell // level == cell.cell]
            assert (cell.row, cell.time) == (own[-1].row, own[-1].time)
            values = np.array([part.values for part in own])
            np.testing.assert_array_equal(cell.values[1], np.fmin.reduce(values[:, 1]))
            np.testing.assert_array_equal(cell.values[2], np.fmax.reduce(values[:, 2]))
            assert np.isnan(cell.values[0, 1]) == np.isnan(values[:, 0, 1]).all()
    hours = found[3]
    whole = [cell for cell in hours if cell.cell * 3 >= FIRST + 9 and cell.cell * 3 + 2 < FIRST + 200]
    for cell in whole:
        own = [part.values[0, 0] for part in first if part.cell // 3 == cell.cell]
        np.testing.assert_allclose(cell.values[0, 0], np.mean(own), rtol=1e-5)


def test_commits_do_not_matter(tmp_path):
    first = cells(100)
    whole = committed(tmp_path / "whole.db", [first])
    parts = committed(tmp_path / "parts.db", [first[:1], first[1:17], [], first[17:18], first[18:]])
    for level in LEVELS:
        same(whole[level], parts[level])


def test_a_clock_that_is_set_back_joins_what_is_there(tmp_path):
    first, again = cells(10), cells(10, seed=1)
    found = committed(tmp_path / "run.db", [first, again[4:6]])
    same(found[1][4:6], [joined([a, b]) for a, b in zip(first[4:6], again[4:6], strict=True)])
    assert (found[1][4].values[2] >= first[4].values[2]).all()


def test_each_level_keeps_the_latest_cells_only(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_table, "MAX_CELLS", 50)
    monkeypatch.setattr(trace_table, "_TRIM_EVERY", 1)
    # A time far in the future does not delete what is there.
    far = cells(1)[0]._replace(cell=10**9)
    found = committed(tmp_path / "run.db", [cells(200), [far]])
    assert len(found[1]) == 50
    assert found[1][-1].cell == 10**9
    assert len(found[3]) == 50
    assert len(found[15]) == 15  # of 200 cells, which begin within one, and the far one


def test_models_have_traces_of_their_own_and_take_them_along(tmp_path):
    with Store(tmp_path / "run.db") as store:
        store.commit("a", MODEL, 0, traces=cells(5))
        store.commit("b", MODEL, 0, traces=cells(3))
        store.delete("a")
        assert store.trace_cells("a", 1) == []
        assert store.trace_ends("a", 1) is None
        assert [cell.cell - FIRST for cell in store.trace_cells("b", 1, FIRST + 1, FIRST + 1)] == [1]
        assert [cell.cell - FIRST for cell in store.trace_ends("b", 1)] == [0, 2]


def test_data_of_another_length_is_refused(tmp_path):
    committed(tmp_path / "run.db", [cells(2)])
    with sqlite3.connect(tmp_path / "run.db") as file:
        file.execute("UPDATE trace SET data = x'0011'")
    with Store(tmp_path / "run.db") as store, pytest.raises(StateFileError, match="damaged"):
        store.trace_cells("m", 1)


# -- episodes ---------------------------------------------------------------------------------------


def episode(number, *, is_open=False, **details):
    return EpisodeRecord(number, is_open, {"number": number, "status": "open" if is_open else "over", **details})


def test_the_latest_state_of_an_episode_is_kept_with_its_mark(tmp_path):
    with Store(tmp_path / "run.db") as store:
        version = store.commit("m", MODEL, 0, episodes=[episode(1, is_open=True, end=3.0)])
        store.mark("m", 1, "fault", Event(0, "mark", NAN, {"number": 1}))
        # A live stream writes an episode anew with each commit: thousands of times while it lasts.
        for end in range(50):
            version = store.commit("m", MODEL, version, episodes=[episode(1, is_open=True, end=float(end))])
        (found,) = store.episodes("m")
        assert (found.mark, found.details["end"]) == ("fault", 49.0)
        assert [event.kind for event in store.events("m")] == ["mark"]


def test_episodes_that_changed_later(tmp_path):
    with Store(tmp_path / "run.db") as store:
        version = store.commit("m", MODEL, 0, episodes=[episode(1), episode(2)])
        assert store.latest_change("m") == version
        assert store.episodes("m", after=version) == []
        store.mark("m", 1, "seen", Event(0, "mark", NAN, {"number": 1}))
        (marked,) = store.episodes("m", after=version)
        assert marked.mark == "seen"
        version = store.commit("m", MODEL, version, episodes=[episode(3)])  # a mark is no commit of the watcher
        assert [found.details["number"] for found in store.episodes("m", after=marked.change)] == [3]


def test_the_latest_and_all_that_last(tmp_path, monkeypatch):
    with Store(tmp_path / "run.db") as store:
        store.commit("m", MODEL, 0, episodes=[episode(n, is_open=n == 2) for n in range(1, 31)])
        assert [found.details["number"] for found in store.episodes("m", latest=3)] == [2, 28, 29, 30]


# -- files from before ------------------------------------------------------------------------------


def test_a_file_that_had_traces_and_episodes_among_its_events_is_read(tmp_path):
    first = cells(30, gaps=[(3, 1)])
    with Store(tmp_path / "run.db") as store:
        store.commit("m", MODEL, 0)
    with sqlite3.connect(tmp_path / "run.db") as file:
        file.execute("DROP TABLE trace")
        file.execute("DROP TABLE episode")
        sql = "INSERT INTO event (name, time, row, kind, value, details, stream_time) VALUES ('m', 0, ?, ?, NULL, ?, ?)"
        for cell in first:
            fields = np.where(np.isnan(cell.values), None, cell.values.astype(object)).tolist()
            details = dict(zip(trace_table.FIELDS, fields, strict=True))
            file.execute(sql, (cell.row, "trace", json.dumps(details), cell.time))
        for status, kind in (("open", "episode"), ("over", "episode"), ("", "mark"), ("over", "episode")):
            details = {"number": 1, "verdict": "normal"} if kind == "mark" else {"number": 1, "status": status}
            file.execute(sql, (5, kind, json.dumps(details), None))
        file.execute(sql, (7, "source lost", "{}", None))
        file.execute("PRAGMA user_version = 2")
    with Store(tmp_path / "run.db") as store:
        same(store.trace_cells("m", 1), first)
        assert len(store.trace_cells("m", 15)) in (2, 3)
        (found,) = store.episodes("m")
        assert (found.mark, found.details["status"]) == ("normal", "over")
        assert [event.kind for event in store.events("m")] == ["mark", "source lost"]
    with Store(tmp_path / "run.db") as store:  # once
        assert len(store.trace_cells("m", 1)) == 30


def test_an_old_file_with_a_broken_trace_is_refused_in_our_words(tmp_path):
    with Store(tmp_path / "run.db") as store:
        store.commit("m", MODEL, 0, events=[Event(0, "trace", NAN, {"mean": "x"})])
    with sqlite3.connect(tmp_path / "run.db") as file:
        file.execute("PRAGMA user_version = 2")
    with pytest.raises(StateFileError, match="damaged"):
        Store(tmp_path / "run.db")
