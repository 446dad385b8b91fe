"""Kafka: ``kafka://host:port/topic``, each message a row."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from everlearn.errors import InputError, SourceLostError, require
from everlearn.streams.messages import WAIT_SECONDS, Address, Messages, MessageSource
from everlearn.streams.source import Position

CONNECT_SECONDS = 10.0
_MOST_HELD = 16  # batches of one partition that wait for the others


def settings(where: Address) -> dict[str, Any]:
    """Settings of a client of the broker at an address; its options are passed on as they are."""
    host, port = where.host(9092)
    servers = where.hosts if "," in where.hosts else f"{host}:{port}"
    login = {"sasl.username": where.user, "sasl.password": where.password} if where.user else {}
    return {"bootstrap.servers": servers, **login, **where.options, "log_level": 0}


class KafkaSource(MessageSource):
    """A topic of Kafka; its position is the next offset of each partition.

    No consumer group is used: the position is kept with the model. A batch takes as many messages from each partition
    in turn, so that the same messages always come in the same order.
    """

    def _connect(self) -> None:
        self._kafka = require("confluent_kafka", "streams")
        self._lost = ""
        self._consumer = self._kafka.Consumer(
            {
                **settings(self.where),
                "group.id": "everlearn",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "error_cb": self._on_error,
            }
        )
        self._partitions = self._found_partitions()

    def _found_partitions(self) -> list[int]:
        try:
            topic = self._consumer.list_topics(self.where.name, timeout=CONNECT_SECONDS).topics[self.where.name]
        except self._kafka.KafkaException as error:
            raise SourceLostError(f"{self.place} cannot be reached: {error.args[0].str()}.") from error
        if topic.error is not None or not topic.partitions:
            reason = topic.error.str() if topic.error is not None else "it has no partitions"
            raise InputError(f"{self.place}: there is no such topic ({reason}).")
        return sorted(topic.partitions)

    def _on_error(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._lost = error.str()

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def messages(self, position: Position | None) -> Iterator[tuple[Messages, Position]]:
        """Messages from the offsets of a position on."""
        known = {} if position is None else position["offsets"]
        marks = {p: self._watermarks(p) for p in self._partitions}
        offsets = {p: max(int(known.get(str(p), 0)), low) for p, (low, _) in marks.items()}
        self._next, self._end = dict(offsets), {p: high for p, (_, high) in marks.items()}
        self._consumer.assign([self._kafka.TopicPartition(self.where.name, p, o) for p, o in offsets.items()])
        self._waiting: dict[int, deque[Any]] = {p: deque() for p in self._partitions}
        self._held: set[int] = set()
        while True:
            taken = self._taken()
            for message in taken:
                offsets[message.partition()] = message.offset() + 1
            if not taken and not self.live:
                return
            behind = {"offsets": {str(p): offset for p, offset in offsets.items()}}
            yield [(self._place(message), message.value()) for message in taken], behind

    def _watermarks(self, partition: int) -> tuple[int, int]:
        """The first offset that a partition has, and the one behind its last."""
        part = self._kafka.TopicPartition(self.where.name, partition)
        try:
            low, high = self._consumer.get_watermark_offsets(part, timeout=CONNECT_SECONDS)
        except self._kafka.KafkaException as error:
            raise SourceLostError(f"{self.place} cannot be reached: {error.args[0].str()}.") from error
        return low, high

    def _place(self, message: Any) -> str:
        return f"{self.place} partition {message.partition()} offset {message.offset()}"

    def _taken(self) -> list[Any]:
        """The next messages: a fixed number from each partition, or all that it has."""
        quota = max(1, self.batch_messages // len(self._partitions))
        while lacking := [p for p in self._partitions if len(self._waiting[p]) < quota and not self._at_end(p)]:
            self._hold_back(_MOST_HELD * quota)
            if not self._poll(quota * len(lacking)) and self.live and any(self._waiting.values()):
                break
        if not any(self._waiting.values()) and self.live:
            self._poll(quota)
        taken: list[Any] = []
        for p in self._partitions:
            waiting = self._waiting[p]
            taken += [waiting.popleft() for _ in range(min(quota, len(waiting)))]
        return taken

    def _at_end(self, partition: int) -> bool:
        """Whether all that a partition had when reading began, or has now if it is live, was fetched."""
        if self._next[partition] >= self._end[partition] and self.live:
            part = self._kafka.TopicPartition(self.where.name, partition)
            self._end[partition] = max(self._consumer.get_watermark_offsets(part, cached=True)[1], self._end[partition])
        return self._next[partition] >= self._end[partition]

    def _hold_back(self, limit: int) -> None:
        """Fetch no more for partitions of which very many messages wait, until they have been taken."""
        full = {p for p in self._partitions if len(self._waiting[p]) > limit}
        low = {p for p in self._held if len(self._waiting[p]) <= limit // 2}
        if full - self._held:
            self._consumer.pause([self._kafka.TopicPartition(self.where.name, p) for p in full - self._held])
        if low:
            self._consumer.resume([self._kafka.TopicPartition(self.where.name, p) for p in low])
        self._held = (self._held | full) - low

    def _poll(self, limit: int) -> int:
        """Take in what comes within a short time; returns how many messages that were."""
        found = self._consumer.consume(limit, timeout=WAIT_SECONDS)
        n = 0
        for message in found:
            error = message.error()
            if error is None:
                self._waiting[message.partition()].append(message)
                self._next[message.partition()] = message.offset() + 1
                n += 1
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._next[message.partition()] = max(self._next[message.partition()], message.offset())
            elif not error.retriable():
                raise InputError(f"{self.place}: {error.str()}.")
        if not found and self._lost:
            reason, self._lost = self._lost, ""
            raise SourceLostError(f"{self.place} cannot be reached: {reason}.")
        return n
