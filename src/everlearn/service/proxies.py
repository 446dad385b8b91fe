"""ASGI middleware for a service behind a proxy: the path that the proxy adds, and whom the request comes from."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from everlearn.service.security import App, Receive, Scope, Send
from everlearn.service.settings import Network, Settings


class ProxyMiddleware:
    """Takes off the root path, and believes trusted proxies what they say of the client.

    Parameters
    ----------
    app : ASGI application
        The application.
    settings : Settings
        Root path and trusted proxies.
    """

    def __init__(self, app: App, settings: Settings) -> None:
        self.app = app
        self.root_path = settings.root_path
        self.trusted = settings.networks()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on one request as if it had come directly."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.root_path and scope["path"] == self.root_path:
            # The page names its files relative to the folder that it lies in, which needs the slash.
            await _redirect(send, f"{self.root_path}/")
            return
        if self.root_path and scope["path"].startswith(f"{self.root_path}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self.root_path)}
            scope["raw_path"] = (scope.get("raw_path") or b"").removeprefix(self.root_path.encode())
        # The address of the connection decides whom to believe, never a header: anyone can write X-Forwarded-For.
        peer = (scope.get("client") or ("", 0))[0]
        if self.trusted and is_trusted(peer, self.trusted):
            scope = self._from_behind(scope, peer)
        await self.app(scope, receive, send)

    def _from_behind(self, scope: Scope, peer: str) -> Scope:
        """The request as the proxy got it."""
        said: dict[bytes, list[str]] = {}
        for key, value in scope["headers"]:
            said.setdefault(key.lower(), []).extend(part.strip() for part in value.decode("latin-1").split(","))
        found = {**scope, "client": (client_behind(peer, said.get(b"x-forwarded-for", []), self.trusted), 0)}
        # The last entry is the one that the nearest proxy has added.
        if said.get(b"x-forwarded-proto", [""])[-1] in ("http", "https"):
            found["scheme"] = said[b"x-forwarded-proto"][-1]
        host = said.get(b"x-forwarded-host", [""])[-1]
        if host:
            others = [(key, value) for key, value in scope["headers"] if key.lower() != b"host"]
            found["headers"] = [*others, (b"host", host.encode("latin-1"))]
        return found


def client_behind(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Address of the client: the last one of X-Forwarded-For that no trusted proxy has.

    A client can write what it likes to the left of what the proxies add, so that the list is read from its end.
    """
    client = peer
    for entry in reversed(forwarded):
        if not is_trusted(client, trusted):
            break
        address = _address(entry)
        if address is None:
            break
        client = address
    return client


def is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    """Whether an address is one of the proxies."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None) or found  # IPv4 over a socket for IPv6
    return any(mapped in network for network in trusted)


def _address(entry: str) -> str | None:
    """The address in an entry of X-Forwarded-For, which may have a port; None if there is none."""
    bare = entry.strip("[]") if entry.count(":") != 1 else entry.partition(":")[0]
    bare = bare.partition("]")[0]
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return None


async def _redirect(send: Send, place: str) -> None:
    headers = [(b"location", place.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 308, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
