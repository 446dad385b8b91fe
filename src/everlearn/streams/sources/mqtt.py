"""MQTT: ``mqtt://host:port/topic``, each message a row, learned at least once."""

from __future__ import annotations

import contextlib
import queue
import secrets
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from everlearn.errors import InputError, SourceLostError, require
from everlearn.streams.sources.jsonl import payload_values
from everlearn.streams.sources.messages import WAIT_SECONDS, Address, Messages, MessageSource
from everlearn.streams.sources.parsing import Position
from everlearn.streams.sources.schema import ALL_NUMBERS, Choice

CONNECT_SECONDS = 10.0
QUIET_SECONDS = 1.0  # without messages after which all seem to have come


def client_of(where: Address, *, session: str = "", **options: Any) -> Any:
    """A client for the broker at an address; ``mqtts`` is encrypted. A named session outlives the client."""
    mqtt = require("paho.mqtt.client", "streams")
    # Without a session the name is random: a broker disconnects a client when another of its name comes.
    name = where.options.get("client") or session or f"everlearn-{secrets.token_hex(6)}"
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        # 23 characters are all that a broker of MQTT 3.1.1 has to accept.
        client_id=name[:23],
        clean_session=not session,
        # The runner waits and says so; the client's own attempts would be silent.
        reconnect_on_failure=False,
        **options,
    )
    if where.user:
        client.username_pw_set(where.user, where.password)
    if where.scheme == "mqtts":
        client.tls_set()
    return client


def connect(client: Any, where: Address) -> None:
    """Connect, or say why not; the client's thread runs afterwards."""
    answers: queue.Queue[Any] = queue.Queue()
    client.on_connect = lambda client, data, flags, reason, properties: answers.put(reason)
    host, port = where.host(8883 if where.scheme == "mqtts" else 1883)
    try:
        client.connect(host, port)
        client.loop_start()
        reason = answers.get(timeout=CONNECT_SECONDS)
    except (OSError, queue.Empty) as error:
        client.loop_stop()
        raise SourceLostError(f"{where} cannot be reached: {error or 'it does not answer'}.") from error
    if reason.is_failure:
        client.loop_stop()
        raise InputError(f"{where}: the broker refuses the connection: {reason}.")


class MqttSource(MessageSource):
    """Messages of an MQTT topic, which may have the wildcards ``+`` and ``#``.

    A message is acknowledged when it is committed. The broker keeps what comes while the program is away if there is
    a session, and sends again what was not acknowledged: a message may be learned twice after a crash, never lost.

    Parameters
    ----------
    where : Address
        Broker and topic.
    choice : Choice
        Which columns are asked for.
    session : str
        Name of the session; empty for none.
    **options
        As for MessageSource.
    """

    replayable = False

    def __init__(self, where: Address, choice: Choice = ALL_NUMBERS, *, session: str = "", **options: Any) -> None:
        self._session = session
        self._number = 0
        self._unlearned: deque[Any] = deque()
        self._unacknowledged: deque[tuple[int, Any]] = deque()
        super().__init__(where, choice, **options)

    def _connect(self) -> None:
        # Bounded: when learning falls behind, the thread of the client waits here and the connection holds the broker
        # back.
        self._arrived: queue.Queue[Any] = queue.Queue(4 * self.batch_messages)
        self._lost = False
        # Acknowledged by hand, after the commit: until then the broker would send a message again.
        self._client = client_of(self.where, session=self._session, manual_ack=True)
        self._client.on_message = lambda client, data, message: self._arrived.put(message)
        self._client.on_disconnect = self._on_disconnect
        connect(self._client, self.where)
        # Quality 1, at least once: with 0 a broker need not keep anything for a session that is away.
        self._client.subscribe(self.where.name, qos=1)

    def _on_disconnect(self, *_: Any) -> None:
        self._lost = True

    def close(self) -> None:
        """Disconnect; the session stays at the broker."""
        with contextlib.suppress(Exception):
            self._client.disconnect()
        self._client.loop_stop()

    def messages(self, position: Position | None) -> Iterator[tuple[Messages, Position]]:
        """Messages as they come; the position says only how many."""
        if self._lost:
            # The broker sends again what was not acknowledged; what is held here would be learned twice.
            self.close()
            self._unlearned.clear()
            self._unacknowledged.clear()
            self._connect()
        quiet_since = time.monotonic()
        while True:
            found = self._next()
            if found or self._unacknowledged:
                quiet_since = time.monotonic()
            elif not self.live and time.monotonic() - quiet_since > QUIET_SECONDS:
                return
            for message in found:
                self._number += 1
                self._unacknowledged.append((self._number, message))
            yield [(f"{self.place} {message.topic}", message.payload) for message in found], {"message": self._number}

    def acknowledge(self, position: Position) -> None:
        """Tell the broker that messages are safe."""
        while self._unacknowledged and self._unacknowledged[0][0] <= position.get("message", 0):
            _, message = self._unacknowledged.popleft()
            self._client.ack(message.mid, message.qos)

    def _next(self) -> list[Any]:
        """What has arrived, or nothing after a while."""
        found = list(self._unlearned)
        self._unlearned.clear()
        limit = time.monotonic() + WAIT_SECONDS
        while len(found) < self.batch_messages:
            try:
                # Wait for the first message only; then take what is there.
                found.append(self._arrived.get(timeout=0.0 if found else max(0.0, limit - time.monotonic())))
            except queue.Empty:
                break
        if not found and self._lost:
            raise SourceLostError(f"{self.place} cannot be reached: the connection was lost.")
        return found

    def _first_records(self) -> list[dict[str, Any]]:
        """The values of the first messages, which are kept to be learned."""
        while True:
            self._unlearned.extend(self._next())
            found = [payload_values(message.payload) for message in self._unlearned]
            records = [record for record in found if isinstance(record, dict)]
            if records:
                return records
            if not self.live and self._unlearned:
                raise InputError(f"{self.place} holds no message that can be read as a row.")
