"""What a verb asks of storage, in a form that can be compared and read.

``cost_of(graph, work)`` runs some work and returns its requests. Wherever a test fails, it shows
`Cost.table`: every request with its place, so that one too many is seen at a glance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.effects.requests import IoEvent, IoReport, measure
from omnigraph.graph import Graph
from omnigraph.storage.layout import MANIFEST, RECOVERY_AUDIT, SCHEMA_OBJECTS

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge Lives: Person -> City
"""
INSERT = "query add($name: String) { insert Person { name: $name } }"


@dataclass(frozen=True)
class Cost:
    """The requests of one piece of work, with targets relative to the root of the graph."""

    report: IoReport
    root: str

    @property
    def events(self) -> list[IoEvent]:
        """Requests in order; flushes are not requests."""
        return [
            event._replace(target=event.target.removeprefix(self.root).lstrip("/"))
            for event in self.report.events
            if event.kind != "disk"
        ]

    @property
    def requests(self) -> int:
        return self.report.requests

    @property
    def round_trips(self) -> int:
        """Requests that had to wait for each other."""
        return self.report.round_trips

    @property
    def shape(self) -> Counter[str]:
        """How often each verb is used on each kind of target, whatever its name."""
        return Counter(f"{event.verb} {_kind_of_target(event.target)}" for event in self.events)

    def of_schema(self, verb: str) -> int:
        """Requests of one verb on the schema contract."""
        return sum(event.verb == verb and event.target in SCHEMA_OBJECTS for event in self.events)

    def opened_tables(self) -> Counter[str]:
        """How often each data table was opened; internal datasets are left out."""
        return Counter(
            event.target
            for event in self.events
            if (event.kind, event.verb) == ("lance", "open")
            and not event.target.startswith((MANIFEST, RECOVERY_AUDIT))
        )

    def table(self) -> str:
        """Every request in order."""
        rows = [
            f"{at:>4}  {event.kind:<7} {event.verb:<17} {event.target}"
            for at, event in enumerate(self.events, 1)
        ]
        total = f"{self.requests} requests, {self.round_trips} serial round trips"
        return "\n".join(["", *rows, total])


def cost_of(graph: Graph, work: Callable[[], object]) -> Cost:
    """Run ``work`` and return what it asked of storage."""
    with measure(tracing=True) as io:
        work()
    return Cost(io.report(), graph.uri)


def insert(graph: Graph, name: str, branch: str | None = None) -> None:
    """A keyed single-row insert."""
    graph.mutate(INSERT, {"name": name}, branch=branch)


def many_types(count: int) -> str:
    """A schema with ``count`` node types."""
    return "\n".join(f"node Kind{n} {{ code: String @key }}" for n in range(count))


def _kind_of_target(target: str) -> str:
    top, _, rest = target.partition("/")
    if top in ("nodes", "edges"):
        return "table" + (" ref" if "/tree/" in rest else "")
    return top + (" ref" if "/tree/" in target else "")
