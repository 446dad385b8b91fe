"""Events of a model as server-sent events: what happened, and how far it has come."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool

from everlearn.service.errors import BusyError, NoModelError
from everlearn.service.repository import ModelRepository

POLL_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 15.0
_MOST_AT_ONCE = 500


class EventStreams:
    """The open streams of events; closing ends them all."""

    def __init__(self, repository: ModelRepository, most: int) -> None:
        self._repository = repository
        self._most = most
        self._open = 0
        self.closing = False

    def check_room(self) -> None:
        """Refuse a stream too many."""
        if self._open >= self._most:
            raise BusyError(f"{self._open} event streams are open, which is the limit. Close one first.")

    async def stream(self, name: str, after: int) -> AsyncIterator[str]:
        """Events with ids above `after`, and a `progress` whenever the model has moved on."""
        # Many clients may have passed `check_room` before the first of their streams began: asked once more.
        if self._open >= self._most:
            yield "retry: 30000\n\nevent: busy\ndata: {}\n\n"
            return
        self._open += 1
        try:
            yield "retry: 1000\n\n"
            version, spoken = -1, time.monotonic()
            while not self.closing:
                # The store blocks; the event loop serves all other connections meanwhile.
                found = await run_in_threadpool(self._news, name, version, after)
                if found is None:
                    return
                version, after, messages = found
                # A comment now and then: proxies close connections on which nothing moves, and a client that has gone
                # is only noticed by writing to it.
                if messages or time.monotonic() - spoken > _KEEP_ALIVE_SECONDS:
                    yield "".join(messages) or ": still here\n\n"
                    spoken = time.monotonic()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._open -= 1

    def _news(self, name: str, version: int, after: int) -> tuple[int, int, list[str]] | None:
        try:
            entry = self._repository.entry(name)
        except NoModelError:
            return None
        # Nothing was committed since: one small query a poll, however many streams are open.
        if entry.version == version:
            return version, after, []
        events = self._repository.store.events(name, after=after, limit=_MOST_AT_ONCE)
        messages = [
            _message(
                event.kind,
                {**event.details, "row": event.row, "time": event.time, "value": _number(event.value)},
                event.id,
            )
            for event in events
        ]
        messages.append(_message("progress", {"rows": entry.n_rows, "version": entry.version, "time": entry.updated}))
        # More wait: with a version that no model has, the next poll reads on from the last id.
        complete = len(events) < _MOST_AT_ONCE
        return entry.version if complete else -1, events[-1].id if events else after, messages


def _message(kind: str, data: dict[str, Any], number: int | None = None) -> str:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {kind.replace(' ', '-')}\ndata: {json.dumps(data)}\n\n"


def _number(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None
