"""Brokers that send messages twice, late, too large or without anything in them: each row is learned once."""

import json

import pytest

from everlearn.streams.sources import jsonl, kafka, redis
from everlearn.streams.sources.jsonl import payload_values
from everlearn.streams.sources.messages import address
from everlearn.streams.sources.schema import Choice


class Message:
    def __init__(self, offset, value, partition=0):
        self._offset, self._value, self._partition = offset, value, partition

    def error(self):
        return None

    def offset(self):
        return self._offset

    def value(self):
        return self._value

    def partition(self):
        return self._partition


def body(i):
    return json.dumps({"a": i, "b": -i}).encode()


def test_kafka_messages_that_come_twice_or_late_are_learned_once(monkeypatch):
    script = [0, 1, 1, 2, 0, 5, 3, 4, 6, 6]  # 3 and 4 come after 5: late, or compacted away and sent again

    class Consumer:
        def __init__(self, *_):
            self.left = [Message(i, body(i)) for i in script]

        def consume(self, limit, timeout):
            found, self.left = self.left[:limit], self.left[limit:]
            return found

        def get_watermark_offsets(self, part, **_):
            return 0, 7

        def close(self):
            pass

        assign = pause = resume = lambda self, parts: None

    monkeypatch.setattr(kafka._Reading, "_connected", lambda self, where: Consumer())
    monkeypatch.setattr(kafka._Reading, "find_partitions", lambda self: [0])
    source = kafka.KafkaSource(address("kafka://host/topic"), Choice(columns=["a", "b"]), stop_at_end=True)
    batches = list(source.batches())
    assert [value for batch in batches for value in batch.X[:, 0].tolist()] == [0, 1, 2, 5, 6]
    assert batches[-1].position == {"offsets": {"0": 7}}


def test_redis_entries_that_come_twice_or_late_are_learned_once(monkeypatch):
    pytest.importorskip("redis")
    replies = [["1-0", "1-1", "1-1"], ["1-1", "2-0", "1-0", "10-0"], ["9-0"], []]

    class Client:
        def __init__(self):
            self.left = [list(reply) for reply in replies]

        def ping(self):
            pass

        def close(self):
            pass

        def xread(self, streams, count, block):
            reply = self.left.pop(0) if self.left else []
            entries = [(i.encode(), {b"a": i.replace("-", ".").encode(), b"b": b"0"}) for i in reply]
            return [(b"s", entries)] if entries else []

    monkeypatch.setattr(redis, "connected", lambda where: Client())
    source = redis.RedisSource(address("redis://host/s"), Choice(columns=["a", "b"]), stop_at_end=True)
    batches = list(source.batches())
    assert [value for batch in batches for value in batch.X[:, 0].tolist()] == [1.0, 1.1, 2.0, 10.0]
    assert batches[-1].position == {"id": "10-0"}


def test_messages_that_are_too_large_empty_or_deep_are_bad_rows(monkeypatch):
    monkeypatch.setattr(jsonl, "LONGEST_MESSAGE", 1 << 20)
    assert payload_values(b"[" + b"1," * (1 << 20) + b"1]") == "a message of more than 1 MiB"
    assert payload_values({b"a": b"1" * (2 << 20)}) == "a message of more than 1 MiB"
    assert payload_values(None) == "an empty message"
    assert payload_values(b"") == "an empty message"
    assert payload_values(b"[" * 100_000) == "a line that is no JSON"
    assert payload_values(b'{"a": 1') == "a line that is no JSON"
