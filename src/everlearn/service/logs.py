"""Logs of the service: a line of text or of JSON for each entry, with the id of the request that it belongs to."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import re
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from everlearn.service.security import App, Message, Receive, Refusal, Scope, Send, refuse
from everlearn.service.settings import Settings

ACCESS = logging.getLogger("everlearn.access")
REQUEST_ID: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")
"""Id of the request that is being answered; empty outside of one. Threads that work on a question have it, too."""

# An id of the client stands in the log: letters, digits and dashes cannot forge a line.
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST_PATH = 300
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class RequestMiddleware:
    """ASGI middleware that gives each request an id, and writes the access log.

    The id is the client's own, from the header X-Request-ID, where that is plain; the answer has it in the same header.

    Parameters
    ----------
    app : ASGI application
        The application.
    access_log : bool
        Whether to write a line for each request.
    """

    def __init__(self, app: App, access_log: bool) -> None:
        self.app = app
        self.access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value.decode("latin-1") for key, value in scope["headers"] if key == b"x-request-id"), "")
        request_id = given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex
        # It is not taken back: the server logs an error after the application has ended, in the same context.
        REQUEST_ID.set(request_id)
        started, status, size, begun = time.perf_counter(), 500, 0, False

        async def send_and_note(message: Message) -> None:
            nonlocal status, size, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            # The server stops, and has waited as long as it does; it would log a traceback.
            if not begun:
                await refuse(send_and_note, Refusal(503, "The service is stopping. Ask again in a moment.", 1))
        finally:
            if self.access_log:
                _log_access(scope, status, size, time.perf_counter() - started)


def _log_access(scope: Scope, status: int, size: int, seconds: float) -> None:
    # Quoted again: a path may hold ends of lines, and a line of the log is one request.
    path = quote(scope["path"])[:_LONGEST_PATH]
    fields = {
        "method": scope["method"],
        "path": path,
        "status": status,
        "bytes": size,
        "seconds": round(seconds, 6),
        "client": (scope.get("client") or ("", 0))[0],
        "token": scope.get("everlearn.token", ""),
    }
    ACCESS.info("%(method)s %(path)s %(status)d", fields, extra={"fields": fields})


class TextFormat(logging.Formatter):
    """Time, level and message, then what else is known as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """A line; a traceback follows on lines of its own."""
        known = {k: v for k, v in getattr(record, "fields", {}).items() if k not in ("method", "path", "status")}
        rest = "".join(f" {key}={value}" for key, value in {**known, "id": REQUEST_ID.get()}.items() if value != "")
        text = f"{_time(record)} {record.levelname} {record.getMessage()}{rest}"
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        # Control characters of a path could move the cursor of the terminal that shows the log, or end the line.
        return _CONTROL.sub("?", text.replace("\n", " ")) + trace


class JsonFormat(logging.Formatter):
    """One JSON object on a line."""

    def format(self, record: logging.LogRecord) -> str:
        """A line."""
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if REQUEST_ID.get():
            entry["request_id"] = REQUEST_ID.get()
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configure(settings: Settings) -> None:
    """Send what everlearn and its HTTP server log to the standard error stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormat() if settings.log_format == "json" else TextFormat())
    for name in ("everlearn", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(settings.log_level.upper())
        logger.propagate = False
    ACCESS.setLevel(logging.INFO)
