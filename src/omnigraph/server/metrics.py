"""Numbers for Prometheus."""

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
"""Families of numbers as JSON: `name`, `about`, `type`, `samples` of a name, labels and a value."""
_SMALLEST = ("graphs_ready", "reload_generation")
_LARGEST = ("graphs_quarantined",)
"""Gauges that workers have in common; of others, their sum is shown."""

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
        """All numbers in the text format, of all workers if there are several."""
        if self._board is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        registry.register(_Merged(self._board.page_of(self.numbers())))
        return generate_latest(registry)

    def publish(self) -> None:
        """Leave the numbers where other workers find them."""
        if self._board is not None:
            self._board.publish(self.numbers())

    def numbers(self) -> Numbers:
        """All numbers of this process."""
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
    """Where workers leave their numbers for each other."""

    def publish(self, numbers: Numbers) -> None:
        """Leave numbers."""

    def page_of(self, own: Numbers) -> Numbers:
        """Own numbers with those of the others."""


def merged(pages: Iterable[Numbers]) -> Numbers:
    """The numbers of several processes as those of one.

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
    """Numbers of several processes, for the text format."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        for family in self._numbers:
            found = Metric(family["name"], family["about"], family["type"])
            for name, labels, value in family["samples"]:
                found.add_sample(name, labels, value)
            yield found
