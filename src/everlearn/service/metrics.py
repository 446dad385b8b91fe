"""Counts of the service in the text format of Prometheus."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable

from everlearn.service.repository import Desk
from everlearn.service.security import App, Message, Receive, Scope, Send

_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
_HELP = {
    "everlearn_requests_total": ("counter", "Requests answered."),
    "everlearn_request_seconds": ("histogram", "Time from the request to the end of the answer."),
    "everlearn_rows": ("gauge", "Rows that a model has learned, those merged into it included."),
    "everlearn_rows_learned_total": ("counter", "Rows learned one by one."),
    "everlearn_rows_waiting": ("gauge", "Rows on the disk that are still to be learned."),
    "everlearn_novelties_total": ("counter", "Rows that were novel."),
    "everlearn_changes_total": ("counter", "Changes noticed."),
    "everlearn_bad_rows_total": ("counter", "Rows that could not be learned."),
    "everlearn_model_bytes": ("gauge", "Size of a model in the state file."),
    "everlearn_resident_bytes": ("gauge", "Most memory that the process has used."),
    "everlearn_trouble": ("gauge", "1 while learning is stopped by a full or failing disk."),
}


class Requests:
    """Counts of requests by route and status, and their times."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.times: Counter[float] = Counter()
        self.seconds = 0.0

    def add(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that was answered; the time of an event stream says nothing."""
        route = getattr(scope.get("route"), "path", "other")
        self.counts[scope["method"] if route != "other" else "other", route, status] += 1
        if not route.endswith("/events"):
            self.times[next(limit for limit in _BUCKETS if seconds <= limit)] += 1
            self.seconds += seconds


class Counting:
    """Middleware that counts the requests."""

    def __init__(self, app: App, requests: Requests) -> None:
        self.app = app
        self.requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            self.requests.add(scope, status, time.perf_counter() - started)


def exposition(desk: Desk, requests: Requests) -> str:
    """All metrics as text."""
    samples = [*_of_requests(requests), *_of_models(desk), *_of_process(desk)]
    lines: list[str] = []
    for family, (kind, text) in _HELP.items():
        lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
        lines += [line for name, line in samples if name == family]
    return "\n".join(lines) + "\n"


def _of_requests(requests: Requests) -> Iterable[tuple[str, str]]:
    family = "everlearn_requests_total"
    for (method, path, status), n in sorted(requests.counts.items()):
        yield family, f'{family}{{method="{method}",path="{path}",status="{status}"}} {n}'
    family, total = "everlearn_request_seconds", 0
    for limit in _BUCKETS:
        total += requests.times[limit]
        yield family, f'{family}_bucket{{le="{"+Inf" if limit == math.inf else f"{limit:g}"}"}} {total}'
    yield family, f"{family}_sum {requests.seconds:.6f}"
    yield family, f"{family}_count {total}"


def _of_models(desk: Desk) -> Iterable[tuple[str, str]]:
    for entry in desk.store.models():
        totals = desk.store.totals(entry.name)
        values = {
            "everlearn_rows": entry.n_rows,
            "everlearn_rows_learned_total": totals.get("rows", 0),
            "everlearn_rows_waiting": desk.store.waiting(entry.name),
            "everlearn_novelties_total": totals.get("novelty", 0),
            "everlearn_changes_total": totals.get("change", 0),
            "everlearn_bad_rows_total": totals.get("bad rows", 0),
            "everlearn_model_bytes": entry.bytes,
        }
        label = entry.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for family, value in values.items():
            yield family, f'{family}{{model="{label}"}} {value}'


def _of_process(desk: Desk) -> Iterable[tuple[str, str]]:
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    yield "everlearn_resident_bytes", f"everlearn_resident_bytes {peak}"
    yield "everlearn_trouble", f"everlearn_trouble {int(desk.writer.trouble is not None)}"
