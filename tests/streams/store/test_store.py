"""The state store: all of a step or nothing, many models in one file, and files that are none."""

import errno
import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.errors import EverlearnError, InputError, StateFileError
from everlearn.streams.store import records, store
from everlearn.streams.store import sqlite_file as statefile
from everlearn.streams.store.records import BadRow, Event, Interval
from everlearn.streams.store.store import Store

X = np.random.default_rng(0).normal(size=(300, 3))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.db"


@pytest.fixture
def opened(path):
    with Store(path) as opened:
        yield opened


def mixture(n_rows=300):
    return IncrementalGaussianMixture(random_state=0).partial_fit(X[:n_rows])


def test_a_model_comes_back_bit_for_bit_and_goes_on(path):
    model = mixture()
    with Store(path) as first:
        first.commit("a", model, 0, position={"row": 300})
    with Store(path, create=False) as second:
        again = second.load("a")
        assert second.position("a") == {"row": 300}
        np.testing.assert_array_equal(again.partial_fit(X).score_samples(X), model.partial_fit(X).score_samples(X))


def test_many_models_by_name(opened):
    opened.commit("b", mixture(), 0)
    opened.commit("a", OnlinePPCA().partial_fit(X), 0)
    opened.commit("new", IncrementalGaussianMixture(), 0)
    assert [(m.name, m.kind, m.n_rows) for m in opened.models()] == [
        ("a", "OnlinePPCA", 300),
        ("b", "IncrementalGaussianMixture", 300),
        ("new", "IncrementalGaussianMixture", 0),
    ]
    assert opened.entry("b").bytes == len(opened.model_bytes("b"))
    opened.delete("b")
    assert opened.entry("b") is None
    with pytest.raises(InputError, match=r"holds no model 'b'\. It holds: a, new"):
        opened.load("b")


def test_versions_rise_and_are_never_used_twice(opened):
    first = opened.commit("a", mixture(), 0)
    second = opened.commit("a", mixture(), first)
    opened.delete("a")
    third = opened.commit("a", mixture(), 0)
    assert first < second < third


def test_two_programs_cannot_learn_the_same_model(path):
    with Store(path) as one, Store(path) as two:
        version = one.commit("a", mixture(), 0)
        two.commit("a", mixture(100), version, position={"row": 100})
        with pytest.raises(StateFileError, match="another program"):
            one.commit("a", mixture(), version, position={"row": 300}, events=[Event(1, "change")])
        assert one.load("a").n_samples_seen_ == 100
        assert one.position("a") == {"row": 100}
        assert one.events("a") == []


@pytest.mark.parametrize("bad", [{"details": object()}, {"details": {"x": math.nan}}, {"row": "x"}])
def test_a_step_is_written_whole_or_not_at_all(opened, bad):
    version = opened.commit("a", mixture(100), 0, position={"row": 100})
    opened.put([("a", X[:5])])
    before = opened.entry("a")
    with pytest.raises((TypeError, ValueError)):
        opened.commit(
            "a", mixture(), version, position={"row": 300}, taken=1, bad_rows=[BadRow("1", "text")],
            intervals=[Interval(300, 200, 0.0, 1.0)], events=[Event(0, "change"), Event(0, "change")._replace(**bad)],
        )  # fmt: skip
    assert opened.entry("a") == before
    assert opened.position("a") == {"row": 100}
    assert not opened.events("a")
    assert not opened.history("a")
    assert not opened.bad_rows("a")
    assert not opened.totals("a")
    assert opened.waiting("a") == 5


def test_position_and_memory_stay_when_none_is_given(opened):
    assert opened.position("a") is opened.memory("a") is None
    version = opened.commit("a", mixture(), 0, position={"offset": [1, 2]})
    assert opened.memory("a") is None
    version = opened.commit("a", mixture(), version, memory={"x": 0.1})
    opened.commit("a", mixture(), version)
    assert opened.position("a") == {"offset": [1, 2]}
    assert opened.memory("a") == {"x": 0.1}


def test_events_in_their_order(opened):
    events = [Event(i, kind, value=float(i), details={"i": i}, time=100.0 + i) for i, kind in enumerate("abab")]
    opened.commit("m", mixture(), 0, events=events)
    opened.note("m", [Event(4, "a")])
    found = opened.events("m")
    assert [event[1:6] for event in found[:4]] == [(100.0 + i, i, "ab"[i % 2], float(i), {"i": i}) for i in range(4)]
    assert math.isnan(found[4].value)
    assert abs(found[4].time - time.time()) < 60
    assert [event.row for event in opened.events("m", after=found[1].id, kinds=["a"])] == [2, 4]
    assert [event.row for event in opened.latest_events("m", limit=2)] == [3, 4]
    assert opened.events("m", kinds=[]) == []
    assert opened.totals("m") == {"a": 3, "b": 2}


def test_old_events_and_bad_rows_leave(opened, monkeypatch):
    monkeypatch.setattr(store, "MAX_EVENTS", 50)
    monkeypatch.setattr(store, "MAX_BAD_ROWS", 20)
    monkeypatch.setattr(store, "_TRIM_EVERY", 10)
    opened.note("other", [Event(0, "kept")])
    for _ in range(3):
        opened.note("m", [Event(i, "novelty") for i in range(1000)])
    opened.commit("m", mixture(), 0, bad_rows=[BadRow(str(i), "text") for i in range(2000)])
    assert 50 <= len(opened.events("m", limit=10**6)) <= 50 + 10 * store._TRIM_EVERY
    assert opened.latest_events("m", limit=1)[0].row == 999
    assert opened.totals("m") == {"novelty": 3000, "bad rows": 2000, "bad: text": 2000}
    assert [row.place for row in opened.bad_rows("m", limit=1)] == ["1999"]
    assert 20 <= len(opened.bad_rows("m", limit=10**6)) <= 20 + 10 * store._TRIM_EVERY
    assert len(opened.events("other")) == 1


def test_models_that_take_turns_lose_their_old_events_alike(opened, monkeypatch):
    """Ids are counted over all models: one of two that take turns would have the odd ones only."""
    monkeypatch.setattr(store, "MAX_EVENTS", 50)
    monkeypatch.setattr(store, "_TRIM_EVERY", 10)
    for i in range(500):
        for name in ("a", "b"):
            opened.note(name, [Event(i, "novelty")])
    assert all(len(opened.events(name, limit=10**6)) <= 50 + 10 * store._TRIM_EVERY for name in ("a", "b"))


def test_bad_rows_are_counted_by_reason(opened):
    rows = [BadRow("t.csv:7", "text in a column of numbers", "x" * 5000)]
    opened.commit("m", mixture(), 0, bad_rows=rows, more={"bad: text in a column of numbers": 11, "novelty": 3})
    (found,) = opened.bad_rows("m")
    assert (found.place, found.reason, len(found.text)) == ("t.csv:7", "text in a column of numbers", 500)
    assert opened.totals("m") == {"bad rows": 12, "bad: text in a column of numbers": 12, "novelty": 3}


intervals = st.builds(
    Interval,
    end_row=st.integers(0, 10**9),
    n_rows=st.integers(0, 10**6),
    time=st.floats(0, 1e10),
    seconds=st.floats(0, 1e6),
    log_likelihood=st.floats(-1e6, 1e6),
    n_components=st.integers(1, 200).map(float) | st.just(math.nan),
    n_novel=st.integers(0, 1000),
    n_changes=st.integers(0, 10),
    n_scored=st.integers(0, 10**6),
)


@given(st.lists(intervals, min_size=1, max_size=60), st.integers(1, 70))
def test_thinning_keeps_sums_and_means(points, limit):
    thin = records.thinned(points, limit)
    assert len(thin) <= limit
    assert thin[-1].end_row == points[-1].end_row
    for field in ("n_rows", "n_novel", "n_changes", "n_scored"):
        assert sum(getattr(p, field) for p in thin) == sum(getattr(p, field) for p in points)
    assert math.fsum(p.seconds for p in thin) == pytest.approx(math.fsum(p.seconds for p in points))
    assert sum_of_scores(thin) == pytest.approx(sum_of_scores(points), rel=1e-6, abs=1e-3)


def sum_of_scores(points):
    return sum(p.log_likelihood * p.n_scored for p in points if p.n_scored)


def test_the_history_spans_the_whole_run_and_stays_short(opened, monkeypatch):
    monkeypatch.setattr(store, "MAX_INTERVALS", 40)
    version = 0
    for i in range(130):
        point = Interval(10 * (i + 1), 10, float(i), 0.5, log_likelihood=-float(i), n_components=3.0, n_scored=10)
        version = opened.commit("m", mixture(50), version, intervals=[point])
    found = opened.history("m")
    assert len(found) <= 40
    assert sum(p.n_rows for p in found) == 1300
    assert max(p.n_rows for p in found) < 1300 / 20 + 60
    assert found[-1].end_row == 1300
    assert len(opened.history("m", limit=5)) <= 5
    assert opened.totals("m") == {"rows": 1300}


def test_the_inbox_gives_rows_in_order_until_they_are_taken(opened):
    ids = opened.put([("a", X[:2]), ("b", X[:1]), ("a", X[2:5])])
    ids += opened.put([("a", X[5:6])])
    assert ids == sorted(ids)
    assert (opened.waiting("a"), opened.waiting("b"), opened.waiting("c")) == (6, 1, 0)
    batches = opened.take("a", limit_rows=3)
    assert [batch.id for batch in batches] == [ids[0], ids[2]]
    np.testing.assert_array_equal(np.concatenate([batch.X for batch in batches]), X[:5])
    opened.commit("a", mixture(), 0, taken=batches[-1].id)
    assert [batch.X.tolist() for batch in opened.take("a")] == [X[5:6].tolist()]
    assert opened.waiting("b") == 1


def test_a_long_inbox_is_taken_piece_by_piece(opened):
    opened.put([("a", X[i : i + 1]) for i in range(200)])
    np.testing.assert_array_equal(np.concatenate([b.X for b in opened.take("a")]), X[:200])
    assert len(opened.take("a", limit_rows=130)) == 130


@pytest.mark.parametrize("rows", [np.empty((0, 3)), np.empty((3, 0)), np.ones(3)])
def test_the_inbox_refuses_what_is_no_batch(opened, rows):
    with pytest.raises(InputError, match="shape"):
        opened.put([("a", X[:2]), ("a", rows)])
    assert opened.waiting("a") == 0


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", None])
def test_names(opened, name):
    with pytest.raises(InputError, match="name of a model"):
        opened.commit(name, mixture(), 0)
    with pytest.raises(InputError, match="name of a model"):
        opened.put([(name, X[:1])])


def test_readers_do_not_block_the_writer_nor_see_half_a_step(path):
    with Store(path) as writer:
        version = writer.commit("a", mixture(10), 0, position={"row": 10})
        torn, done = [], threading.Event()

        def read():
            reader = sqlite3.connect(path, isolation_level=None)
            while not done.is_set():
                reader.execute("BEGIN")
                rows, position = reader.execute("SELECT n_rows, position FROM model").fetchone()
                time.sleep(0.002)
                if str(rows) not in position or reader.execute("SELECT n_rows FROM model").fetchone()[0] != rows:
                    torn.append((rows, position))
                reader.execute("COMMIT")

        thread = threading.Thread(target=read)
        thread.start()
        started = time.monotonic()
        for n in range(11, 61):
            version = writer.commit("a", mixture(n), version, position={"row": n})
        done.set()
        thread.join()
        assert not torn
        assert time.monotonic() - started < 20


_WRITER = """
import sys, numpy as np
from everlearn import OnlinePPCA
from everlearn.streams.store.store import Store, Interval
X = np.random.default_rng(0).normal(size=(5000, 3))
with Store(sys.argv[1]) as store:
    entry = store.entry("a")
    model, version = (store.load("a"), entry.version) if entry else (OnlinePPCA(), 0)
    n = entry.n_rows if entry else 0
    while True:
        model.partial_fit(X[n : n + 1])
        n += 1
        version = store.commit("a", model, version, position={"row": n}, intervals=[Interval(n, 1, 0.0, 0.1)])
        print(n, flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment_the_file_holds_one_whole_step(path):
    rng = np.random.default_rng(0)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(rng.uniform(0.02, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with Store(path) as found:
            n = found.entry("a").n_rows
            assert found.position("a") == {"row": n}
            assert found.load("a").n_samples_seen_ == n
            assert found.totals("a")["rows"] == sum(p.n_rows for p in found.history("a")) == n


def test_an_error_of_a_full_disk_is_called_one(path, monkeypatch):
    """Where SQLite maps memory, a full disk is an I/O error to it."""
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR

    def fails(self):
        with self._explained():
            raise failed

    monkeypatch.setattr(statefile.StateFile, "_prepare", fails)
    with pytest.raises(OSError, match="disk I/O error") as caught:
        Store(path)
    assert caught.value.errno == errno.EIO
    monkeypatch.setattr(statefile.os, "statvfs", lambda folder: os.statvfs_result([4096, 4096, 100, 3, 3] + [0] * 5))
    with pytest.raises(OSError, match="disk is full") as caught:
        Store(path)
    assert caught.value.errno == errno.ENOSPC


def test_a_full_disk_leaves_the_last_step(opened):
    version = opened.commit("a", mixture(), 0, position={"row": 300})
    pages = opened._file.query("PRAGMA page_count")[0][0]
    opened._file.query(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match="disk is full") as caught:
        opened.commit("b", mixture(), 0, position={"row": 1})
    assert caught.value.errno == errno.ENOSPC
    assert [model.name for model in opened.models()] == ["a"]
    opened._file.query("PRAGMA max_page_count = 1000000")
    opened.commit("a", mixture(), version)
    opened.commit("b", mixture(), 0)


# -- files that are no state files -----------------------------------------------------------------


def test_files_of_others_are_refused(tmp_path):
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be read")
    with pytest.raises(StateFileError, match="no SQLite file"):
        Store(tmp_path / "text.db")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.commit()
    other.close()
    with pytest.raises(StateFileError, match="another program"):
        Store(tmp_path / "other.db")
    with pytest.raises(StateFileError, match="is not a file"):
        Store(tmp_path)
    with pytest.raises(StateFileError, match="There is no folder"):
        Store(tmp_path / "absent" / "run.db")
    with pytest.raises(StateFileError, match="There is no state file"):
        Store(tmp_path / "absent.db", create=False)
    assert not (tmp_path / "absent.db").exists()


def test_a_newer_file_is_refused(path):
    Store(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StateFileError, match=r"format 99 of a newer everlearn.*pip install -U"):
        Store(path)


def test_damage_is_refused_or_harmless(path, tmp_path):
    """Whatever bytes a fault turns, the answer is the model as it was or an error of ours."""
    with Store(path) as whole:
        whole.commit("a", mixture(), 0, position={"row": 1}, events=[Event(1, "change")])
        expected = whole.model_bytes("a")
    data, rng = path.read_bytes(), np.random.default_rng(0)
    assert not os.path.exists(f"{path}-wal")
    refused = 0
    for i in range(60):
        broken = bytearray(data)
        if i % 3 == 0:
            broken = broken[: rng.integers(1, len(broken))]
        else:
            for at in rng.integers(0, len(broken), size=rng.integers(1, 40)):
                broken[at] = rng.integers(256)
        file = tmp_path / f"broken{i}.db"
        file.write_bytes(broken)
        try:
            with Store(file) as found:
                found.load("a")
                assert found.model_bytes("a") == expected
                found.position("a"), found.events("a"), found.history("a"), found.totals("a"), found.models()
        except (EverlearnError, OSError):
            refused += 1
    assert refused > 30


def test_a_closed_store_says_so(path):
    closed = Store(path)
    closed.close()
    with pytest.raises(StateFileError, match="closed"):
        closed.models()


def test_a_batch_with_a_known_key_is_kept_once(opened):
    (first,) = opened.put([("a", X)], keys=["k1"])
    again, other, elsewhere, bare = opened.put(
        [("a", X), ("a", X[:5]), ("b", X[:7]), ("a", X[:1])], keys=["k1", "k2", "k1", None]
    )
    assert again == first
    assert len({first, other, elsewhere, bare}) == 4
    assert (opened.waiting("a"), opened.waiting("b")) == (306, 7)
    opened.commit("a", mixture(), 0, taken=other)
    assert opened.put([("a", X)], keys=["k1"]) == [first]
    assert opened.waiting("a") == 1


def test_a_deleted_model_forgets_its_keys(opened):
    opened.put([("a", X)], keys=["k"])
    opened.delete("a")
    opened.put([("a", X)], keys=["k"])
    assert opened.waiting("a") == 300


def test_old_keys_are_forgotten(opened, monkeypatch):
    monkeypatch.setattr(store, "MAX_KEYS", 10)
    monkeypatch.setattr(store, "_TRIM_EVERY", 1)
    for i in range(30):
        opened.put([("a", X[:1])], keys=[f"k{i}"])
    opened.put([("a", X[:1]), ("a", X[:1])], keys=["k29", "k0"])
    assert opened.waiting("a") == 31
