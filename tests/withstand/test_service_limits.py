"""What nobody had tried on the service: its limits under load, a full disk, many models, IPv6, clocks that jump."""

import asyncio
import errno
import itertools
import json
import resource
import socket
import sqlite3
import sys
import threading
import time

import numpy as np
import pytest

from everlearn import OnlinePPCA
from everlearn.service import server
from everlearn.service.app import create_app
from everlearn.service.events import EventStreams
from everlearn.service.repository import ModelRepository
from everlearn.service.settings import Limits, Settings
from everlearn.streams.session import Session
from everlearn.streams.store import records
from everlearn.streams.store.store import Store
from service_tools import Service, TestClient, as_json, learned

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(60, 2))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    running = Service(tmp_path_factory.mktemp("state") / "run.db", "--rate", "40")
    yield running
    running.kill()


@pytest.fixture
def state(tmp_path):
    """A state file with one model that takes rows."""
    path = tmp_path / "run.db"
    with Store(path) as store:
        session = Session(OnlinePPCA(1), store=store, name="m0", columns=["a", "b"])
        session.learn(X)
        session.commit(position={"inbox": {"columns": ["a", "b"]}})
    return path


# -- limits under load -----------------------------------------------------------------------------


def test_rates_hold_under_load(service):
    """Twenty clients at once: what is let through is the burst and the rate, the rest is told to wait."""
    statuses, started = [], time.monotonic()

    def ask():
        with service.client() as client:
            for _ in range(15):
                answer = client.get("/livez")
                statuses.append(answer.status_code)
                assert answer.status_code == 200 or answer.headers["retry-after"]

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    assert len(statuses) == 300
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= 2 * 40 + 40 * seconds + 1
    time.sleep(0.2)
    with service.client() as client:
        assert client.get("/livez").status_code == 200


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's")
def test_a_full_disk_refuses_rows_and_keeps_the_others(service):
    """Rows are refused with 507 while nothing can be written; what was acknowledged is learned, each row once."""
    pid, no_limit = service.process.pid, resource.RLIM_INFINITY
    rounds = ((no_limit, range(3), 202), (4096, range(3, 6), 507), (no_limit, range(3, 6), 202))
    with service.client() as client:
        try:
            for size, numbers, expected in rounds:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, no_limit))
                for i in numbers:
                    key = {"Idempotency-Key": f"batch {i}"}
                    answer = client.post("/models/full/learn", json={"rows": as_json(X[:5] + i)}, headers=key)
                    assert answer.status_code == expected, answer.text
                # Else the learning, too, would meet the full disk, and pause for five seconds.
                assert expected == 507 or learned(client, "full")
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (no_limit, no_limit))
        assert learned(client, "full")["rows"] == 30
        assert client.get("/readyz").status_code == 200


def test_a_disk_that_is_full_at_the_start_is_told_before_the_server_runs(state, monkeypatch):
    def full(self):
        raise OSError(errno.ENOSPC, "The disk is full")

    monkeypatch.setattr(Store, "all_waiting", full)
    with pytest.raises(OSError, match="The disk is full"):
        server.serve(state, Settings(port=0), ready=lambda url: pytest.fail("it runs"))


def test_what_is_no_http_is_refused_in_json(service):
    host, port = service.url.removeprefix("http://").split(":")
    for request in (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", b"nonsense\r\n\r\n"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(request)
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]


# -- event streams ---------------------------------------------------------------------------------


def test_event_streams_are_bounded_when_all_open_at_once(state):
    """All pass the first check before any stream has begun: the second one counts."""
    repository = ModelRepository(Store(state), Limits())
    streams = EventStreams(repository, 3)

    async def first_words():
        for _ in range(8):
            streams.check_room()
        opened = [streams.stream("m0", 0) for _ in range(8)]
        words = [await anext(stream) for stream in opened]
        for stream in opened:
            await stream.aclose()
        return words

    words = asyncio.run(first_words())
    assert sum("event: busy" in word for word in words) == 5
    assert streams._open == 0
    repository.store.close()


def test_event_streams_leave_room_when_their_clients_go(service):
    time.sleep(1.0)  # the rate of the tests before
    with service.client() as client:
        client.put("/models/watched", json={"columns": ["a"]})
    host, port = service.url.removeprefix("http://").split(":")
    for _ in range(2):
        sockets = [socket.create_connection((host, int(port))) for _ in range(30)]
        for each in sockets:
            each.sendall(b"GET /models/watched/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(100).startswith(b"HTTP/1.1 200")
        for each in sockets:
            each.close()
        time.sleep(1.2)  # a stream looks for its client twice a second
    with service.client() as client:
        assert client.get("/health").status_code == 200


# -- many models -----------------------------------------------------------------------------------


def fill(state, n_models):
    """Copies of the model in the file under other names, without learning each."""
    with sqlite3.connect(state) as connection:
        for table in ("model", "model_file", "interval", "total"):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            rest = [f"t.{name}" for name in names if name not in ("name", "id")]
            connection.execute(
                f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n_models - 1}) INSERT INTO "
                f"{table} (name, {', '.join(name[2:] for name in rest)}) SELECT 'm' || i, {', '.join(rest)} "
                f"FROM n, {table} t WHERE t.name = 'm0'"
            )


def test_thousands_of_models_take_the_memory_of_a_few(state):
    fill(state, 2000)
    settings = Settings(limits=Limits(models_in_memory=32, metrics_models=2000))
    with TestClient(create_app(state, settings), base_url="http://localhost") as client:
        repository = client.app.state.repository
        asked = []
        query = repository.store._file.query
        repository.store._file.query = lambda sql, *values: asked.append(sql) or query(sql, *values)
        text = client.get("/metrics").text
        assert len(asked) < 10, "a query for each model"
        assert text.count("everlearn_rows{") == 2000
        assert len(client.get("/models?limit=10000").json()["models"]) == 2000
        for i in range(60):
            assert client.get(f"/models/m{i}").status_code == 200
        assert len(repository._cache) <= 32


# -- addresses and clocks --------------------------------------------------------------------------


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")
def test_ipv6(tmp_path):
    settings = Settings(host="::1", port=0)
    with server._listen(settings) as listener:
        assert listener.family == socket.AF_INET6
        assert listener.getsockname()[0] == "::1"  # there and nowhere else
    assert server._url("::1", 80) == "http://[::1]:80/"
    with TestClient(create_app(tmp_path / "run.db", settings), base_url="http://[::1]:8765") as client:
        assert client.post("/models/m/learn", json={"rows": [[1.0, 2.0]]}).status_code == 202
        assert client.get("/models", headers={"Host": "[::2]:8765"}).status_code == 421
        assert client.get("/models", headers={"Host": "[::1].evil.example"}).status_code == 421
        assert client.get("/models", headers={"Origin": "http://[::2]:8765"}).status_code == 403
        assert client.get("/models", headers={"Origin": "http://[::1]:8765"}).status_code == 200


def test_clocks_that_jump(state, monkeypatch):
    """The clock on the wall goes back, stands still and leaps: rows are learned, and order stays that of ids."""
    jumps = itertools.cycle([1e9, 9e8, 9e8, 4e9, -5.0, 0.0])
    monkeypatch.setattr(records.time, "time", lambda: next(jumps))
    with TestClient(create_app(state, Settings()), base_url="http://localhost") as client:
        for i in range(8):
            body = {"rows": as_json(X[:20] + i)}
            assert client.post("/models/m0/learn", json=body).status_code == 202
            assert learned(client, "m0", seconds=20.0)["rows"] == 60 + 20 * (i + 1)
        intervals = client.get("/models/m0/history").json()["intervals"]
        assert [each["end_row"] for each in intervals] == sorted(each["end_row"] for each in intervals)
        assert client.get("/models/m0/pictures/likelihood").status_code == 200
        assert client.get("/health").json() == {"status": "ok", "trouble": None}


def test_durations_are_of_the_monotonic_clock(repository):
    """The clock on the wall is asked in one place, for dates that people read."""
    asking = {
        path.relative_to(repository / "src" / "everlearn").as_posix()
        for folder in ("service", "streams")
        for path in (repository / "src" / "everlearn" / folder).rglob("*.py")
        if "time.time()" in path.read_text(encoding="utf-8")
    }
    assert asking == {"streams/store/records.py"}
    assert sys.modules[records.__name__].time is time
