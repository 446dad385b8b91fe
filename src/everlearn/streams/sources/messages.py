"""What the brokers have in common: each message is a row, and the columns are found from the first messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from everlearn.errors import InputError
from everlearn.streams.sources.jsonl import NewColumns, batch_of_messages, columns_of, payload_values
from everlearn.streams.sources.parsing import Batch, Position
from everlearn.streams.sources.schema import ALL_NUMBERS, LOOK_ROWS, Choice, Columns
from everlearn.streams.sources.source import Source

WAIT_SECONDS = 0.2

Messages = list[tuple[str, Any]]


class Address(NamedTuple):
    """``scheme://user:password@host:port/name?option=value``; nothing in the name is special."""

    scheme: str
    user: str | None
    password: str | None
    hosts: str
    name: str
    options: dict[str, str]

    def host(self, default_port: int) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.hosts.rpartition(":") if ":" in self.hosts else (self.hosts, "", "")
        if port and not port.isdigit():
            raise InputError(f"The port in {self.scheme}://{self.hosts} must be a number; got {port!r}.")
        return host or "127.0.0.1", int(port or default_port)

    def __str__(self) -> str:
        # Without user and password: this text stands in messages, logs and the state file.
        return f"{self.scheme}://{self.hosts}/{self.name}"


def address(text: str) -> Address:
    """Take an address apart."""
    scheme, _, rest = text.partition("://")
    rest, _, query = rest.partition("?")
    hosts, _, name = rest.partition("/")
    # From the right, as a password may hold an @ that was not escaped.
    login, _, hosts = hosts.rpartition("@")
    user, _, password = login.partition(":")
    if not name:
        kind = {"redis": "stream", "kafka": "topic"}.get(scheme, "topic")
        raise InputError(f"{text} names no {kind}. Write {scheme}://host/{kind}.")
    return Address(
        scheme, unquote(user) or None, unquote(password) or None, hosts, unquote(name), dict(parse_qsl(query))
    )


class MessageSource(Source):
    """Messages of a broker as rows: JSON objects or lists, numbers with commas between them, or fields.

    Parameters
    ----------
    where : Address
        Broker, and the name of the stream or topic.
    choice : Choice
        Which columns are asked for.
    stop_at_end : bool, default=False
        Whether to stop when all that is there has been read, in place of waiting for more.
    """

    batch_messages = 4096
    """Messages in a batch at most."""

    def __init__(self, where: Address, choice: Choice = ALL_NUMBERS, *, stop_at_end: bool = False) -> None:
        self.where = where
        self.place = str(where)
        self.live = not stop_at_end
        self._connect()
        kinds: dict[str, str] = {}
        if choice.known:
            names, labels = list(choice.columns or ()), choice.labels
            columns = Columns(names, {}, choice.target, labels, choice.time, choice.time_format)
        # All columns are named: no message is waited for, and a run can start before its senders do.
        elif choice.is_plain:
            columns = Columns(list(choice.columns or ()), {})
        else:
            columns, kinds = columns_of(self.place, self._first_records(), choice)
        self._new = NewColumns(columns, kinds, choice)

    @property
    def columns(self) -> Columns:  # type: ignore[override]
        """The columns that are read; more when some appear and are asked for."""
        return self._new.columns

    def batches(self, position: Position | None = None) -> Iterator[Batch]:
        """Batches from a position on."""
        for messages, behind in self.messages(position):
            if messages:
                yield batch_of_messages(self.place, messages, self._new)._replace(position=behind)

    def _connect(self) -> None:
        raise NotImplementedError

    def messages(self, position: Position | None) -> Iterator[tuple[Messages, Position]]:
        """Places and payloads from a position on, and the position behind them; none when none came for a while."""
        raise NotImplementedError

    def _first_records(self) -> list[dict[str, Any]]:
        """The values of the first messages that have any; waits for one."""
        for messages, _ in self.messages(None):
            found = [payload_values(payload) for _, payload in itertools.islice(messages, LOOK_ROWS)]
            records = [record for record in found if isinstance(record, dict)]
            if records:
                return records
        raise InputError(f"{self.place} holds no message that can be read as a row.")
