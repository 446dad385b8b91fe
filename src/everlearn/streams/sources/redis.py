"""Redis Streams: ``redis://host:port/stream``, each entry a row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from everlearn.errors import InputError, SourceLostError, require
from everlearn.streams.sources.messages import WAIT_SECONDS, Address, Messages, MessageSource
from everlearn.streams.sources.parsing import Position


def connected(where: Address) -> Any:
    """A client of the broker at an address; the option ``db`` chooses a database."""
    redis = require("redis", "streams")
    host, port = where.host(6379)
    options = {"username": where.user, "password": where.password, "db": int(where.options.get("db", "0"))}
    return redis.Redis(host=host, port=port, socket_connect_timeout=5, socket_timeout=30, **options)


@contextlib.contextmanager
def explained(place: str) -> Iterator[None]:
    """The client's errors in our words."""
    errors = require("redis", "streams").exceptions
    try:
        yield
    except errors.AuthenticationError as error:
        raise InputError(f"{place}: the broker refuses the user or password: {error}.") from error
    except (errors.ConnectionError, errors.TimeoutError, errors.BusyLoadingError) as error:
        raise SourceLostError(f"{place} cannot be reached: {str(error).rstrip('.')}.") from error
    except errors.ResponseError as error:
        raise InputError(f"{place}: {error}. Is this the name of a stream?") from error


class RedisSource(MessageSource):
    """A Redis stream; its position is the id of the latest entry."""

    def _connect(self) -> None:
        self._client = connected(self.where)
        with explained(self.place):
            self._client.ping()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def messages(self, position: Position | None) -> Iterator[tuple[Messages, Position]]:
        """Entries after an id."""
        # Ids of entries are above 0-0: this reads from the first entry that the stream still has.
        last = "0" if position is None else str(position["id"])
        wait = int(WAIT_SECONDS * 1000) if self.live else None
        while True:
            with explained(self.place):
                found = self._client.xread({self.where.name: last}, count=self.batch_messages, block=wait)
            # Ids rise. An entry that is sent again, or late, was learned already.
            entries = []
            for entry in _entries(found):
                if _id(entry[0]) > _id(last):
                    entries.append(entry)
                    last = entry[0].decode()
            if not entries and not self.live:
                return
            yield [(f"{self.place} {id.decode()}", fields) for id, fields in entries], {"id": last}


def _id(text: bytes | str) -> tuple[int, ...]:
    """The id of an entry as numbers: milliseconds, and a number among those of one millisecond."""
    return tuple(map(int, (text.decode() if isinstance(text, bytes) else text).split("-")))


def _entries(found: Any) -> list[Any]:
    """The entries in a reply, which newer protocols give as a mapping."""
    if not found:
        return []
    if isinstance(found, dict):
        return [entry for part in next(iter(found.values())) for entry in part]
    return list(found[0][1])
