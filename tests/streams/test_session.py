"""A session and its store: a step is committed whole, and learning goes on where it was."""

import contextlib
import json
import sqlite3
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn import AnomalyDetector, IncrementalGaussianMixture, OnlinePPCA
from everlearn.errors import InputError, StateFileError
from everlearn.streams import session as sessions
from everlearn.streams.session import Session
from everlearn.streams.store.memory import MemoryStore
from everlearn.streams.store.records import BadRow
from everlearn.streams.store.store import Store

rng = np.random.default_rng(1)
X = rng.normal(size=(2000, 2))
X[1000] = 50.0
X[1500:] += 12.0


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "run.db") as opened:
        yield opened


def test_interrupted_learning_is_the_same_learning(store):
    whole = Session(IncrementalGaussianMixture(), store=store, name="whole", columns=["a", "b"])
    for start in range(0, 2000, 250):
        whole.learn(X[start : start + 250])
    whole.commit(position={"row": 2000})
    for start in range(0, 2000, 250):
        parts = Session(IncrementalGaussianMixture(), store=store, name="parts", columns=["a", "b"])
        assert parts.resumed == (start > 0)
        assert parts.position == ({"row": start} if start else None)
        parts.learn(X[start : start + 250])
        parts.commit(position={"row": start + 250})
    assert store.model_bytes("parts") == store.model_bytes("whole")
    assert store.memory("parts") == store.memory("whole")
    assert store.totals("parts") == store.totals("whole")
    events = [[event[2:] for event in store.events(name)] for name in ("parts", "whole")]
    assert events[0] == events[1]
    assert list(store.load("parts").feature_names_in_) == ["a", "b"]


@pytest.mark.parametrize("batch", [1, 70, 2000])
def test_the_history_says_what_happened_in_each_hundred_rows(batch):
    session, times = Session(IncrementalGaussianMixture()), 1e6 + np.arange(2000.0)
    batches = [slice(start, start + batch) for start in range(0, 2000, batch)]
    results = [session.learn(X[own], times=times[own]) for own in batches]
    scores = np.concatenate([result.log_density for result in results])
    events = [event for result in results for event in result.events]
    kept = session._intervals
    assert [interval.end_row for interval in kept] == list(range(100, 2001, 100))
    assert {"novelty", "change"} <= {event.kind for event in events}
    for end, interval in zip(range(100, 2001, 100), kept, strict=True):
        own = scores[end - 100 : end]
        kinds = [event.kind for event in events if end - 100 <= event.row < end]
        assert (interval.n_rows, interval.n_scored) == (100, np.count_nonzero(~np.isnan(own)))
        assert (interval.n_novel, interval.n_changes) == (kinds.count("novelty"), kinds.count("change"))
        assert interval.stream_time == times[end - 1]
        if interval.n_scored:
            assert interval.log_likelihood == pytest.approx(np.nanmean(own), rel=1e-12)


def test_what_happened_is_written_once(store):
    session = Session(IncrementalGaussianMixture(), store=store)
    seen = [session.learn(X[:1200]), session.learn(X[1200:])]
    session.leave_out([BadRow("x.csv:3", "text")] * 3)
    session.note("started", source="x.csv")
    session.commit()
    session.commit()
    novel = [(e.row, e.value) for s in seen for e in s.events if e.kind == "novelty"]
    assert [(e.row, e.value) for e in store.events("model", kinds=["novelty"])] == novel
    assert [e.row for e in store.events("model", kinds=["change"])] == [row for s in seen for row in s.changes]
    assert store.events("model", kinds=["started"])[0].details == {"source": "x.csv"}
    (interval,) = store.history("model", limit=1)
    density = np.concatenate([s.log_density for s in seen])
    assert interval[:2] == (2000, 2000)
    assert interval.log_likelihood == pytest.approx(np.nanmean(density))
    assert interval.n_components >= 1
    assert store.history("model")[-1].memory == pytest.approx(2000)
    totals = store.totals("model")
    assert totals["rows"] == 2000
    assert (totals["novelty"], totals["bad: text"], totals["bad rows"]) == (len(novel), 3, 3)


def test_a_failed_commit_is_made_good_by_the_next(store, monkeypatch):
    session = Session(OnlinePPCA(1), store=store)
    session.learn(X)
    monkeypatch.setattr(store, "commit", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        session.commit(position={"row": 2000})
    monkeypatch.undo()
    session.commit(position={"row": 2000})
    assert store.totals("model")["rows"] == 2000
    assert store.position("model") == {"row": 2000}


def test_floods_are_counted_and_not_kept(store, monkeypatch):
    monkeypatch.setattr(sessions, "NOVELTIES_KEPT", 5)
    monkeypatch.setattr(sessions, "BAD_ROWS_KEPT", 7)
    session = Session(IncrementalGaussianMixture(), store=store)
    session.learn(X[:1000])
    for _ in range(3):
        session.learn(np.linspace(100, 1e6, 50)[:, None] * [1.0, -1.0])
        session.leave_out([BadRow("1", "text")] * 3)
    session.commit()
    assert len(store.events("model", kinds=["novelty"])) == 5
    assert store.totals("model")["novelty"] == session.monitor.n_novel > 10
    assert len(store.bad_rows("model")) == 7
    assert store.totals("model")["bad: text"] == 9


def test_another_model_under_the_name_is_refused(store):
    Session(OnlinePPCA(1), store=store, columns=["a", "b"]).learn(X)
    session = Session(OnlinePPCA(1), store=store, columns=["a", "b"])
    session.learn(X)
    session.commit()
    with pytest.raises(InputError, match="is of the kind OnlinePPCA, not IncrementalGaussianMixture"):
        Session(IncrementalGaussianMixture(), store=store)
    with pytest.raises(InputError, match="was made with n_components=1, not 2"):
        Session(OnlinePPCA(2), store=store)
    with pytest.raises(InputError, match="has the columns a, b; the stream has b, c"):
        Session(OnlinePPCA(1), store=store, columns=["b", "c"])


def test_components_are_not_counted_all_the_time(store):
    class Slow:
        asked = 0

        def _is_started(self):
            return True

        @property
        def n_components_(self):
            Slow.asked += 1
            return sum(1 for _ in range(100_000)) // 10_000

    session = Session(IncrementalGaussianMixture(), store=store)
    session.model = Slow()
    started = time.monotonic()
    for _ in range(1000):
        assert session.n_components() == 10
    assert Slow.asked <= 2 + 100 * (time.monotonic() - started)
    asked = Slow.asked
    session.n_components(fresh=True)
    assert Slow.asked == asked + 1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(0, 3))
def test_the_history_has_the_same_grain_whatever_the_batches_and_commits(sizes, commit_every):
    """Each interval holds a hundred rows, but for the last."""
    store = MemoryStore()
    session = Session(OnlinePPCA(1), store=store)
    rows = np.resize(X, (sum(sizes), 2))
    times = 1e9 + np.arange(len(rows), dtype=float)
    first = 0
    for i, n in enumerate(sizes):
        session.learn(rows[first : first + n], times=times[first : first + n])
        first += n
        if commit_every and i % commit_every == 0:
            session.commit()
    session.commit()
    history = store.history("model")
    ends = [*range(100, first, 100), first]
    assert [point.end_row for point in history] == ends
    assert [point.stream_time for point in history] == [times[end - 1] for end in ends]
    assert sum(point.n_rows for point in history) == first


def test_gaps_in_time_are_events_with_the_time_of_the_row_behind_them(store):
    times = 1.7e9 + np.arange(2000.0)
    times[700:] += 180.0
    session = Session(IncrementalGaussianMixture(), store=store)
    for start, stop in ((0, 500), (500, 650), (650, 1300), (1300, 2000)):
        session.learn(X[start:stop], times=times[start:stop])
        session.commit()
        session = Session(IncrementalGaussianMixture(), store=store)
    (gap,) = store.events("model", kinds=["time gap"])
    assert (gap.row, gap.value, gap.stream_time) == (700, 181.0, times[700])
    for event in store.events("model", kinds=["novelty", "change"]):
        assert event.stream_time == times[event.row]


@pytest.mark.parametrize(
    "memory",
    ["[1]", "7", '"x"', '{"a": 1}', '{"counts": [1, 2]}', '{"counts": ["a", 0, 0]}',
     '{"counts": [1, 0, 0], "gaps": [1e400], "likelihood": [0, 0], "first_unreported": 0,'
     ' "detector": [], "times": [null]}',
     '{"counts": [-1, 0, 0], "gaps": [0, 0], "likelihood": [0, 0], "first_unreported": 0,'
     ' "detector": [0], "times": []}'],
)  # fmt: skip
def test_edited_memories_are_refused_in_our_own_words(store, memory):
    session = Session(OnlinePPCA(1), store=store)
    session.learn(X)
    session.commit()
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE model SET memory = ?", (memory,))
    with pytest.raises(StateFileError, match="damaged"):
        Session(OnlinePPCA(1), store=store)


@pytest.mark.parametrize(
    ("part", "value"), [("detector", [None] * 61), ("times", [None, 1e999]), ("stamps", [None, None, 1e999])]
)
def test_numbers_that_a_commit_could_not_write_are_refused_when_they_are_read(store, part, value):
    session = Session(OnlinePPCA(1), store=store)
    session.learn(X)
    session.commit()
    memory = {**store.memory("model"), part: value}
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE model SET memory = ?", (json.dumps(memory).replace("Infinity", "1e999"),))
    with pytest.raises(StateFileError, match="damaged"):
        Session(OnlinePPCA(1), store=store)


def test_rows_that_were_not_scored_have_no_weight_in_the_history(tmp_path):
    """A model that warms up in the middle of the first interval scores few of its rows."""
    rows, seen = np.random.default_rng(1).normal(size=(400, 2)), []
    with Store(tmp_path / "run.db") as store:
        session = Session(IncrementalGaussianMixture(), store=store)
        for part in np.split(rows, 4):
            seen.append(session.learn(part).log_density)
            session.commit()
        (whole,) = store.history("model", limit=1)
    scored = np.concatenate(seen)
    scored = scored[~np.isnan(scored)]
    assert 0 < whole.n_scored == len(scored) < whole.n_rows == 400
    assert whole.log_likelihood == pytest.approx(scored.mean(), rel=1e-12)


def test_counting_components_can_wait(monkeypatch):
    counted = []
    monkeypatch.setattr("everlearn.streams.session._components_of", lambda model, fresh: counted.append(model) or 1.0)
    for count_later in (True, False):
        session = Session(IncrementalGaussianMixture(), count_later=count_later)
        session.learn(np.zeros((3, 2)))
        assert bool(counted) != count_later
    assert session.n_components() == 1.0


def faulty(n=1000):
    """A stream of two sensors; the second is wrong in rows 600 to 639."""
    Z = np.random.default_rng(9).normal([50.0, 7.0], size=(n, 2))
    Z[600:640, 1] += 30.0
    return Z


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("batch", [1000, 20])
def test_an_anomaly_is_kept_with_its_rows_its_column_and_the_sentence(tmp_path, kind, batch):
    """By its name also in the first batch, before the model knows it; one that goes on over commits stays one."""
    opened = Store(tmp_path / "run.db") if kind == "file" else contextlib.nullcontext(MemoryStore())
    with opened as store:
        check_anomaly_of_a_run(store, batch)


def check_anomaly_of_a_run(store, batch):
    session = Session(AnomalyDetector(grace_period=200), store=store, name="m", columns=["torque", "temperature"])
    ids = set()
    for start in range(0, 1000, batch):
        session.learn(faulty()[start : start + batch], times=1e9 + np.arange(start, start + float(batch)))
        session.commit()
        ids |= {event.id for event in store.latest_events("m", kinds=["anomaly"]) if event.row == 600}
    found = [event for event in store.latest_events("m", kinds=["anomaly"]) if event.row in range(600, 640)]
    assert [(event.row, event.details["column"]) for event in found] == [(600, "temperature")]
    assert found[0].details["last"] in range(639, 643)  # the way back is strange, too
    assert found[0].details["text"].startswith("temperature 3")
    assert ", expected " in found[0].details["text"]
    assert found[0].stream_time == 1e9 + 600
    # One that grows has a new id for those who follow, and is counted once.
    assert len(ids) == (1 if batch == 1000 else 3)
    own = [(event.row, event.last) for event in session.model.events_ if event.kind == "anomaly"]
    kept = store.latest_events("m", kinds=["anomaly"])
    assert [(event.row, event.details["last"]) for event in kept] == own
    assert store.totals("m")["anomaly"] == len(own) == session.monitor.n_novel


def test_an_anomaly_that_goes_on_after_a_restart_is_the_same_one(store):
    whole = Session(AnomalyDetector(grace_period=200), store=store, name="whole", columns=["a", "b"])
    for start in range(0, 1000, 50):
        whole.learn(faulty()[start : start + 50])
        whole.commit()
        parts = Session(AnomalyDetector(grace_period=200), store=store, name="parts", columns=["a", "b"])
        parts.learn(faulty()[start : start + 50])
        parts.commit()
    events = [[event[2:] for event in store.events(name)] for name in ("parts", "whole")]
    assert events[0] == events[1]
    assert store.memory("parts") == store.memory("whole")
    assert store.totals("parts") == store.totals("whole")


def test_a_new_normal_is_kept_with_its_rows():
    Z = np.random.default_rng(10).normal(size=(900, 2))
    Z[500:] += 20.0
    session = Session(AnomalyDetector(grace_period=200, patience=100), columns=["a", "b"])
    for start in range(0, 900, 300):
        session.learn(Z[start : start + 300])
    session.commit()
    kept = session.store.latest_events("model", kinds=["new_normal"])
    own = [event for event in session.model.events_ if event.kind == "new_normal"]
    assert own
    assert [(e.row, e.details["last"], e.value) for e in kept] == [(e.row, e.last, e.value) for e in own]
