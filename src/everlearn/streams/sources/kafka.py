"""Kafka: ``kafka://host:port/topic``, each message a row."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from everlearn.errors import InputError, SourceLostError, require
from everlearn.streams.sources.messages import WAIT_SECONDS, Address, Messages, MessageSource
from everlearn.streams.sources.parsing import Position

CONNECT_SECONDS = 10.0
STALL_SECONDS = 30.0  # without a message, though some are there
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
        self.closed = threading.Event()
        with contextlib.closing(_Reading(self)) as reading:
            reading.find_partitions()

    def close(self) -> None:
        """End what reads; it closes its own connection."""
        self.closed.set()

    def messages(self, position: Position | None) -> Iterator[tuple[Messages, Position]]:
        """Messages from the offsets of a position on."""
        with contextlib.closing(_Reading(self)) as reading:
            offsets = reading.begin({} if position is None else position["offsets"])
            while True:
                taken = reading.take(self.batch_messages)
                for message in taken:
                    offsets[message.partition()] = message.offset() + 1
                if not taken and not self.live:
                    return
                behind = {"offsets": {str(p): offset for p, offset in offsets.items()}}
                yield [(self._place(message), message.value()) for message in taken], behind

    def _place(self, message: Any) -> str:
        return f"{self.place} partition {message.partition()} offset {message.offset()}"


class _Reading:
    """One reading of a topic from some offsets on, with a client of its own.

    A client remembers which partitions it was told to hold back even when others are assigned to it, so that none is
    used for two readings.
    """

    def __init__(self, source: KafkaSource) -> None:
        self._kafka = require("confluent_kafka", "streams")
        self._topic, self._place, self._live = source.where.name, source.place, source.live
        self._closed = source.closed
        self._lost = ""
        self._consumer = self._connected(source.where)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def find_partitions(self) -> list[int]:
        """The numbers of the partitions of the topic."""
        try:
            topic = self._consumer.list_topics(self._topic, timeout=CONNECT_SECONDS).topics[self._topic]
        except self._kafka.KafkaException as error:
            raise SourceLostError(f"{self._place} cannot be reached: {error.args[0].str()}.") from error
        if topic.error is not None or not topic.partitions:
            reason = topic.error.str() if topic.error is not None else "it has no partitions"
            raise InputError(f"{self._place}: there is no such topic ({reason}).")
        return sorted(topic.partitions)

    def begin(self, known: dict[str, int]) -> dict[int, int]:
        """Start where the known offsets say, or at the first message; returns the offsets."""
        self._partitions = self.find_partitions()
        self._waiting: dict[int, deque[Any]] = {p: deque() for p in self._partitions}
        self._held: set[int] = set()
        self._starved = dict.fromkeys(self._partitions, 0.0)  # seconds of waiting since the latest message
        marks = {p: self._watermarks(p) for p in self._partitions}
        # The broker may have deleted old messages: then reading goes on at the first that it still has.
        offsets = {p: max(int(known.get(str(p), 0)), low) for p, (low, _) in marks.items()}
        self._next, self._end = dict(offsets), {p: high for p, (_, high) in marks.items()}
        self._consumer.assign([self._part(p, offset) for p, offset in offsets.items()])
        return offsets

    def take(self, limit: int) -> list[Any]:
        """The next messages: a fixed number from each partition, or all that it has."""
        # The same number from each, in the order of the partitions: so batches are a function of the offsets alone.
        quota = max(1, limit // len(self._partitions))
        # Wait for all partitions that have more: taking what came first would make batches depend on the network, and a
        # run that is repeated would learn in another order.
        while lacking := [p for p in self._partitions if len(self._waiting[p]) < quota and not self._at_end(p)]:
            # One partition may be far ahead of the others; without a bound it would fill the memory.
            self._hold_back(_MOST_HELD * quota)
            if not self._poll(quota * len(lacking), lacking) and self._live and any(self._waiting.values()):
                break
        if not any(self._waiting.values()) and self._live:
            self._poll(quota, [])
        taken: list[Any] = []
        for waiting in self._waiting.values():
            taken += [waiting.popleft() for _ in range(min(quota, len(waiting)))]
        return taken

    # -- the broker -------------------------------------------------------------------------------

    def _part(self, partition: int, *offset: int) -> Any:
        return self._kafka.TopicPartition(self._topic, partition, *offset)

    def _connected(self, where: Address) -> Any:
        options = {
            **settings(where),
            # Required by librdkafka, but nothing is ever committed to the group: the position is kept with the model.
            "group.id": "everlearn",
            "enable.auto.commit": False,
            # The only sign that a compacted partition has ended: its last offset may hold no message.
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "error_cb": self._on_error,
        }
        try:
            return self._kafka.Consumer(options)
        except self._kafka.KafkaException as error:
            raise InputError(f"{self._place}: {error.args[0].str()}. Options of librdkafka follow the ?.") from error

    def _on_error(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._lost = error.str()

    def _watermarks(self, partition: int) -> tuple[int, int]:
        """The first offset that a partition has, and the one behind its last."""
        try:
            low, high = self._consumer.get_watermark_offsets(self._part(partition), timeout=CONNECT_SECONDS)
        except self._kafka.KafkaException as error:
            raise SourceLostError(f"{self._place} cannot be reached: {error.args[0].str()}.") from error
        return low, high

    def _at_end(self, partition: int) -> bool:
        """Whether all that a partition had when reading began, or has now if it is live, was fetched."""
        if self._next[partition] >= self._end[partition] and self._live:
            _, high = self._consumer.get_watermark_offsets(self._part(partition), cached=True)
            self._end[partition] = max(high, self._end[partition])
        return self._next[partition] >= self._end[partition]

    def _hold_back(self, limit: int) -> None:
        """Fetch no more for partitions of which very many messages wait, until they have been taken."""
        full = {p for p in self._partitions if len(self._waiting[p]) > limit}
        # Resumed at half of the limit, not at it: otherwise pausing and resuming would alternate with each message.
        low = {p for p in self._held if len(self._waiting[p]) <= limit // 2}
        if full - self._held:
            self._consumer.pause([self._part(p) for p in full - self._held])
        if low:
            self._consumer.resume([self._part(p) for p in low])
        self._held = (self._held | full) - low

    def _poll(self, limit: int, lacking: list[int]) -> int:
        """Take in what comes within a short time; returns how many messages that were."""
        started = time.monotonic()
        found = self._consumer.consume(limit, timeout=WAIT_SECONDS)
        for p in lacking:
            self._starved[p] += time.monotonic() - started
        n = sum([self._take_in(message) for message in found])
        if n:
            self._lost = ""
        # A reading closes its own client: it ends here, in the thread that uses it.
        elif self._closed.is_set():
            raise SourceLostError(f"{self._place} was closed.")
        elif self._lost:
            raise SourceLostError(f"{self._place} cannot be reached: {self._lost}.")
        self._notice_stall()
        return n

    def _take_in(self, message: Any) -> bool:
        """Whether this is a message, and not what the client says in place of one."""
        error, p = message.error(), message.partition()
        if error is None:
            # Offsets rise within a partition. A broker that sends one again, or late, has had it learned already.
            if message.offset() < self._next[p]:
                return False
            self._waiting[p].append(message)
            self._next[p], self._starved[p] = message.offset() + 1, 0.0
        elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
            # The end of a compacted partition lies behind its last message; without this the partition would seem to
            # lack messages.
            self._next[p], self._starved[p] = max(self._next[p], message.offset()), 0.0
        elif not error.retriable():
            raise InputError(f"{self._place}: {error.str()}.")
        return error is None

    def _notice_stall(self) -> None:
        """Do not wait for ever for messages that are there."""
        for p, seconds in self._starved.items():
            if seconds > STALL_SECONDS:
                raise SourceLostError(
                    f"{self._place} has sent nothing of partition {p} for {seconds:.0f} seconds, though it holds the "
                    f"offsets {self._next[p]} to {self._end[p] - 1}."
                )
