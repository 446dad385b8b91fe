"""The one writer: full disks, rows that cannot be learned, order, and what happens in between."""

import errno
import threading
import time

import numpy as np
import pytest

from everlearn import IncrementalGaussianMixture
from everlearn.service.repository import ModelRepository
from everlearn.service.settings import Limits
from everlearn.streams.session import Session
from everlearn.streams.store.store import Store
from service_tools import as_json, learned


@pytest.fixture
def desk(state):
    desk = ModelRepository(Store(state), Limits())
    desk.start()
    yield desk
    desk.stop()


def eventually(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_full_disk_stops_learning_until_there_is_room(client, monkeypatch):
    client.post("/models/a/learn", json={"rows": [[1.0, 2.0]] * 10})
    assert learned(client, "a")["rows"] == 10
    commit = Store.commit

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "database or disk is full")

    monkeypatch.setattr(Store, "commit", full)
    monkeypatch.setattr("everlearn.service.learning._LONGEST_PAUSE", 0.2)
    assert client.post("/models/a/learn", json={"rows": [[3.0, 4.0]] * 10}).status_code == 202
    eventually(lambda: client.get("/health").status_code == 503)
    assert "disk is full" in client.get("/health").json()["trouble"]
    assert client.get("/models/a").json()["rows"] == 10
    assert "everlearn_trouble 1" in client.get("/metrics").text
    monkeypatch.setattr(Store, "commit", commit)
    assert learned(client, "a")["rows"] == 20
    assert client.get("/health").status_code == 200


def test_a_full_disk_refuses_rows_and_says_so(client, monkeypatch):
    client.post("/models/a/learn", json={"rows": [[1.0]]})

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "database or disk is full")

    monkeypatch.setattr(Store, "put", full)
    answer = client.post("/models/a/learn", json={"rows": [[1.0]]})
    assert answer.status_code == 507
    assert "Nothing of this request was kept" in answer.json()["detail"]
    assert client.app.state.repository.waiting_values <= 1


def test_a_batch_that_cannot_be_learned_is_left_out(client, monkeypatch):
    learn = Session.learn

    def fragile(self, X, y=None):
        if (X == 13.0).any():
            raise FloatingPointError("thirteen")
        return learn(self, X, y)

    client.put("/models/a", json={"columns": ["u"]})
    monkeypatch.setattr(Session, "learn", fragile)
    for value in (1.0, 13.0, 2.0):
        client.post("/models/a/learn", json={"rows": [[value]] * 4})
    summary = learned(client, "a")
    assert (summary["rows"], summary["bad_rows"]) == (8, 4)
    bad = client.app.state.repository.store.bad_rows("a")
    assert {row.reason for row in bad} == {"FloatingPointError: thirteen"}


def test_rows_are_learned_in_the_order_of_the_answers(desk):
    desk.create("a", "IncrementalGaussianMixture", {}, ["u"]).result()
    X = np.random.default_rng(0).normal(size=(600, 1)).cumsum(axis=0)
    futures = [desk.put("a", X[i : i + 3], None) for i in range(0, 600, 3)]
    assert [future.result() for future in futures] == list(range(1, 201))
    eventually(lambda: desk.store.waiting("a") == 0)
    twin = IncrementalGaussianMixture().partial_fit(X)
    np.testing.assert_allclose(desk.model("a").score_samples(X), twin.score_samples(X), rtol=1e-8)
    assert desk.waiting_values == 0


def test_requests_that_come_together_share_a_transaction(desk, monkeypatch):
    sizes, put = [], Store.put

    def counted(self, batches, **options):
        sizes.append(len(batches))
        time.sleep(0.05)
        return put(self, batches, **options)

    desk.create("a", "IncrementalGaussianMixture", {}, ["u"]).result()
    monkeypatch.setattr(Store, "put", counted)
    for future in [desk.put("a", np.ones((1, 1)), None) for _ in range(50)]:
        future.result()
    assert sum(sizes) == 50
    assert len(sizes) <= 5


def test_rows_of_a_model_deleted_meanwhile_are_dropped(desk):
    desk.create("a", "IncrementalGaussianMixture", {}, ["u"]).result()
    desk.delete("a").result()
    desk.put("a", np.ones((3, 1)), None).result()
    eventually(lambda: desk.store.waiting("a") == 0)
    assert desk.store.entry("a") is None


def test_answers_come_while_a_step_is_slow(client, monkeypatch):
    client.post("/models/a/learn", json={"rows": as_json(np.random.default_rng(0).normal(size=(300, 2)))})
    learned(client, "a")
    begun, go_on, learn = threading.Event(), threading.Event(), Session.learn

    def slow(self, X, y=None):
        begun.set()
        assert go_on.wait(120)
        return learn(self, X, y)

    monkeypatch.setattr(Session, "learn", slow)
    client.post("/models/a/learn", json={"rows": [[1.0, 2.0]]})
    assert begun.wait(120)
    assert client.post("/models/a/score", json={"rows": [[1.0, 2.0]]}).status_code == 200
    assert client.post("/models/a/learn", json={"rows": [[1.0, 2.0]]}).status_code == 202
    summary = client.get("/models/a").json()
    assert (summary["rows"], summary["waiting"]) == (300, 2)
    go_on.set()
    assert learned(client, "a")["rows"] == 302
