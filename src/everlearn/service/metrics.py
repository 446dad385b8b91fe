"""Counts of the service for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from everlearn.service.repository import ModelRepository
from everlearn.service.security import App, Message, Receive, Scope, Send

# Half decades from a millisecond to ten seconds, half of the time that a question may take.
_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_COUNTS = {
    "rows": ("rows_learned", "Rows learned one by one."),
    "novelty": ("novelties", "Rows that were novel."),
    "anomaly": ("anomalies", "Rows that a detector found strange."),
    "change": ("changes", "Changes noticed."),
    "bad rows": ("bad_rows", "Rows that could not be learned."),
}
"""Name and meaning of the metric for each count of a run."""


class Metrics:
    """Requests counted as they come; all else is asked of the repository when someone wants to know."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "everlearn_requests", "Requests answered.", ["method", "path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "everlearn_request_seconds",
            "Time from the request to the end of the answer.",
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that was answered; the time of an event stream says nothing."""
        # The route and not the path: a client could make as many paths as it likes, each a series of its own.
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(scope["method"] if route != "other" else "other", route, str(status)).inc()
        if not route.endswith("/events"):
            self._seconds.observe(seconds)

    def text(self, repository: ModelRepository) -> bytes:
        """All metrics in the text format of Prometheus."""
        # Made for each scrape: what the models tell is asked of the store then, and nothing has to be kept up to date.
        models = CollectorRegistry()
        models.register(_Repository(repository))
        return generate_latest(self._registry) + generate_latest(models)


class _Repository:
    """Collects what the models tell of themselves."""

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[Metric]:
        """Give one family after the other: sums over all models, then each model, unless there are too many."""
        store, learning = self._repository.store, self._repository.learning
        sums, waiting, n_models = store.sums(), store.all_waiting(), store.n_models()
        yield GaugeMetricFamily("everlearn_models", "Models in the state file.", value=n_models)
        for what, (name, text) in _COUNTS.items():
            yield CounterMetricFamily(
                f"everlearn_service_{name}", f"{text} Sum over all models.", value=sums.get(what, 0)
            )
        yield GaugeMetricFamily(
            "everlearn_service_rows_waiting",
            "Rows on the disk that are still to be learned. Sum over all models.",
            value=sum(waiting.values()),
        )
        # A series for each of tens of thousands of models would be more than the models themselves.
        if n_models <= self._repository.limits.metrics_models:
            yield from self._models(store.all_totals(), waiting)
        yield GaugeMetricFamily(
            "everlearn_trouble", "Models that are not learned because of an error.", value=len(learning.troubles)
        )
        yield GaugeMetricFamily(
            "everlearn_stall_seconds",
            "Time for which the model that is worst off had rows to learn and learned none.",
            value=learning.longest_stall(),
        )

    def _models(self, all_totals: dict[str, dict[str, int]], waiting: dict[str, int]) -> Iterator[Metric]:
        """The same of each model, and its size."""
        gauges = {
            "rows": GaugeMetricFamily(
                "everlearn_rows", "Rows that a model has learned, those merged into it included.", labels=["model"]
            ),
            "waiting": GaugeMetricFamily(
                "everlearn_rows_waiting", "Rows on the disk that are still to be learned.", labels=["model"]
            ),
            "bytes": GaugeMetricFamily("everlearn_model_bytes", "Size of a model in the state file.", labels=["model"]),
        }
        counters = {
            what: CounterMetricFamily(f"everlearn_{name}", text, labels=["model"])
            for what, (name, text) in _COUNTS.items()
        }
        for entry in self._repository.store.models():
            totals = all_totals.get(entry.name, {})
            values = {"rows": entry.n_rows, "waiting": waiting.get(entry.name, 0), "bytes": entry.bytes}
            for name, value in values.items():
                gauges[name].add_metric([entry.name], value)
            for what, family in counters.items():
                family.add_metric([entry.name], totals.get(what, 0))
        yield from gauges.values()
        yield from counters.values()


class MetricsMiddleware:
    """ASGI middleware that counts the requests."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            self.metrics.count(scope, status, time.perf_counter() - started)
