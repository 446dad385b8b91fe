"""Connections: how many there may be, and how long each may take until a request has begun.

A server that waits for the end of the headers as long as a client likes can be kept busy with a thousand connections
that send a byte now and then. The limits hold before a token is looked at.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from everlearn.service.proxies import is_trusted
from everlearn.service.settings import Limits, Network, Settings


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for the beginning of each request, and limits of the number of connections."""

    limits: Limits
    trusted: tuple[Network, ...]
    addresses: Counter[str]

    _address: str | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Admit a connection, or refuse it in a word."""
        # First: a refusal needs the transport, and uvicorn's own bookkeeping takes the connection off its list at the
        # end.
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        # Before a byte is read or a token looked at: a thousand connections that send a header byte now and then could
        # otherwise keep everybody out.
        if self.addresses.total() >= self.limits.connections:
            self._refuse("The service has as many connections open as it takes. Try again later.")
        # The connections of a trusted proxy are those of many clients.
        elif self.addresses[address] >= self.limits.connections_per_address and not is_trusted(address, self.trusted):
            self._refuse(
                f"There are {self.addresses[address]} connections from this address, which is the limit. Close some, "
                "or use each for several requests."
            )
        else:
            self._address = address
            self.addresses[address] += 1
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a connection that has ended."""
        self._drop_deadline()
        if self._address is not None:
            self.addresses[self._address] -= 1
            # An address without connections is dropped: otherwise the table would grow with every client that ever
            # came.
            if not self.addresses[self._address]:
                del self.addresses[self._address]
            self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the deadline ends when a request has begun, not with any byte."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        # uvicorn makes the cycle when the headers are complete. A byte alone must not move the deadline: a client could
        # send one every few seconds.
        if self.cycle is not None and not self.cycle.response_complete:
            self._drop_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in JSON as everything else is."""
        self._refuse(msg, "400 Bad Request")

    def on_response_complete(self) -> None:
        """Wait for the next request of this connection, but not for ever."""
        self._set_deadline()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:  # the next one was there already
            self._drop_deadline()

    def _set_deadline(self) -> None:
        self._drop_deadline()
        self._deadline = self.loop.call_later(self.limits.header_seconds, self._end)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        if not self.transport.is_closing():
            # abort, because close would wait until a client that reads nothing has read what was sent.
            self.transport.abort()

    def _refuse(self, reason: str, status: str = "503 Service Unavailable") -> None:
        body = json.dumps({"detail": reason}).encode()
        wait = "retry-after: 5\r\n" if status.startswith("503") else ""
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{wait}"
            f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def limited_protocol(settings: Settings) -> type[LimitedProtocol]:
    """A protocol for one server: its connections share limits and counts."""
    own = {"limits": settings.limits, "trusted": settings.networks(), "addresses": Counter()}
    return type("LimitedProtocol", (LimitedProtocol,), own)
