"""What a red team broke, each as small as it can be and still fail on the code before."""

import json
import socket
import sqlite3
import threading
import time
import tracemalloc

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.persistence.model_file import dumps
from everlearn.service import learning
from everlearn.service.repository import ModelRepository
from everlearn.service.settings import Limits
from everlearn.streams.session import Session
from everlearn.streams.store.store import Store
from service_tools import as_json, learned

TOKEN, READER = "0123456789abcdefghij", "abcdefghij0123456789"


def eventually(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def upload(client, name, model):
    kind = {"Content-Type": "application/octet-stream"}
    assert client.post(f"/models/{name}/merge", content=dumps(model), headers=kind).status_code == 200


@pytest.fixture
def wide():
    """A model of 200 columns that knows something."""
    X = np.random.default_rng(0).normal(size=(400, 200))
    return OnlinePPCA(3).partial_fit(X)


# -- repeated keys ---------------------------------------------------------------------------------


def test_repeated_keys_cost_nothing(open_client):
    client = open_client(limits=Limits(waiting_values=1000))
    body = {"rows": [[1.0, 2.0]] * 100}
    for _ in range(30):
        assert client.post("/models/a/learn", json=body, headers={"Idempotency-Key": "same"}).status_code == 202
    assert learned(client, "a")["rows"] == 100
    assert client.app.state.repository.waiting_values == 0
    assert client.post("/models/b/learn", json=body).status_code == 202


def test_a_key_that_is_repeated_after_a_restart(open_client, state):
    body, key = {"rows": [[1.0, 2.0]] * 100}, {"Idempotency-Key": "same"}
    first = open_client()
    assert first.post("/models/a/learn", json=body, headers=key).status_code == 202
    learned(first, "a")
    repository = ModelRepository(Store(state), Limits())
    repository.start()
    try:
        repository.put("a", np.ones((100, 2)), "same").result()
        assert repository.waiting_values == 0
    finally:
        repository.stop()


def test_rows_of_a_deleted_model_do_not_count_as_waiting(state):
    repository = ModelRepository(Store(state), Limits())
    repository.start()
    try:
        repository.put("nobody", np.ones((50, 2)), None).result()
        eventually(lambda: repository.waiting_values == 0)
    finally:
        repository.stop()


# -- questions that cost too much ------------------------------------------------------------------


def test_drawing_takes_memory_in_proportion_to_the_answer(client, wide):
    upload(client, "a", wide)
    client.post("/models/a/sample", json={"n_rows": 10})
    tracemalloc.start()
    try:
        answer = client.post("/models/a/sample", json={"n_rows": 2000})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.status_code == 200
    assert np.shape(answer.json()["rows"]) == (2000, 200)
    assert peak < 150e6  # 2000 x 200 x 200 numbers, which were taken before, are 640 MB


def test_a_wide_mixture_draws(client):
    """Its covariances are loadings and noise: a way of its own, on which nothing was given once gave a 500."""
    model = IncrementalGaussianMixture(covariance_type="low_rank")
    upload(client, "a", model.partial_fit(np.random.default_rng(0).normal(size=(50, 30))))
    answer = client.post("/models/a/sample", json={"n_rows": 5})
    assert answer.status_code == 200
    assert np.shape(answer.json()["rows"]) == (5, 30)


def test_a_mixture_draws_in_bounded_memory():
    X = np.random.default_rng(0).normal(size=(600, 60))
    model = IncrementalGaussianMixture(max_components=4).fit(X)
    answer = model.condition(np.full((1, 60), np.nan), target=np.arange(60))
    tracemalloc.start()
    try:
        drawn = answer.sample(5000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert drawn.shape == (1, 5000, 60)
    assert peak < 30e6  # 5000 x 60 x 60 numbers are 144 MB
    np.testing.assert_allclose(np.cov(drawn[0].T), answer.cov()[0], atol=0.25)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sample", {"n_rows": 20_000}),
        ("predict", {"rows": [{}] * 20_000, "target": [f"x{i}" for i in range(50)]}),
    ],
)
def test_answers_beyond_the_limit_are_refused_in_json(client, wide, path, body):
    upload(client, "a", wide)
    answer = client.post(f"/models/a/{path}", json=body)
    assert answer.status_code == 422
    assert "at most 2,000,000 are given at once" in answer.json()["detail"]


def test_want_of_memory_is_told_in_json(client, monkeypatch):
    client.post("/models/a/learn", json={"rows": as_json(np.random.default_rng(0).normal(size=(300, 2)))})
    learned(client, "a")

    def hungry(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("everlearn.service.responses.condition", hungry)
    answer = client.post("/models/a/sample", json={"n_rows": 10})
    assert answer.status_code == 503
    assert "more memory" in answer.json()["detail"]


def test_questions_have_a_deadline(open_client, monkeypatch):
    client = open_client(limits=Limits(question_seconds=0.2))
    client.post("/models/a/learn", json={"rows": as_json(np.random.default_rng(0).normal(size=(300, 2)))})
    learned(client, "a")
    from everlearn.service import responses

    condition = responses.condition
    monkeypatch.setattr(responses, "condition", lambda *args: time.sleep(0.1) or condition(*args))
    given = [{"x0": float(i)} for i in range(1000)]
    started = time.monotonic()
    answer = client.post("/models/a/predict", json={"rows": given, "target": ["x1"]})
    assert answer.status_code == 422
    assert "more than 0.2 s" in answer.json()["detail"]
    assert time.monotonic() - started < 10.0


def test_equal_questions_are_answered_once(client, monkeypatch):
    client.post("/models/a/learn", json={"rows": as_json(np.random.default_rng(0).normal(size=(300, 2)))})
    learned(client, "a")
    from everlearn.service import responses

    calls, condition = [], responses.condition
    monkeypatch.setattr(responses, "condition", lambda *args: calls.append(1) or condition(*args))
    answer = client.post("/models/a/predict", json={"rows": [{}] * 500, "target": ["x1"]}).json()
    assert len(answer["mean"]) == 500
    assert len(calls) == 1


@pytest.mark.slow
def test_expensive_questions_leave_room_for_everything_else(start_service, tmp_path, state, wide):
    """More slow questions than there are threads: rows are taken, and health is told, at once."""
    with Store(state) as store:
        store.commit("a", wide, 0)
    service = start_service()
    names = [f"x{i}" for i in range(200)]
    given = [{name: float(i) for name in names[:100]} for i in range(400)]
    body = json.dumps({"rows": given, "target": names[100:]})
    host, port = service.url.removeprefix("http://").split(":")
    head = f"POST /models/a/predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    message = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    sockets = [socket.create_connection((host, int(port))) for _ in range(45)]
    try:
        for each in sockets:
            each.sendall(message)
        time.sleep(1.0)
        with service.client() as client:
            for path in ("/health", "/models", "/livez", "/readyz", "/version"):
                assert client.get(path, timeout=10.0).status_code == 200, path
            assert client.post("/models/b/learn", json={"rows": [[1.0, 2.0]]}, timeout=20.0).status_code == 202
    finally:
        for each in sockets:
            each.close()
    # The work ends with the clients: the next question does not wait for 45 others.
    with service.client() as client:
        started = time.monotonic()
        assert client.post("/models/a/score", json={"rows": [[0.0] * 200]}, timeout=60.0).status_code == 200
        assert time.monotonic() - started < 30.0


# -- connections -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_dribbled_headers_do_not_keep_others_out(start_service):
    service = start_service("--header-seconds", "2", "--connections-per-address", "50")
    host, port = service.url.removeprefix("http://").split(":")
    sockets = []
    for _ in range(80):
        each = socket.create_connection((host, int(port)))
        each.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        sockets.append(each)
    refused = sockets[-1].recv(1000)
    assert b" 503 " in refused
    assert b"which is the limit" in refused
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        for each in sockets:
            try:
                each.sendall(b"a")
            except OSError:
                continue
        time.sleep(0.3)
    with service.client() as client:
        assert client.get("/health", timeout=5.0).status_code == 200
    for each in sockets:
        each.close()


@pytest.mark.slow
def test_a_connection_serves_many_requests(start_service):
    """The deadline begins anew with each request; it does not end a connection that is in use."""
    service = start_service("--header-seconds", "1")
    with service.client() as client:
        for _ in range(6):
            assert client.get("/livez").status_code == 200
            time.sleep(0.4)


# -- learning --------------------------------------------------------------------------------------


def test_slow_models_do_not_stop_the_others(client, monkeypatch):
    """More slow models than threads; the fast one is learned at once, and health tells of the others."""
    learn, hold = Session.learn, threading.Event()
    begun = []

    def slow(self, X, y=None, times=None):
        if self.name.startswith("a"):
            begun.append(self.name)
            assert hold.wait(60)
        return learn(self, X, y)

    monkeypatch.setattr(Session, "learn", slow)
    rows = as_json(np.zeros((2, learning._WIDE_COLUMNS + 1)))
    try:
        for i in range(learning.N_THREADS + 2):
            assert client.post(f"/models/a{i}/learn", json={"rows": rows}).status_code == 202
        eventually(lambda: len(begun) == learning.N_THREADS - 1)
        client.post("/models/z/learn", json={"rows": [[1.0, 2.0]] * 10})
        assert learned(client, "z", seconds=20.0)["rows"] == 10
        assert len(begun) == learning.N_THREADS - 1
        monkeypatch.setattr(client.app.state.repository, "limits", Limits(stall_seconds=0.1))
        # The rows may have come less than a tenth of a second ago.
        eventually(lambda: client.get("/health").status_code == 503)
        assert "Rows have waited" in client.get("/health").json()["trouble"]
    finally:
        hold.set()
    for i in range(learning.N_THREADS + 2):
        assert learned(client, f"a{i}")["rows"] == 2


def test_a_damaged_model_concerns_itself_alone(open_client, state):
    client = open_client()
    for name in "ab":
        client.post(f"/models/{name}/learn", json={"rows": [[1.0, 2.0], [2.0, 1.0]]})
        learned(client, name)
    client.__exit__(None, None, None)
    with sqlite3.connect(state) as connection:
        connection.execute("UPDATE model_file SET data = ? WHERE name = 'a'", (b"\0" * 100,))
    client = open_client()
    for name in "ab":
        body = {"columns": ["x0", "x1"], "rows": [[1.0, 2.0]] * 5}
        assert client.post(f"/models/{name}/learn", json=body).status_code == 202
    assert learned(client, "b", seconds=20.0)["rows"] == 7
    eventually(lambda: client.get("/health").status_code == 503)
    answer = client.get("/models/a")
    assert answer.status_code == 503
    assert "damaged" in answer.json()["detail"]
    for text in (client.get("/health").text, answer.text):
        assert str(state) not in text
        assert state.name not in text
    assert "'a'" not in client.get("/health").text
    assert client.delete("/models/a").status_code == 204
    eventually(lambda: client.get("/health").status_code == 200)


# -- tokens ----------------------------------------------------------------------------------------


def test_a_token_for_questions_changes_nothing(open_client):
    client = open_client(token=TOKEN, read_token=READER)
    writer, reader = ({"Authorization": f"Bearer {token}"} for token in (TOKEN, READER))
    rows = {"rows": as_json(np.random.default_rng(0).normal(size=(300, 2)))}
    assert client.post("/models/a/learn", json=rows, headers=reader).status_code == 403
    assert client.post("/models/a/learn", json=rows).status_code == 401
    assert client.post("/models/a/learn", json=rows, headers=writer).status_code == 202
    eventually(lambda: client.get("/models/a", headers=reader).json()["waiting"] == 0)
    assert client.post("/models/a/score", json={"rows": [[0.0, 0.0]]}, headers=reader).status_code == 200
    assert client.post("/models/a/sample", json={"n_rows": 2}, headers=reader).status_code == 200
    for method, path in (("DELETE", "/models/a"), ("PUT", "/models/b"), ("POST", "/models/a/merge")):
        assert client.request(method, path, headers=reader).status_code == 403, path
    for path in ("/livez", "/readyz", "/version", "/health"):
        assert client.get(path).status_code == 200
