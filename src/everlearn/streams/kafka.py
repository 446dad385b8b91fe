"""Kafka: ``kafka://host:port/topic``, each message a row."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from everlearn.errors import InputError, SourceLostError, require
from everlearn.streams.messages import BATCH_MESSAGES, WAIT_SECONDS, Address, Messages, MessageSource
from everlearn.streams.source import Position

CONNECT_SECONDS = 10.0


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
        offsets = {p: int(known.get(str(p), -1)) for p in self._partitions}
        start = [
            self._kafka.TopicPartition(self.where.name, p, offset if offset >= 0 else self._kafka.OFFSET_BEGINNING)
            for p, offset in offsets.items()
        ]
        self._consumer.assign(start)
        self._waiting: dict[int, deque[Any]] = {p: deque() for p in self._partitions}
        self._ended: set[int] = set()
        while True:
            taken = self._taken()
            for message in taken:
                offsets[message.partition()] = message.offset() + 1
            if not taken and not self.live:
                return
            behind = {"offsets": {str(p): offset for p, offset in offsets.items() if offset >= 0}}
            yield [(self._place(message), message.value()) for message in taken], behind

    def _place(self, message: Any) -> str:
        return f"{self.place} partition {message.partition()} offset {message.offset()}"

    def _taken(self) -> list[Any]:
        """The next messages: a fixed number from each partition, or all that it has."""
        quota = max(1, BATCH_MESSAGES // len(self._partitions))
        while lacking := [p for p in self._partitions if len(self._waiting[p]) < quota and p not in self._ended]:
            self._pause_others(lacking)
            if not self._poll(quota * len(lacking)) and self.live and any(self._waiting.values()):
                break
        if not any(self._waiting.values()) and self.live:
            self._poll(quota)
        taken: list[Any] = []
        for p in self._partitions:
            waiting = self._waiting[p]
            taken += [waiting.popleft() for _ in range(min(quota, len(waiting)))]
        return taken

    def _pause_others(self, lacking: list[int]) -> None:
        """Fetch no more for partitions that already have enough."""
        parts = {p: self._kafka.TopicPartition(self.where.name, p) for p in self._partitions}
        self._consumer.pause([part for p, part in parts.items() if p not in lacking and p not in self._ended])
        self._consumer.resume([parts[p] for p in lacking])

    def _poll(self, limit: int) -> int:
        """Take in what comes within a short time; returns how many messages that were."""
        found = self._consumer.consume(limit, timeout=WAIT_SECONDS)
        n = 0
        for message in found:
            error = message.error()
            if error is None:
                self._waiting[message.partition()].append(message)
                self._ended.discard(message.partition())
                n += 1
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
            elif not error.retriable():
                raise InputError(f"{self.place}: {error.str()}.")
        if not found and self._lost:
            reason, self._lost = self._lost, ""
            raise SourceLostError(f"{self.place} cannot be reached: {reason}.")
        return n
