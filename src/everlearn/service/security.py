"""ASGI middleware: tokens, host and origin checks, rate and body limits, and security headers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from everlearn.service.settings import Settings, Token

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/", "/health", "/livez", "/readyz", "/version", "/openapi.json", "/docs", "/favicon.svg"})
"""Paths without data of a model, which need no token; those under /static/ neither."""

_ASKING = frozenset({"score", "predict", "condition", "sample", "density"})
"""Last parts of the paths that take a body and change nothing."""

# Matched whole: "localhost.evil.example" and "localhost, evil" begin alike.
_LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_MOST_CLIENTS = 10_000
# plotly.js makes an empty style sheet, which it fills by script, and sets style attributes.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; img-src 'self' data:; "
        f"style-src-elem 'self' {_EMPTY_STYLE}; style-src-attr 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityMiddleware:
    """Refuses what must not reach the application.

    Parameters
    ----------
    app : ASGI application
        The application.
    settings : Settings
        Tokens and limits.
    """

    def __init__(self, app: App, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.rates = RateLimiter()
        # By a digest: how long the look takes tells nothing of the secrets.
        self._tokens = {_digest(token.secret): token for token in settings.all_tokens}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # latin-1 decodes every byte: a header cannot make this raise.
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        token = self._token(headers)
        scope["everlearn.token"] = "" if token is None else token.name  # for the access log
        refusal = self.refusal(scope, headers, token)
        if refusal is not None:
            await refuse(_with_headers(send), refusal)
            return
        limits = self.settings.limits
        most = limits.model_bytes if scope["path"].endswith("/merge") else limits.body_bytes
        await self.app(scope, LimitedBody(receive, most, limits.body_seconds), _with_headers(send))

    def refusal(self, scope: Scope, headers: dict[str, str], token: Token | None) -> Refusal | None:
        """Why a request is not handed on."""
        if token is not None and token.rate is not None:
            client, rate = f"token {token.name}", token.rate
        else:
            client, rate = (scope.get("client") or ("", 0))[0], self.settings.limits.requests_per_second
        # The rate comes first: refusals cost too, and a token could otherwise be guessed as fast as the machine
        # answers.
        wait = self.rates.wait(client, rate)
        if wait > 0.0:
            why = f"Too many requests: at most {rate:g} per second. Wait {wait:.1f} s, or send more rows at once."
            return Refusal(429, why, math.ceil(wait))
        host = headers.get("host", "")
        # Against DNS rebinding: a page of another site whose name is pointed at 127.0.0.1 has the browser send its own
        # host name.
        if not self._tokens and not _LOCAL_HOST.fullmatch(host):
            return Refusal(
                421,
                f"This service answers to localhost, not to {host[:80]!r}. A service with a token answers to all.",
            )
        origin = headers.get("origin")
        # Against requests from pages of other sites. Programs send no Origin; a browser always does for a POST.
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return Refusal(403, f"Requests from pages of {origin[:80]!r} are refused.")
        if not self._tokens or _is_open(scope["path"]):
            return None
        if token is None:
            return Refusal(401, "Send the token of this service: Authorization: Bearer TOKEN")
        if token.may == "write" or _changes_nothing(scope):
            return None
        return Refusal(403, "This token is for questions only. Changes need a token that may write.")

    def _token(self, headers: dict[str, str]) -> Token | None:
        """The token that a request has, if it is one of this service."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        return self._tokens.get(_digest(given.strip())) if kind.lower() == "bearer" else None


class Refusal(NamedTuple):
    """Status and reason for a request that is not handed on, and the seconds after which it may be."""

    status: int
    reason: str
    retry_after: int | None = None


class RateLimiter:
    """A bucket of requests for each client address or token, refilled at a steady rate."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, rate: float, now: float | None = None) -> float:
        """Take one request of a client; returns the seconds to wait if its bucket is empty."""
        now = time.monotonic() if now is None else now
        most = max(2.0 * rate, 1.0)
        # Taken out and put in again behind the others: the first of the table is the one that has been quiet for
        # longest.
        left, since = self._buckets.pop(client, (most, now))
        left = min(most, left + (now - since) * rate)
        taken = left >= 1.0
        self._buckets[client] = (left - taken, now)
        # Who is dropped begins with a full bucket: the table is bounded at the price of a burst.
        if len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / rate


class LimitedBody:
    """The body of a request, refused when it grows too large or comes too slowly."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive = receive
        self._most = most
        self._left = most
        self._deadline = time.monotonic() + seconds
        self._complete = False

    async def __call__(self) -> Message:
        """The next part of it."""
        if self._complete:
            return await self._receive()
        try:
            # One deadline for the whole body and not one for each part: a byte a second would otherwise never end.
            message = await asyncio.wait_for(self._receive(), max(self._deadline - time.monotonic(), 0.001))
        except TimeoutError:
            raise HTTPException(408, "The request came too slowly. Send fewer rows at once.") from None
        self._left -= len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._left < 0:
            raise HTTPException(413, f"The body is larger than {self._most:,} bytes. Send fewer rows at once.")
        return message


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _changes_nothing(scope: Scope) -> bool:
    return scope["method"] in ("GET", "HEAD") or (
        scope["method"] == "POST" and scope["path"].rpartition("/")[2] in _ASKING
    )


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith("/static/")


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {key.lower() for key, _ in message["headers"]}
            extra = {"cache-control": "no-store", **_HEADERS}
            added = [(k.encode(), v.encode()) for k, v in extra.items() if k.encode() not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sending


async def refuse(send: Send, refusal: Refusal) -> None:
    """Answer with the reason, and close the connection."""
    status = refusal.status
    body = json.dumps({"detail": refusal.reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    # The body was not read, so that the connection cannot be used again.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
