"""Redis, Kafka and MQTT as sources and writers, against real brokers."""

import json
import signal
import threading
import time

import numpy as np
import pytest

from brokers_for_tests import KafkaProcess, MockKafka, free_port, mosquitto, redis_server
from everlearn import OnlinePPCA
from everlearn.errors import InputError, SourceLostError
from everlearn.streams import backoff
from everlearn.streams.runner import Runner
from everlearn.streams.session import Session
from everlearn.streams.sources.jsonl import NewColumns, batch_of_messages
from everlearn.streams.sources.kafka import _Reading
from everlearn.streams.sources.messages import address
from everlearn.streams.sources.opening import open_source
from everlearn.streams.sources.schema import ALL_NUMBERS, Columns
from everlearn.streams.store.store import Store
from everlearn.streams.writers import open_writer

pytestmark = pytest.mark.slow

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 2))
RECORDS = [dict(zip("ab", row, strict=True)) for row in X.tolist()]


def rows_of(where, position=None, **options):
    with open_source(where, stop_at_end=True, **options) as source:
        batches = list(source.batches(position))
    return batches, np.concatenate([batch.X for batch in batches])


# -- addresses and messages ------------------------------------------------------------------------


def test_addresses():
    found = address("mqtt://me:p%40ss@host:1234/plant/+/temp/#?client=x")
    assert found == ("mqtt", "me", "p@ss", "host:1234", "plant/+/temp/#", {"client": "x"})
    assert found.host(1883) == ("host", 1234)
    assert address("kafka://broker/topic").host(9092) == ("broker", 9092)
    assert "p@ss" not in str(found)
    with pytest.raises(InputError, match="names no topic"):
        address("kafka://host/")
    with pytest.raises(InputError, match="port"):
        address("redis://host:no/x").host(1)


def test_messages_of_any_sort():
    columns = Columns(["column0", "column1"], {})
    payloads = [b"1,2.5", "[3, 4]", {b"column0": b"5", b"column1": b""}, b"", b"{broken", b"x,1", b'{"other": 1}']
    messages = [(f"place {i}", payload) for i, payload in enumerate(payloads)]
    rows = batch_of_messages("here", messages, NewColumns(columns, {}, ALL_NUMBERS))
    np.testing.assert_array_equal(rows.X, [[1, 2.5], [3, 4], [5, np.nan]])
    assert [(row.place, row.reason) for row in rows.bad] == [
        ("place 3", "an empty message"),
        ("place 4", "a line that is no JSON"),
        ("place 5", "text in a column of numbers"),
        ("place 6", "none of the columns"),
    ]


# -- Redis -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory):
    pytest.importorskip("redis", reason="redis is not installed")
    with redis_server(tmp_path_factory.mktemp("redis")) as port:
        yield port


def test_redis(redis_port, monkeypatch):
    monkeypatch.setattr("everlearn.streams.sources.messages.MessageSource.batch_messages", 64)
    where = f"redis://127.0.0.1:{redis_port}/rows"
    with open_writer(where, ["a", "b"]) as writer:
        writer.write(X.tolist())
    batches, found = rows_of(where)
    np.testing.assert_array_equal(found, X)
    assert [len(batch.X) for batch in batches] == [64] * 7 + [52]
    np.testing.assert_array_equal(rows_of(where, batches[2].position)[1], X[192:])
    np.testing.assert_array_equal(rows_of(where, columns=["b"])[1], X[:, 1:])


def test_redis_entries_of_json_and_wrong_names(redis_port):
    import redis

    with redis.Redis(port=redis_port) as client:
        client.set("text", "no stream")
        for record in RECORDS[:5]:
            client.xadd("json", {"data": json.dumps(record)})
    np.testing.assert_array_equal(rows_of(f"redis://127.0.0.1:{redis_port}/json")[1], X[:5])
    with pytest.raises(InputError, match="name of a stream"):
        open_source(f"redis://127.0.0.1:{redis_port}/text", stop_at_end=True)
    with pytest.raises(InputError, match="holds no message"):
        open_source(f"redis://127.0.0.1:{redis_port}/absent", stop_at_end=True)


def test_a_lost_redis_is_waited_for(tmp_path, monkeypatch):
    """The broker dies in the middle of a live run, comes back, and no row is missed."""
    redis = pytest.importorskip("redis", reason="redis is not installed")
    monkeypatch.setattr(backoff, "_FIRST_WAIT", 0.05)
    port, said = free_port(), []
    where = f"redis://127.0.0.1:{port}/rows"

    def fill(start, stop):
        with redis.Redis(port=port) as client:
            for i in range(start, stop):
                client.xadd("rows", {"a": float(X[i, 0]), "b": float(X[i, 1])}, id=f"{i + 1}-0")

    with Store(tmp_path / "run.db") as store:
        with redis_server(tmp_path, port):
            fill(0, 200)
            source = open_source(where)
            run = Runner(source, Session(OnlinePPCA(1), store=store, columns=["a", "b"]), say=said.append)
            run.watch = lambda batch, seen: run.stop.set() if run.n_learned == 500 else None
            thread = threading.Thread(target=run.run)
            thread.start()
            wait_until(lambda: run.n_learned == 200)
        wait_until(lambda: said)
        with redis_server(tmp_path, port):
            fill(200, 500)
            thread.join(30)
        assert not thread.is_alive()
        assert run.n_learned == store.totals("model")["rows"] == 500
        kinds = [event.kind for event in store.events("model") if event.kind.startswith("source")]
        assert kinds[:2] == ["source lost", "source back"]
        expected = OnlinePPCA(1).partial_fit(X)
        np.testing.assert_allclose(store.load("model").score_samples(X), expected.score_samples(X), rtol=1e-8)


def wait_until(condition, seconds=20):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.01)


# -- Kafka -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka():
    return MockKafka()


def test_kafka(kafka, monkeypatch):
    monkeypatch.setattr("everlearn.streams.sources.messages.MessageSource.batch_messages", 64)
    kafka.fill("rows", [json.dumps(record) for record in RECORDS])
    where = f"kafka://{kafka.address}/rows"
    batches, found = rows_of(where)
    assert sorted(found.tolist()) == sorted(X.tolist())
    again, same = rows_of(where)
    np.testing.assert_array_equal(same, found)
    assert [batch.position for batch in again] == [batch.position for batch in batches]
    rest, last = rows_of(where, batches[3].position)
    np.testing.assert_array_equal(last, found[4 * 64 :])
    assert [batch.position for batch in rest] == [batch.position for batch in batches[4:]]


def test_a_kafka_partition_that_was_held_back_is_read_again(monkeypatch):
    """Very many messages of one partition come before those of another; each reading must hold back for itself."""
    monkeypatch.setattr("everlearn.streams.sources.messages.MessageSource.batch_messages", 8)
    monkeypatch.setattr("everlearn.streams.sources.kafka.STALL_SECONDS", 3.0)
    kafka, held = MockKafka(**{"linger.ms": 5000}), []  # one batch for each partition, sent by the flush
    kafka.fill("rows", [json.dumps(record) for record in RECORDS])
    pause = _Reading._hold_back

    def hold_back(reading, limit):
        pause(reading, limit)
        held.append(set(reading._held))

    monkeypatch.setattr(_Reading, "_hold_back", hold_back)
    with open_source(f"kafka://{kafka.address}/rows", stop_at_end=True) as source:
        assert held[-1], "the first reading, for the columns, ended while it held back"
        for _ in range(2):
            found = np.concatenate([batch.X for batch in source.batches()])
            assert sorted(found.tolist()) == sorted(X.tolist())


def test_a_kafka_that_stalls_is_reported_and_waited_for(tmp_path, monkeypatch):
    """The broker stops in the middle and says nothing; nothing is lost or learned twice when it goes on."""
    monkeypatch.setattr("everlearn.streams.sources.messages.MessageSource.batch_messages", 8)
    monkeypatch.setattr("everlearn.streams.sources.kafka.STALL_SECONDS", 0.5)
    monkeypatch.setattr("everlearn.streams.sources.kafka.CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(backoff, "_FIRST_WAIT", 0.05)
    said, learned = [], []
    with KafkaProcess() as kafka, Store(tmp_path / "run.db") as store:
        for start in range(0, 500, 50):  # fetched one by one
            kafka.fill("rows", [json.dumps(record) for record in RECORDS[start : start + 50]])
        source = open_source(
            f"kafka://{kafka.address}/rows?queued.min.messages=1&fetch.queue.backoff.ms=1", stop_at_end=True
        )

        def say(message):
            said.append(message)
            kafka.process.send_signal(signal.SIGCONT)

        def watch(batch, seen):
            if batch is not None:
                learned.append(batch.X)
                if len(learned) == 1:
                    kafka.process.send_signal(signal.SIGSTOP)

        run = Runner(source, Session(OnlinePPCA(1), store=store, columns=["a", "b"]), say=say, watch=watch)
        run.run()
        assert "has sent nothing of partition" in said[0]
        assert run.n_learned == store.totals("model")["rows"] == 500
        kinds = [event.kind for event in store.events("model") if event.kind.startswith("source")]
        assert kinds == ["source lost", "source back"]
        assert sorted(np.concatenate(learned).tolist()) == sorted(X.tolist())


def test_a_kafka_that_goes_away_is_reported(monkeypatch):
    monkeypatch.setattr("everlearn.streams.sources.kafka.CONNECT_SECONDS", 0.5)
    with KafkaProcess() as kafka:
        kafka.fill("rows", [json.dumps(record) for record in RECORDS[:20]])
        batches = open_source(f"kafka://{kafka.address}/rows").batches()
        assert len(next(batches).X) == 20
    with pytest.raises(SourceLostError, match="cannot be reached"):
        next(batches)


def test_options_of_kafka_that_do_not_exist(kafka):
    with pytest.raises(InputError, match="No such configuration property"):
        open_source(f"kafka://{kafka.address}/rows?no.such=1")


def test_kafka_as_a_sink(kafka):
    where = f"kafka://{kafka.address}/scores"
    with open_writer(where, ["row", "a"]) as writer:
        writer.write([(i, float(value)) for i, value in enumerate(X[:50, 0])])
        writer.write([(50, float("nan"))])
    found = rows_of(where, columns=["row", "a"])[1]
    found = found[np.argsort(found[:, 0])]
    np.testing.assert_array_equal(found[:50, 1], X[:50, 0])
    assert np.isnan(found[50, 1])


def test_a_kafka_that_is_not_there(monkeypatch):
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    monkeypatch.setattr("everlearn.streams.sources.kafka.CONNECT_SECONDS", 0.5)
    with pytest.raises(SourceLostError, match="cannot be reached"):
        open_source(f"kafka://127.0.0.1:{free_port()}/rows")


# -- MQTT ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mqtt_port(tmp_path_factory):
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


def test_mqtt_is_learned_at_least_once(mqtt_port, tmp_path):
    """A run that goes away without acknowledging loses nothing: the broker sends it again."""
    where = f"mqtt://127.0.0.1:{mqtt_port}/plant/rows"
    first = open_source(where, columns=["a", "b"], session="everlearn-test")
    assert not first.replayable
    with open_writer(where, ["a", "b"]) as writer:
        writer.write(X[:30].tolist())
    arrived = next(iter(first.batches()))
    assert len(arrived.X) > 0
    first.close()  # nothing was acknowledged
    with (
        Store(tmp_path / "run.db") as store,
        open_source(where, columns=["a", "b"], session="everlearn-test", stop_at_end=True) as second,
    ):
        learner = Session(OnlinePPCA(1), store=store, columns=["a", "b"])
        seen = []
        Runner(second, learner, watch=lambda batch, foresight: seen.append(batch) if batch else None).run()
        found = np.concatenate([batch.X for batch in seen])
        assert {tuple(row) for row in found.tolist()} == {tuple(row) for row in X[:30].tolist()}
        assert store.load("model").n_samples_seen_ == len(found)
    with open_source(where, columns=["a", "b"], session="everlearn-test", stop_at_end=True) as third:
        assert list(third.batches()) == []  # all was acknowledged


def test_mqtt_finds_columns_and_keeps_the_first_message(mqtt_port):
    where = f"mqtt://127.0.0.1:{mqtt_port}/fresh/#"

    def publish():
        time.sleep(0.5)
        with open_writer(f"mqtt://127.0.0.1:{mqtt_port}/fresh/rows", ["a", "name", "b"]) as writer:
            writer.write([(a, "M1", b) for a, b in X[:10].tolist()])

    thread = threading.Thread(target=publish)
    thread.start()
    with open_source(where) as source:
        assert source.columns.left_out == {"name": "text"}
        found = []
        for batch in source.batches():
            found.append(batch.X)
            if sum(map(len, found)) == 10:
                break
    thread.join()
    np.testing.assert_array_equal(np.concatenate(found), X[:10])


def test_an_mqtt_broker_that_is_not_there():
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    with pytest.raises(SourceLostError, match="cannot be reached"):
        open_source(f"mqtt://127.0.0.1:{free_port()}/x")
