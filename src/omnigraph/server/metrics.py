"""Numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The numbers of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "omnigraph_http_requests",
            "Requests answered",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "omnigraph_http_request_seconds",
            "Time until an answer was sent",
            ("route", "method"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._by_labels: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """Bounded: routes, methods and statuses are all few."""
        self._rejections = Counter(
            "omnigraph_rejections",
            "Requests turned away, by reason",
            ("reason",),
            registry=self._registry,
        )

    def watch(self, name: str, about: str, read: Callable[[], float]) -> None:
        """A number that is looked up whenever somebody asks."""
        Gauge(f"omnigraph_{name}", about, registry=self._registry).set_function(read)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer."""
        # Looking a number up by its labels takes longer than counting.
        key = (route, method, status)
        found = self._by_labels.get(key)
        if found is None:
            found = self._by_labels[key] = (
                self._requests.labels(route, method, str(status)),
                self._seconds.labels(route, method),
            )
        found[0].inc()
        found[1].observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count one refusal."""
        self._rejections.labels(reason).inc()

    def page(self) -> bytes:
        """All numbers in the text format."""
        return generate_latest(self._registry)
