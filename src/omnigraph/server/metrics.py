"""Metrics for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

Numbers = list[dict[str, Any]]
"""Metric families as JSON: `name`, `about`, `type`, and `samples` with name, labels and value."""
_SMALLEST = ("graphs_ready", "reload_generation")
_LARGEST = ("graphs_quarantined",)
"""Gauges that are merged by their minimum or maximum over the workers; others are summed."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LIMITS = (*(str(float(each)) for each in _SECONDS), "+Inf")


class _Times:
    """The durations of one route's answers."""

    __slots__ = ("by_limit", "total_seconds")

    def __init__(self) -> None:
        self.by_limit = [0] * len(_LIMITS)
        self.total_seconds = 0.0


class _Answers(Collector):
    """Answers by route, method and status. Counted on the event loop only, so without locks.

    The library's own counters would take three locks per answer.
    """

    def __init__(self) -> None:
        # Bounded: there are few routes, methods and statuses.
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
    """The metrics of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, board: Board | None = None) -> None:
        self._board = board
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
        """Add a gauge whose value is read when the page is built."""
        Gauge(f"omnigraph_{name}", about, registry=self._registry).set_function(read)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._answers.add(route, method, status, seconds)

    def rejected(self, reason: str) -> None:
        """Count one refusal."""
        self._rejections.labels(reason).inc()

    def posted(self, receiver: str, outcome: str) -> None:
        """Count one webhook delivery, or one repeated attempt."""
        self._webhooks.labels(receiver, outcome).inc()

    def checked(self, outcome: str) -> None:
        """Count one run of the checks of a change request."""
        self._checks.labels(outcome).inc()

    def page(self) -> bytes:
        """All metrics in the text format, aggregated over the workers."""
        if self._board is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        registry.register(_Merged(self._board.page_of(self.numbers())))
        return generate_latest(registry)

    def publish(self) -> None:
        """Publish the metrics for the other workers."""
        if self._board is not None:
            self._board.publish(self.numbers())

    def numbers(self) -> Numbers:
        """The metrics of this process."""
        return [
            {
                "name": family.name,
                "about": family.documentation,
                "type": family.type,
                "samples": [[each.name, each.labels, each.value] for each in family.samples],
            }
            for family in self._registry.collect()
        ]


class Board(Protocol):
    """Exchanges metrics between workers."""

    def publish(self, numbers: Numbers) -> None:
        """Publish this worker's metrics."""

    def page_of(self, own: Numbers) -> Numbers:
        """This worker's metrics, merged with those of the others."""


def merged(pages: Iterable[Numbers]) -> Numbers:
    """Merge the metrics of several processes.

    >>> one = [{"name": "n", "about": "", "type": "counter", "samples": [["n_total", {}, 2.0]]}]
    >>> merged([one, one])[0]["samples"]
    [['n_total', {}, 4.0]]
    """
    families: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[tuple[str, ...], list[Any]]] = {}
    for family in chain.from_iterable(pages):
        name = family["name"]
        families.setdefault(name, family)
        samples = values.setdefault(name, {})
        for sample, labels, value in family["samples"]:
            key = (sample, *chain.from_iterable(sorted(labels.items())))
            found = samples.get(key)
            if found is None:
                samples[key] = [sample, labels, value]
            else:
                found[2] = _joined(name, sample)((found[2], value))
    return [{**family, "samples": list(values[name].values())} for name, family in families.items()]


def _joined(family: str, sample: str) -> Callable[[Iterable[float]], float]:
    short = family.removeprefix("omnigraph_")
    if sample.endswith("_created") or short in _SMALLEST:
        return min
    return max if short in _LARGEST else sum


class _Merged(Collector):
    """Merged metrics, for the text format."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        for family in self._numbers:
            found = Metric(family["name"], family["about"], family["type"])
            for name, labels, value in family["samples"]:
                found.add_sample(name, labels, value)
            yield found
