"""Numbers for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LIMITS = (*(str(float(each)) for each in _SECONDS), "+Inf")


class _Times:
    """How long the answers of one route took."""

    __slots__ = ("by_limit", "total_seconds")

    def __init__(self) -> None:
        self.by_limit = [0] * len(_LIMITS)
        self.total_seconds = 0.0


class _Answers(Collector):
    """Answers by route, method and status. Counted on the event loop alone, so without locks.

    The library's own counters take a lock for each number, three times for every answer.
    """

    def __init__(self) -> None:
        # Bounded: routes, methods and statuses are all few.
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[tuple[str, str], _Times] = {}

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get((route, method))
        if times is None:
            times = self._times[route, method] = _Times()
        times.by_limit[bisect_left(_SECONDS, seconds)] += 1
        times.total_seconds += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "omnigraph_http_requests", "Requests answered", labels=("route", "method", "status")
        )
        for (route, method, status), count in self._counts.items():
            requests.add_metric((route, method, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "omnigraph_http_request_seconds",
            "Time until an answer was sent",
            labels=("route", "method"),
        )
        for labels, times in self._times.items():
            buckets = list(zip(_LIMITS, accumulate(times.by_limit), strict=True))
            seconds.add_metric(labels, buckets, times.total_seconds)
        yield seconds


class Metrics:
    """The numbers of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answers = _Answers()
        self._registry.register(self._answers)
        self._rejections = Counter(
            "omnigraph_rejections",
            "Requests turned away, by reason",
            ("reason",),
            registry=self._registry,
        )

        self._webhooks = Counter(
            "omnigraph_review_webhooks",
            "Events of change requests, by receiver: delivered, retried, failed or dropped",
            ("receiver", "outcome"),
            registry=self._registry,
        )
        self._checks = Counter(
            "omnigraph_review_checks",
            "Heads of change requests whose checks were run by the server: done or failed",
            ("outcome",),
            registry=self._registry,
        )

    def watch(self, name: str, about: str, read: Callable[[], float]) -> None:
        """A number that is read at each request for the page."""
        Gauge(f"omnigraph_{name}", about, registry=self._registry).set_function(read)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._answers.add(route, method, status, seconds)

    def rejected(self, reason: str) -> None:
        """Count one refusal."""
        self._rejections.labels(reason).inc()

    def posted(self, receiver: str, outcome: str) -> None:
        """Count one webhook, or one attempt that is repeated."""
        self._webhooks.labels(receiver, outcome).inc()

    def checked(self, outcome: str) -> None:
        """Count one run of the checks of a change request."""
        self._checks.labels(outcome).inc()

    def page(self) -> bytes:
        """All numbers in the text format."""
        return generate_latest(self._registry)
