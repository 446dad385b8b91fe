"""A watch that keeps its state: killed at any moment it goes on, episodes and traces are there for others to read."""

from __future__ import annotations

import json
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from everlearn.errors import InputError, StateFileError
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.store import Store
from everlearn.watch import sinks
from everlearn.watch.session import WatchSession, mark_episode, stored_episodes, stored_traces, watched_columns
from everlearn.watch.sinks import FIELDS, Command, EpisodeOutputs, Messenger, Webhook, record_of
from everlearn.watch.watcher import Watcher

COLUMNS = ["load", "heat", "flow"]
ISO = TimeFormat("iso", zone="+00:00")
N = 2000


def machine(n=N, seed=0):
    rng = np.random.default_rng(seed)
    load = 50 + 5 * np.sin(np.arange(n) / 40) + rng.normal(0, 1, n)
    return np.column_stack([load, load / 2 + rng.normal(0, 0.5, n), 80 - load + rng.normal(0, 0.5, n)])


@pytest.fixture(scope="module")
def stream():
    X = machine()
    X[1000:1060, 1] += 12.0
    X[1500:1540, 2] = X[1500, 2]
    return X, np.arange(float(N)) + 1.76e9


def session_on(store, **options):
    return WatchSession(Watcher(COLUMNS, time_format=ISO), store=store, **options)


def run(session, stream, start, stop, every=200):
    X, times = stream
    news = []
    for i in range(start, stop, every):
        news += session.learn(X[i : i + every], None, times[i : i + every]).episodes
        session.commit(position={"row": min(i + every, stop)})
    return news


@pytest.fixture(scope="module")
def watched(stream, tmp_path_factory):
    """A whole run, and one that was killed with rows behind its latest commit."""
    folder = tmp_path_factory.mktemp("watch")
    with Store(folder / "whole.db") as store:
        run(session_on(store), stream, 0, N)
    with Store(folder / "killed.db") as store:
        session = session_on(store)
        run(session, stream, 0, 1000)
        session.learn(stream[0][1000:1030], None, stream[1][1000:1030])  # never committed
    with Store(folder / "killed.db") as store:
        session = session_on(store)
        assert session.resumed
        run(session, stream, session.position["row"], N)
    return folder


@pytest.mark.slow
def test_episodes_are_in_the_store_with_their_sentences(watched):
    with Store(watched / "whole.db") as store:
        episodes = stored_episodes(store, "model")
        assert [(e.kind, e.blamed[0], e.status) for e in episodes] == [
            ("unusual", "heat", "over"), ("frozen", "flow", "over")]  # fmt: skip
        assert "from the other sensors" in episodes[0].sentence
        assert watched_columns(store, "model") == (COLUMNS, ISO)


def test_a_run_that_was_killed_ends_as_one_that_was_not(watched):
    with Store(watched / "whole.db") as whole, Store(watched / "killed.db") as killed:
        assert repr(stored_episodes(whole, "model")) == repr(stored_episodes(killed, "model"))
        one, other = stored_traces(whole, "model"), stored_traces(killed, "model")
        assert [point.row for point in one] == [point.row for point in other]
        np.testing.assert_array_equal([point.mean for point in one], [point.mean for point in other])


def test_a_run_that_was_killed_before_its_pace_was_known_goes_on(tmp_path, stream):
    with Store(tmp_path / "run.db") as store:
        run(session_on(store), stream, 0, 5, every=5)
    with Store(tmp_path / "run.db") as store:
        session = session_on(store)
        assert session.resumed
        run(session, stream, 5, 105, every=100)
        assert session.watcher.n_rows == 105


def test_traces_have_a_fixed_grain_and_a_band(watched, stream):
    X, _ = stream
    with Store(watched / "whole.db") as store:
        points = stored_traces(store, "model")
    steps = np.diff([point.time for point in points])
    assert set(steps) == {20.0}
    late = points[-2]
    rows = X[late.row - 19 : late.row + 1]
    np.testing.assert_allclose(late.mean, rows.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(late.most, rows.max(axis=0), rtol=1e-4)
    assert (late.low < late.high).all()


@pytest.mark.slow
def test_the_band_of_a_point_is_that_of_its_time_whatever_the_batches_were():
    """The heat follows the load, and so does where it is expected: in each point, not in each batch."""
    n = 4000
    X = machine(n, seed=3)
    times = np.arange(float(n)) + 1.76e9
    for every in (60, 2000):
        session = WatchSession(Watcher(COLUMNS, time_format=ISO))
        for start in range(0, n, every):
            session.learn(X[start : start + every], None, times[start : start + every])
        session.commit()
        points = stored_traces(session.store, "model")[100:]
        middle = np.array([0.5 * (point.low + point.high)[1] for point in points])
        assert np.corrcoef(middle, [point.mean[1] for point in points])[0, 1] > 0.9


def test_marks_are_kept_and_taken_by_the_watcher(watched, stream):
    with Store(watched / "killed.db") as store:
        assert mark_episode(store, "model", 1, "normal").mark == "normal"
        assert stored_episodes(store, "model")[0].mark == "normal"
        session = session_on(store)
        X = machine(400, seed=5)
        X[200:260, 1] += 12.0
        result = session.learn(X, None, np.arange(400.0) + 1.76e9 + N)
        assert result.episodes == []
        with pytest.raises(InputError, match=r"holds no episode 99.*The latest are: 1, 2"):
            mark_episode(store, "model", 99, "normal")
        with pytest.raises(InputError, match="normal, fault, seen"):
            mark_episode(store, "model", 1, "odd")


def test_other_columns_are_refused(watched):
    with Store(watched / "whole.db") as store, pytest.raises(InputError, match="watches the columns load, heat, flow"):
        WatchSession(Watcher(["a", "b"]), store=store)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("columns", 1),
        ("latest_mark", "x"),
        ("traces", [1e308]),
        ("watch started", None),
        ("watch rows", -1),
        ("watch rows", 10**400),
        ("watch interval", -1),
        ("watch interval", 1e308),
        ("watch interval", "nan"),
        ("watch disturbed", 0.5),
        ("watch sensors rows", -1e308),
        ("watch pace", [0, "inf", 1.0]),
        ("watch drift", [{"columns": 2**63}, None]),
        ("watch steps", [0, [], [], []]),
        ("watch format", "2"),
        ("watch expectation", [["nan"] * 3] * 4),
        ("watch faults", [["frozen", [-1e308], {}]]),
        ("watch unusual", []),
    ],
)
def test_memory_that_was_edited_is_refused_in_our_words(watched, tmp_path, path, value):
    with Store(watched / "whole.db") as store, sqlite3.connect(tmp_path / "edited.db") as edited:
        sqlite3.connect(store.path).backup(edited)
    with sqlite3.connect(tmp_path / "edited.db") as edited:
        memory = json.loads(edited.execute("SELECT memory FROM model").fetchone()[0])
        *outer, last = path.split()
        node = memory
        for key in outer:
            node = node[key]
        node[last] = value
        edited.execute("UPDATE model SET memory = ?", (json.dumps(memory),))
    with Store(tmp_path / "edited.db") as store, pytest.raises((StateFileError, InputError)):
        session_on(store)


def test_a_state_of_an_earlier_version_says_what_to_do(watched, tmp_path):
    with Store(watched / "whole.db") as store, sqlite3.connect(tmp_path / "old.db") as old:
        sqlite3.connect(store.path).backup(old)
    with sqlite3.connect(tmp_path / "old.db") as old:
        memory = json.loads(old.execute("SELECT memory FROM model").fetchone()[0])
        del memory["watch"]["format"]
        memory["watch"]["drift"] = {"columns": 3, "references": [None, None]}
        old.execute("UPDATE model SET memory = ?", (json.dumps(memory),))
    with Store(tmp_path / "old.db") as store:
        with pytest.raises(InputError, match=r"earlier version of everlearn.*another file for --state"):
            session_on(store)
        assert len(stored_episodes(store, "model")) > 0  # what happened can still be read


def test_healthy_until_learns_what_lies_before(stream):
    X, times = stream
    session = WatchSession(Watcher(COLUMNS, time_format=ISO), healthy_until=times[1200])
    assert session.learn(X[:1400], None, times[:1400]).episodes == []
    assert session.watcher.detector.n_held_ < 20


def test_points_of_a_time_before_a_sensor_appeared_have_no_value_of_it(stream):
    X, times = stream
    with_times = [times[:300], times[300:600]]
    session = WatchSession(Watcher(COLUMNS, time_format=ISO))
    session.learn(X[:300], None, with_times[0])
    session.grow(["oil"])
    session.commit()
    # Nothing with the new sensor is there yet, and those who show it expect four columns all the same.
    assert {len(point.mean) for point in stored_traces(session.store, "model", n_columns=4)} == {4}
    session.learn(np.column_stack([X[300:600], np.ones(300)]), None, with_times[1])
    session.commit()
    points = stored_traces(session.store, "model")
    assert {len(point.low) for point in points} == {4}
    assert np.isnan(points[0].mean[3])
    assert points[-1].mean[3] == 1.0


# -- places where episodes are told ----------------------------------------------------------------


@pytest.fixture(scope="module")
def episode(watched):
    with Store(watched / "whole.db") as store:
        return stored_episodes(store, "model")[0]


def test_files_get_each_news_once(episode, tmp_path):
    outputs = EpisodeOutputs([str(tmp_path / "a.csv"), str(tmp_path / "a.jsonl")], ISO)
    result = type("Result", (), {"episodes": [episode._replace(status="open"), episode]})
    outputs.write(None, result, None)
    outputs.flush()
    outputs.close()
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == ",".join(FIELDS)
    assert len(lines) == 3
    told = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [record["status"] for record in told] == ["open", "over"]
    assert told[1]["sentence"] == episode.sentence
    assert told[1]["begin"].endswith("+00:00")


class Receiver(HTTPServer):
    """Fails a given number of times, then takes messages."""

    def __init__(self, failures, status=503):
        super().__init__(("127.0.0.1", 0), Handler)
        self.failures, self.status, self.got = failures, status, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/alarms"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        failed = self.server.failures > 0
        self.server.failures -= 1
        if not failed:
            self.server.got.append((self.headers.get("Authorization"), json.loads(body)))
        self.send_response(self.server.status if failed else 200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def test_a_webhook_is_tried_again_and_gets_the_token(episode):
    receiver, said = Receiver(failures=2), []
    messenger = Messenger(Webhook(receiver.url, "secret"), said.append, wait=0.01)
    messenger.put(dict(zip(FIELDS, record_of(episode, ISO), strict=True)))
    messenger.close()
    receiver.shutdown()
    ((token, record),) = receiver.got
    assert token == "Bearer secret"
    assert record["sentence"] == episode.sentence
    assert len(said) == 1
    assert "tried again" in said[0]


def test_a_webhook_that_refuses_is_not_asked_again(episode):
    receiver, said = Receiver(failures=1, status=401), []
    messenger = Messenger(Webhook(receiver.url), said.append, wait=0.01)
    messenger.put(dict(zip(FIELDS, record_of(episode, ISO), strict=True)))
    messenger.close()
    receiver.shutdown()
    assert receiver.got == []
    assert "401" in said[0]


def test_a_receiver_that_takes_nothing_does_not_keep_the_program_from_ending(monkeypatch):
    monkeypatch.setattr(sinks, "_MOST_WAITING", 3)
    called, go_on = threading.Event(), threading.Event()

    class Stuck:
        place = "http://nowhere"

        def tell(self, record):
            called.set()
            go_on.wait(60.0)

    said = []
    messenger = Messenger(Stuck(), said.append)
    messenger.put({})
    assert called.wait(60.0)
    for _ in range(3):
        messenger.put({})
    closing = threading.Thread(target=messenger.close, args=(0.1,))
    closing.start()
    closing.join(30.0)
    go_on.set()
    assert not closing.is_alive()
    assert "did not take all" in said[-1]


def test_a_command_gets_the_sentence_and_the_fields(episode, tmp_path):
    script = tmp_path / "tell.sh"
    script.write_text(f'#!/bin/sh\necho "$EVERLEARN_KIND|$2" > {tmp_path}/told\n')
    script.chmod(0o755)
    messenger = Messenger(Command(f"{script} 'two words'"), print)
    messenger.put(dict(zip(FIELDS, record_of(episode, ISO), strict=True)))
    messenger.close()
    assert (tmp_path / "told").read_text().strip() == f"unusual|{episode.sentence}"


def test_what_cannot_be_told_is_refused_at_once():
    with pytest.raises(InputError, match="https://"):
        Webhook("ftp://example.com")
    with pytest.raises(InputError, match="--command"):
        Command("")
    with pytest.raises(InputError, match="quot"):
        Command("echo 'open")
    with pytest.raises(InputError, match="no shell is involved, so '>>'"):
        Command("echo alarm >> alarms.txt")
